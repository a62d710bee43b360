"""What a run's planner is given to see, made once when the run is taken up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.events import DecisionPayload, Event, EventType, LLMCompletionChunkPayload
from harborage.identity import Quadruple
from harborage.planner import ChunkKind, Finish, FinishReason, RunContext
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL)
HERE = ArtifactScope("t", "u", "s")
Runtimes = Callable[..., Awaitable[Any]]


async def test_only_images_bring_their_bytes(runtimes: Runtimes) -> None:
    """Other inputs are named with type, size and file name; those that are gone meanwhile are left out."""
    store = MemoryArtifactStore()
    image = await store.put_bytes(HERE, b"\x89PNG", mime_type="image/png", filename="a.png")
    text = await store.put_text(HERE, "hello", filename="b.txt")
    gone = await store.put_text(HERE, "gone soon")
    planner = RecordingPlanner(ScriptedPlanner([GOAL]))
    bench = await runtimes(planner, artifacts=store)
    run = await bench.start(input_artifacts=[image.id, gone.id, text.id])
    await store.delete(HERE, gone.id)
    await bench.end(run)
    views = planner.contexts[0].input_artifacts
    assert [(one.id, one.mime, one.size_bytes, one.filename, one.bytes) for one in views] == [
        (image.id, "image/png", 4, "a.png", b"\x89PNG"),
        (text.id, "text/plain; charset=utf-8", 5, "b.txt", None),
    ]


async def test_the_sessions_artifacts_are_listed(runtimes: Runtimes) -> None:
    """Those of the session at this step, and no others."""
    store = MemoryArtifactStore()
    mine = await store.put_text(HERE, "mine")
    await store.put_text(ArtifactScope("t", "u2", "s"), "not yours")
    planner = RecordingPlanner(ScriptedPlanner([GOAL]))
    bench = await runtimes(planner, artifacts=store)
    await bench.run()
    assert [one.ref for one in planner.contexts[0].session_artifacts] == [mine.id]


async def test_an_event_without_an_owner_gets_the_runs(runtimes: Runtimes) -> None:
    """A context that names a caller keeps it."""

    def emits(run: RunContext) -> Any:
        payload = DecisionPayload(identity=run.quadruple, decision_kind="Finish", occurred_at=run.now())
        for who in (Quadruple(), Quadruple("t", "u", "s", "somebody")):
            run.emit(Event(EventType.PLANNER_DECISION, who, payload))
        return GOAL

    bench = await runtimes([emits])
    run = await bench.start()
    await bench.end(run)
    owners = [event.identity.run_id for event in bench.recorder.events if event.type == "planner.decision"]
    assert owners == [run.id, "somebody"]


async def test_streamed_pieces_are_published(runtimes: Runtimes) -> None:
    """With run, task, kind, and whether it was the last."""

    def streams(run: RunContext) -> Any:
        run.on_chunk("Hel", False, ChunkKind.CONTENT)
        run.on_chunk("lo", True, ChunkKind.REASONING)
        return GOAL

    bench = await runtimes([streams])
    run = await bench.start()
    await bench.end(run)
    published = bench.recorder.payloads(LLMCompletionChunkPayload)
    assert [(one.delta, one.done, one.kind, one.task_id, one.run_id) for one in published] == [
        ("Hel", False, "content", run.id, run.id),
        ("lo", True, "reasoning", run.id, run.id),
    ]
