"""A server as a configuration says, over a real socket: who may call it, and what it takes while it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harborage.app.configured_site import ConfiguredProgram, serve_configured
from harborage.app.target import TargetError
from harborage.config import InvalidConfigurationError, load_config
from harborage.server.auth.minting import SigningKey, TokenMint
from harborage.server.console_files import ConsoleFiles
from tests.kit.configurations import text_of

WITHIN_S = 30
AGENT = "from harborage import Agent\nagent = Agent('shop')\nother = Agent('other')\n"


@pytest.fixture
def key() -> SigningKey:
    """The key of an identity provider."""
    return SigningKey.new("one")


@pytest.fixture
def folder(tmp_path: Path, key: SigningKey) -> Path:
    """A program, its configuration and the provider's public keys."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "keys.json").write_bytes(key.public_set())
    write(tmp_path)
    return tmp_path


def write(folder: Path, **changes: Any) -> None:
    """Write the configuration anew, with a time stamp of its own."""
    file = folder / "harborage.yaml"
    stamp = file.stat().st_mtime_ns + 1_000_000_000 if file.exists() else None
    sqlite = {"state.driver": "sqlite", "state.dsn": "runs.db"}
    file.write_bytes(text_of({**sqlite, **{key.replace("__", "."): value for key, value in changes.items()}}))
    if stamp is not None:
        os.utime(file, ns=(stamp, stamp))


def program(folder: Path) -> ConfiguredProgram:
    """The program of the folder."""
    loaded = load_config(folder / "harborage.yaml", environ={})
    return ConfiguredProgram(str(folder / "agent.py"), folder, loaded, environ={})


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the running server; it is stopped behind the block."""
    bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stopping = asyncio.Event()
    async with asyncio.timeout(2 * WITHIN_S), asyncio.TaskGroup() as group:
        serving = group.create_task(
            serve_configured(
                program(folder),
                bind="127.0.0.1:0",
                console=ConsoleFiles(None),
                on_ready=lambda address: bound.set_result(str(address)),
                stopping=stopping,
            )
        )
        serving.add_done_callback(lambda task: bound.cancel())
        async with httpx2.AsyncClient(base_url=f"http://{await bound}", trust_env=False) as client:
            try:
                yield client
            finally:
                stopping.set()


def bearer(key: SigningKey, issuer: str = "shop") -> dict[str, str]:
    """The header of a token that the provider signed."""
    token, _ = TokenMint(key=key, issuer=issuer, audience="harbor").sign("acme", "ada", "s-1")
    return {"authorization": f"Bearer {token}"}


async def ask(client: httpx2.AsyncClient, headers: dict[str, str]) -> httpx2.Response:
    """Ask what the server is."""
    return await client.post("/v1/control/runtime.info", json={}, headers=headers)


async def test_a_configured_server_knows_its_tokens_and_runs_its_agents(folder: Path, key: SigningKey) -> None:
    """The key set, issuer and audience of the file decide who may start a run, which is kept in its database."""
    async with served(folder) as client:
        assert (await ask(client, {})).status_code == 401
        assert (await ask(client, bearer(key, "stranger"))).status_code == 401
        assert (await ask(client, bearer(SigningKey.new("one")))).status_code == 401
        asked = {"query": "Hello", "agent": "other"}
        started = await client.post("/v1/control/start", json=asked, headers=bearer(key))
        assert started.status_code == 200, started.text
    assert (folder / "runs.db").exists()


async def test_origins_and_keys_change_without_a_restart(folder: Path, key: SigningKey) -> None:
    """A page of a new origin may call, and the tokens of a new issuer count, soon after the file has changed."""
    page = {"origin": "https://console.test", "access-control-request-method": "POST"}
    allowed = "access-control-allow-origin"
    async with served(folder) as client:
        assert allowed not in (await client.options("/v1/control/start", headers=page)).headers
        write(folder, server__allowed_origins=["https://console.test/"], identity__issuer="new")
        async with asyncio.timeout(WITHIN_S):
            while allowed not in (await client.options("/v1/control/start", headers=page)).headers:
                pass
            while (await ask(client, bearer(key, "new"))).status_code == 401:
                pass
        assert (await ask(client, bearer(key))).status_code == 401


async def test_an_algorithm_that_is_not_allowed_verifies_nothing(folder: Path, key: SigningKey) -> None:
    """A key of the set counts only for the algorithms of the file."""
    write(folder, identity__jwt_algorithms=["RS256"])
    async with served(folder) as client:
        assert (await ask(client, bearer(key))).status_code == 401


def test_a_configuration_that_cannot_be_served_is_refused_before_anything_starts(folder: Path) -> None:
    """Its findings are raised, and no database is made."""
    write(folder, distributed__remote_driver="a2a")
    with pytest.raises(InvalidConfigurationError, match="distributed.remote_driver"):
        program(folder).deployment()
    assert not (folder / "runs.db").exists()


def test_a_program_with_a_runtime_of_its_own_is_refused(folder: Path) -> None:
    """A configuration could not change what it is made of."""
    (folder / "agent.py").write_text("from harborage import Runtime\nruntime = Runtime(model='mock:')\n")
    with pytest.raises(TargetError, match="offer its agents instead"):
        program(folder).deployment()
