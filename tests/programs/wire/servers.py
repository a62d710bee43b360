"""`harborage serve` in processes of their own, on free ports, over one database."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harborage.server.auth.minting import SigningKey, TokenMint
from tests.programs.wire import workers

if TYPE_CHECKING:
    from harborage.identity import Identity

_STARTS_WITHIN_S: Final = 60.0
_SERVING: Final = "serving on "


class ServerProcess:
    """One server; `url` is where it listens."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def kill(self) -> None:
        """End it without any notice to it."""
        self._process.send_signal(signal.SIGKILL)

    async def gone(self) -> int:
        """Wait for its end."""
        return await self._process.wait()


class Keys:
    """A key that signs the tokens of all callers, and the file with its public half."""

    def __init__(self, folder: Path) -> None:
        key = SigningKey.new("wire")
        self.public = folder / "keys.json"
        self.public.write_bytes(key.public_set())
        self._mint = TokenMint(key=key)

    def token(self, who: Identity, *scopes: str) -> str:
        """A token of a caller."""
        return self._mint.sign(who.tenant_id, who.user_id, who.session_id, scopes)[0]


@asynccontextmanager
async def serve(
    keys: Keys, storage: str, folder: Path, name: str, *, environ: Mapping[str, str] = {}
) -> AsyncIterator[ServerProcess]:
    """Serve the booking agent; leaving kills what still runs."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("harborage")), "serve", workers.__file__, "--keys", str(keys.public),
            "--storage", storage, "--bind", "127.0.0.1:0",
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environ},
        )  # fmt: skip
    try:
        yield ServerProcess(process, await _url(process, log))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _url(process: asyncio.subprocess.Process, log: Path) -> str:
    async with asyncio.timeout(_STARTS_WITHIN_S):
        while True:
            text = log.read_text()  # noqa: ASYNC240 - a few lines
            for line in text.splitlines():
                if _SERVING in line:
                    return line.partition(_SERVING)[2].split()[0]
            if process.returncode is not None:
                raise RuntimeError(f"the server did not start: {text}")
            await asyncio.sleep(0.05)
