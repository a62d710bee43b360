"""What a model thinks may quote a secret: it is redacted before it is stored, with any planner."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harborage.events import (
    DecisionPayload,
    Event,
    EventType,
    MemoryEventBus,
    PlannerErrorPayload,
    RepairExhaustedPayload,
)
from harborage.identity import Identity, Quadruple
from harborage.llm import CompleteResponse, LLMClient
from harborage.planner import Finish, FinishReason, PlannerConfig, RunContext
from harborage.planner.react import ReActPlanner
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.effects.model_recording import without_secrets
from harborage.runtime.host import Runtime
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM, calls_tools
from harborage.tools import SideEffect, tool

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
SECRET = "abcdefghijklmnopqrstuvwxyz0123"
THOUGHT = f"I saw Authorization: Bearer {SECRET} in the file."


@tool(effects=SideEffect.READ)
async def look() -> str:
    """Look."""
    return "nothing"


class Thinker:
    """Says its thought through every way that a planner has, without a model."""

    async def next(self, run: RunContext) -> Finish:
        assert run.on_reasoning is not None
        assert run.emit is not None
        run.on_reasoning(THOUGHT)
        published = DecisionPayload(
            identity=run.quadruple, decision_kind="Finish", reasoning_trace=THOUGHT, occurred_at=run.now()
        )
        run.emit(Event(EventType.PLANNER_DECISION, run.quadruple, published))
        return Finish(FinishReason.GOAL, "ok")


class Failing:
    """Quotes the secret in its error."""

    async def next(self, run: RunContext) -> Finish:
        raise ValueError(THOUGHT)


def model() -> ScriptedLLM:
    """A model that thinks of the secret at both of its steps."""
    step = calls_tools(("look", {}))
    return ScriptedLLM(
        [
            CompleteResponse(tool_calls=step.tool_calls, reasoning=THOUGHT),
            CompleteResponse(content="ok", reasoning=THOUGHT),
        ]
    )


def files_with_secret(folder: Path) -> list[str]:
    """The names of the files that hold the secret in plain."""
    return [path.name for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


async def test_no_file_holds_a_secret_that_a_model_thought_of() -> None:
    """Over a model, with a planner that has its own model, and with one that has none; replayed reasoning included."""
    replays = PlannerConfig(reasoning_replay="text")
    minds: dict[str, Callable[[], dict[str, Any]]] = {
        "over a model": lambda: {"model": model(), "planner": replays},
        "own model": lambda: {"planner": ReActPlanner(model(), reasoning_replay="text")},
        "no model": lambda: {"planner": Thinker()},
    }
    for name, mind in minds.items():
        with tempfile.TemporaryDirectory() as folder:
            async with Runtime(**mind(), tools=[look], storage=f"sqlite:{folder}/x.db", agent="a") as runtime:
                run = await runtime.start("g", who=ME)
                assert (await run.finished()).payload == "ok", name
                traces = [
                    event.payload.reasoning_trace
                    async for event in run.events()
                    if isinstance(event.payload, DecisionPayload)
                ]
                assert traces, name
                assert set(traces) == {THOUGHT.replace(SECRET, "***")}, name
            assert files_with_secret(Path(folder)) == [], name


async def test_a_run_whose_reasoning_was_redacted_is_replayed_exactly() -> None:
    """The planner saw what the record has, so every request is made again byte for byte, reasoning in it."""
    config = PlannerConfig(reasoning_replay="text")
    async with Runtime(model=model(), planner=config, tools=[look]) as runtime:
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = await run.history()
        assert not any(SECRET.encode() in entry for entry in record)
        replayed = await runtime.replay(record)
    assert replayed.is_same, replayed.summary()


async def test_a_planner_error_is_reported_without_the_secret() -> None:
    """The event of a failed step quotes the error without it."""
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    async with Runtime(planner=Failing(), bus=bus) as runtime:
        with pytest.raises(RunFailedError):
            await (await runtime.start("g", who=ME)).finished()
        (failed,) = recorder.payloads(PlannerErrorPayload)
    assert "Bearer ***" in failed.error_message
    recorder.cancel()
    await bus.aclose()


async def test_free_text_in_a_list_is_redacted() -> None:
    """Each of several reasons loses its secrets, and the payload stays the object that it is."""
    bus = MemoryEventBus()
    who = Quadruple("t", "u", "s", "r")
    payload = RepairExhaustedPayload(
        identity=who,
        attempts=1,
        consecutive_arg_failures=1,
        reasons=("fine", THOUGHT),
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    published = bus.publish_nowait(Event(EventType.PLANNER_REPAIR_EXHAUSTED, who, payload))
    assert isinstance(published.payload, RepairExhaustedPayload)
    assert published.payload.reasons == ("fine", THOUGHT.replace(SECRET, "***"))
    await bus.aclose()


def test_a_redactor_that_fails_lets_nothing_through() -> None:
    """The reasoning is withheld, whatever the redactor raised."""

    class Broken:
        def redact(self, value: Any) -> Any:
            raise RuntimeError(value)

    assert SECRET not in without_secrets(Broken(), THOUGHT)
    assert without_secrets(Broken(), "") == ""


async def test_the_client_given_is_not_changed() -> None:
    """The owner of an open client sees its own answers as they are."""
    client = model()
    async with Runtime(model=client, tools=[look]) as runtime:
        await (await runtime.start("g", who=ME)).finished()
    assert [call.response.reasoning for call in client.calls if call.response is not None] == [THOUGHT, THOUGHT]
    assert isinstance(client, LLMClient)


async def test_the_error_that_ends_a_run_is_kept_without_the_secret() -> None:
    """In the record, the row, the status, the task and every file; its class and the rest of its text stay."""
    with tempfile.TemporaryDirectory() as folder:
        async with Runtime(planner=Failing(), storage=f"sqlite:{folder}/x.db", agent="a") as runtime:
            run = await runtime.start("g", who=ME)
            with pytest.raises(RunFailedError) as caught:
                await run.finished()
            status, task = await run.status(), await runtime.tasks.get(run.id, who=ME)
            record = b"".join(await run.history())
            assert task.error is not None
            for name, text in {
                "error": str(caught.value),
                "status": status.reason,
                "task": task.error.message,
                "record": record.decode(),
            }.items():
                assert SECRET not in text, name
                assert "Bearer ***" in text, name
        assert files_with_secret(Path(folder)) == []


async def test_a_long_error_is_kept_cut_short() -> None:
    """What a record keeps of an error has a bound, however much the error says."""

    class Wordy:
        async def next(self, run: RunContext) -> Finish:
            raise ValueError("word " * 100_000)

    async with Runtime(planner=Wordy()) as runtime:
        run = await runtime.start("g", who=ME)
        with pytest.raises(RunFailedError):
            await run.finished()
        assert len((await run.status()).reason) < 5_000
        assert max(map(len, await run.history())) < 10_000
