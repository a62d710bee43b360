"""Tests against a recorded model: `async with cassette("tests/cassettes/weather.json", real=open_it) as model: …`.

The recording is played, offline; with `HARBORAGE_RECORD` set it is made anew with the real client. A request that was
not recorded fails the test with the difference, and so do recordings that the test does not use.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harborage.llm.cassette import RECORD_VARIABLE, CassetteError, Recording, Replaying, record, replay

if TYPE_CHECKING:
    from harborage.llm import LLMClient


@asynccontextmanager
async def cassette(
    path: str | Path,
    *,
    real: Callable[[], Awaitable[LLMClient]] | None = None,
    all_used: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Recording | Replaying]:
    """Open a client over the cassette at `path`; its `cassette` lists the requests so far.

    `real` opens the client to record. Unless `all_used` is off, a block without an error must use every recording.

    Raises:
        CassetteError: there is no recording, or `real` is missing for a new one.
        CassetteUnusedError: at the end, for recordings that were not used.
    """
    wanted = environ.get(RECORD_VARIABLE, "").strip()
    if wanted and real is None:
        raise CassetteError(f"{RECORD_VARIABLE} is set, but there is no real client to record into {path}")
    client = record(await real(), path, model=wanted, environ=environ) if wanted and real else replay(path)
    try:
        yield client
    finally:
        await client.close()
    if all_used:
        client.cassette.assert_all_used()
