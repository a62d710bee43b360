"""The record of a step can be read back: a decision is published after a crash, prompts by any worker, large results by
reference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from harborage import (
    CallTool,
    Decision,
    EventType,
    Finish,
    FinishReason,
    Identity,
    RunContext,
    Runtime,
    SideEffect,
    codec,
    tool,
)
from harborage.events import Cursor, Event, Filter, RedactedMap
from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, ToolCallStructured, Usage
from harborage.runtime.durable.bodies import LARGE
from harborage.runtime.durable.journal import Done, decode_entries
from harborage.runtime.durable.model_records import prompts_of
from harborage.runtime.history.reading import exchanges_in
from harborage.runtime.loop.state import Planned
from harborage.state.storage import Storage, open_storage
from harborage.store import Commit, Committed
from harborage.testing.planners import ScriptedPlanner
from tests.kit.planners import DONE, StepPlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


class Stops:
    """The store of a process that dies: from then on no event without an entry is stored."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> Committed:
        if self.is_dead and commit.events and not commit.entries:
            return Committed()
        done: Committed = await self._store.commit(commit)
        return done


def kind_of(event: Event) -> str:
    """What was decided, of a `planner.decision`."""
    assert isinstance(event.payload, RedactedMap)
    return str(event.payload.data["DecisionKind"])


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("memory:") as opened:
        yield opened


async def test_a_decision_that_is_on_record_is_published(storage: Storage) -> None:
    """Its process died before the event was stored: the next one reads the step from the record, and publishes it."""
    began = asyncio.Event()

    @tool(effects=SideEffect.READ)
    async def look() -> str:
        """Look."""
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return "seen"

    store: Any = Stops(storage.store)
    dying = Storage(state=storage.state, store=store)

    def decide_and_die(run: RunContext) -> Decision:
        store.is_dead = True
        return CallTool("look")

    async with Runtime(planner=StepPlanner(decide_and_die), tools=[look], storage=dying) as rt:
        run = await rt.start("go", who=WHO)
        await asyncio.wait_for(began.wait(), 20)
    async with Runtime(planner=StepPlanner(CallTool("look"), DONE), tools=[look], storage=storage) as rt:
        again = await rt.run(run.id, who=WHO)
        if (await asyncio.wait_for(again.finished(), 20)).payload != "done":
            raise RuntimeError("the run did not go on")
        published = await rt.bus.replay(Cursor(WHO.session_id, 0), Filter.of(WHO))
    decided = [kind_of(one) for one in published if one.type == EventType.PLANNER_DECISION]
    assert decided == ["CallTool", "Finish"]


class Model:
    """Calls a tool three times and answers; keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[ChatMessage, ...]] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.sent.append(tuple(request.messages))
        usage = Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
        if len(self.sent) > 3:
            return CompleteResponse("done", usage=usage)
        return CompleteResponse(tool_calls=[ToolCallStructured(f"c{len(self.sent)}", "look")], usage=usage)

    async def close(self) -> None:
        return None


async def size_and_prompts(storage: str, workers: int) -> tuple[int, list[tuple[ChatMessage, ...]], Model]:
    """How large the exchanges on the record of a run are that so many processes carry in turn, and what was sent."""
    model, held, may_go_on = Model(), asyncio.Queue[None](), asyncio.Event()

    @tool(effects=SideEffect.READ)
    async def look() -> str:
        """Look."""
        held.put_nowait(None)
        await may_go_on.wait()
        return "seen " * 200

    run_id, history = "", list[bytes]()
    for worker in range(workers):
        is_last = worker == workers - 1
        async with Runtime(model=model, tools=[look], storage=storage) as rt:
            run = await rt.run(run_id, who=WHO) if run_id else await rt.start("go", who=WHO)
            run_id = run.id
            await asyncio.wait_for(held.get(), 20)
            if is_last:
                may_go_on.set()
                await asyncio.wait_for(run.finished(), 20)
                history = await run.history()
                break
            # The call ends, and the next one begins: there the process is stopped.
            may_go_on.set()
            await asyncio.sleep(0)
            may_go_on.clear()
            await asyncio.wait_for(held.get(), 20)
    steps = [one for one in decode_entries(history, run_id) if isinstance(one, Done) and one.name == "plan"]
    received = [codec.decode(bytes(one.result), Planned).heard for one in steps]
    exchanges = [exchange for one in received for exchange in exchanges_in(one, run_id)]
    size = sum(len(bytes(one)) for one in received if one is not None)
    return size, [prompt.messages for prompt in prompts_of(exchanges)], model


async def test_the_prompts_of_a_model_are_read_back_whichever_worker_had_the_run(tmp_path: Path) -> None:
    """Each prompt, whole, of a run whose worker changed in the middle; and its record is no longer for that."""
    alone, prompts, model = await size_and_prompts(f"sqlite:{tmp_path / 'one.db'}", 1)
    assert prompts == model.sent
    changed, prompts, model = await size_and_prompts(f"sqlite:{tmp_path / 'two.db'}", 2)
    assert prompts == model.sent
    assert changed <= alone + 64


async def test_the_last_entry_names_a_heavy_answer(tmp_path: Path) -> None:
    """No entry holds it whole; a caller that reads the run's result or history gets all of it, in another process,
    too."""
    answer, file = {"answer": "x" * 200_000}, tmp_path / "runs.db"
    async with Runtime(planner=ScriptedPlanner([Finish(FinishReason.GOAL, answer)]), storage=f"sqlite:{file}") as rt:
        run = await rt.start("go", who=WHO)
        assert (await asyncio.wait_for(run.finished(), 20)).payload == answer
    async with Runtime(planner=ScriptedPlanner([]), storage=f"sqlite:{file}") as rt:
        again = await rt.run(run.id, who=WHO)
        assert (await asyncio.wait_for(again.finished(), 20)).payload == answer
        assert answer["answer"].encode() in (await again.history())[-1]
    connection = apsw.Connection(str(file))
    (largest,) = next(iter(connection.execute("SELECT max(length(data)) FROM harborage_journal")))
    connection.close()
    assert largest <= LARGE
