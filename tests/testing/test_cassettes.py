"""Whole runs on a cassette: recorded once, played by another runtime whose ids and times are others."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.llm.cassette import Cassette, CassetteMissError, record
from harborage.planner import FinishReason
from harborage.runtime.host import Runtime
from harborage.testing.cassettes import cassette
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools import CallContext, tool

pytestmark = pytest.mark.anyio


@tool
async def big_report(call: CallContext) -> dict[str, Any]:
    """Write a report that is too long to be shown, and that is never the same twice."""
    return {"run": call.who.run_id, "at": call.clock.now(), "lines": [f"{call.who.run_id} {at}" for at in range(3000)]}


async def ran(client: Any, year: int, user: str, goal: str = "report") -> Any:
    """How a run ends that asks for a report and sums it up."""
    clock = FakeClock(datetime(year, 5, 6, 7, 8, 9, tzinfo=UTC))
    async with Runtime(model=client, tools=[big_report], clock=clock) as runtime:
        run = await runtime.start(goal, who=Identity("t", user, f"s-{year}"))
        return await run.finished()


def script() -> ScriptedLLM:
    """A model that looks at what the report's tool left behind."""

    def sum_up(request: Any) -> Any:
        seen = next(message.content.text for message in request.messages if message.tool_call_id)
        ref = seen.split("artifact_fetch(ref=")[1].split('"')[1]
        return says(f"it is in {ref}")

    return ScriptedLLM([calls_tools(("big_report", {}), reasoning="let us see"), sum_up])


async def test_a_run_is_played_by_another_one(tmp_path: Path) -> None:
    """Other run, other user, other day, another artifact: the same requests, answered in its own terms."""
    tape = tmp_path / "run.json"
    first = await ran(record(script(), tape, environ={}), 2026, "u1")
    async with cassette(tape, environ={}) as client:
        second = await ran(client, 2027, "u2")
    assert first.reason is second.reason is FinishReason.GOAL
    refs = [finish.payload if isinstance(finish.payload, str) else str(finish.payload) for finish in (first, second)]
    assert all("it is in default_" in ref for ref in refs)
    assert refs[0] != refs[1]


async def test_another_goal_is_a_miss_that_says_so(tmp_path: Path) -> None:
    """The run fails with the difference instead of going on with the wrong answer."""
    tape = tmp_path / "run.json"
    await ran(record(script(), tape, environ={}), 2026, "u1")
    async with cassette(tape, all_used=False, environ={}) as client:
        with pytest.raises(Exception, match="another goal") as caught:
            await ran(client, 2026, "u1", "another goal")
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, CassetteMissError):
        error = error.__cause__
    assert error is not None or "not on the cassette" in str(caught.value)


async def test_the_tape_of_a_run_is_short(tmp_path: Path) -> None:
    """The second request is recorded by what is new in it: what the first one had, the list of artifacts, and the
    step."""
    tape = tmp_path / "run.json"
    await ran(record(script(), tape, environ={}), 2026, "u1")
    first, second = Cassette.load(tape).exchanges
    artifacts = [one for one in second.request.messages if one.get("text", "").startswith("<session_artifacts>")]
    rest = [one for one in second.request.messages if one not in artifacts]
    assert len(artifacts) == 1
    assert rest[: len(first.request.messages)] == list(first.request.messages)
    assert tape.read_text("utf-8").count("big_report") < 12
