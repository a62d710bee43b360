"""A site keeps its storage, its bus and its streams while the code of its program is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import NoReturn

import pytest

from harborage.app.served import Program
from harborage.app.site import Site
from harborage.app.target import TargetError
from harborage.events import Event, EventType, Filter
from harborage.identity import Identity
from harborage.server.auth.gate import MAX_REJECTED, TokenGate
from harborage.server.auth.tokens import Reason, TokenRejectedError
from harborage.server.services import ServerOptions
from harborage.testing.clock import FakeClock
from tests.kit.wire import ADA, HeaderGate, Wire

DEV = Identity("dev", "dev", "dev")
WITHIN_S = 30

AGENT = """
    import asyncio
    from harborage import Agent, tool
    from harborage.testing import call, script

    @tool(effects="read")
    async def look() -> str:
        await asyncio.Event().wait() if "{word}" == "old" else None
        return "{word}"

    agent = Agent("clerk", model=script(call("look"), "{word}"), tools=[look])
"""


def site_of(program: Program) -> Site:
    """A site over memory, whose callers are known by headers."""
    return Site(
        program.load,
        storage_of=lambda _: "memory:",
        make_gate=lambda redactor, bus: HeaderGate(),
        options=ServerOptions(),
    )


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """Write the program anew."""

    def write(source: str) -> Path:
        path = tmp_path / "clerk.py"
        path.write_text(dedent(source), "utf-8")
        return path

    return write


async def test_a_run_in_flight_goes_on_with_the_new_code(file: Callable[[str], Path]) -> None:
    """The call that hung in the old code is made again by the new one, and its answer is the new one's."""
    path = file(AGENT.format(word="old"))
    async with site_of(Program(str(path), path.parent)) as site:
        before = site.server.services.runtime
        run = await before.start("look", who=ADA)
        async with asyncio.timeout(WITHIN_S):
            async for event in run.events():
                if event.type == EventType.TOOL_INVOKED:
                    break
        file(AGENT.format(word="new"))
        await site.reload(path, DEV)
        after = site.server.services.runtime
        assert after is not before
        async with asyncio.timeout(WITHIN_S):
            result = await after.get(run.id, who=ADA).result()
        assert result.output == "new"


async def test_code_that_cannot_be_loaded_is_refused(file: Callable[[str], Path]) -> None:
    """The old code keeps serving, and both what was tried and that it failed are announced."""
    path = file(AGENT.format(word="new"))
    async with site_of(Program(str(path), path.parent)) as site:
        before = site.server.services.runtime
        told: list[Event] = []
        subscription = before.bus.subscribe(Filter(tenant=DEV.tenant_id, user=DEV.user_id, session=DEV.session_id))
        file("agent = nothing\n")
        with pytest.raises(TargetError, match="nothing"):
            await site.reload(path, DEV)
        assert site.server.services.runtime is before
        assert (await Wire(site.server).request("GET", "/readyz")).status == 200
        async with asyncio.timeout(WITHIN_S):
            async for event in subscription:
                told.append(event)
                if event.type == EventType.DEV_HOT_RELOAD_COMPLETED:
                    break
        assert [event.type for event in told] == ["dev.hot_reload.triggered", "dev.hot_reload.completed"]
        assert told[1].payload.success is False  # type: ignore[union-attr]
        subscription.cancel()


async def test_modules_beside_the_program_are_read_anew(tmp_path: Path) -> None:
    """A program is more than its first file."""
    (tmp_path / "words.py").write_text("NAME = 'first'\n", "utf-8")
    path = tmp_path / "service.py"
    path.write_text("import words\nfrom harborage import Agent\nagent = Agent(words.NAME, model='mock:x')\n", "utf-8")
    program = Program(str(path), tmp_path)
    await program.open({})
    assert [one.name for one in program.load()._setup.agents] == ["first"]
    (tmp_path / "words.py").write_text("NAME = 'second'\n", "utf-8")
    assert [one.name for one in program.load()._setup.agents] == ["second"]


async def test_the_runtime_of_a_file_is_the_one_that_is_served(tmp_path: Path) -> None:
    """Its storage is that of the site, unless the command names another."""
    path = tmp_path / "service.py"
    path.write_text(
        "from harborage import Agent, Runtime\na = Agent('a', model='mock:x')\nb = Agent('b', model='mock:x')\n"
        "runtime = Runtime([b, a], storage='memory:')\n",
        "utf-8",
    )
    program = Program(str(path), tmp_path)
    await program.open({})
    given: list[object] = []
    site = Site(
        program.load,
        storage_of=lambda runtime: given.append(runtime.storage) or str(runtime.storage),  # type: ignore[func-returns-value]
        make_gate=lambda redactor, bus: HeaderGate(),
        options=ServerOptions(),
    )
    async with site:
        assert site.server.services.parts.agents.first.name == "b"
        assert given == ["memory:"]


class Refusing:
    """Refuses every token."""

    async def verify(self, token: str) -> NoReturn:
        raise TokenRejectedError(Reason.SIGNATURE_INVALID)


async def test_the_gate_is_closed_with_the_site(file: Callable[[str], Path]) -> None:
    """What it has not told yet of refused tokens is told, and no timer of it is left."""
    clock = FakeClock()
    path = file(AGENT.format(word="new"))
    site = Site(
        Program(str(path), path.parent).load,
        storage_of=lambda _: "memory:",
        make_gate=lambda redactor, bus: TokenGate(Refusing(), redactor=redactor, bus=bus, clock=clock),
        options=ServerOptions(),
    )
    async with site:
        for _ in range(MAX_REJECTED + 1):
            assert (await Wire(site.server).post("runtime.info", headers={"authorization": "Bearer x"})).status == 401
        assert clock.armed == 1
    assert clock.armed == 0
