"""What is set for the next run of a session: taken once, by one start, and applied to every call of its model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Identity, Runtime, tool
from harborage.errors import InvalidOptionError
from harborage.llm import ReasoningEffort, Role
from harborage.planner import Planner, RunContext
from harborage.planner.react import ReActPlanner
from harborage.runtime.loop.seam import ModelOverrides
from harborage.runtime.overrides import check_overrides, put_back, set_overrides, take_overrides
from harborage.runtime.starting import RunStarter
from harborage.state import MemoryStateStore, StateStore
from harborage.state.sqlite import make
from harborage.state.store import StateConfig
from harborage.testing.llm import ScriptedLLM, calls_tools, says

pytestmark = pytest.mark.anyio

ADA = Identity("acme", "ada", "s-1")
ALL = ModelOverrides(
    reasoning_effort="high", temperature=0.0, top_p=0.5, max_tokens=77, system_prompt="You are a pirate."
)


class PlainStore:
    """A store of records that cannot swap."""

    def __init__(self) -> None:
        inner = MemoryStateStore()
        self.save, self.load, self.delete = inner.save, inner.load, inner.delete
        self.load_by_event_id, self.aclose = inner.load_by_event_id, inner.aclose


@pytest.fixture(params=["memory", "plain", "sqlite"])
async def state(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An empty store of records."""
    if request.param == "sqlite":
        store: StateStore = await make(StateConfig("sqlite", str(tmp_path / "state.db")))
    else:
        store = MemoryStateStore() if request.param == "memory" else PlainStore()
    yield store
    await store.aclose()


async def test_the_last_write_is_taken_once(state: StateStore) -> None:
    """Then nothing is left, and it may be set again."""
    assert await take_overrides(state, ADA) is None
    for _ in range(2):
        await set_overrides(state, ADA, ALL)
        await set_overrides(state, ADA, ModelOverrides(temperature=1))
        assert await take_overrides(state, ADA) == ModelOverrides(temperature=1)
        assert await take_overrides(state, ADA) is None


async def test_each_principal_has_a_slot_of_its_own(state: StateStore) -> None:
    """Neither another session, nor another user or tenant takes it."""
    await set_overrides(state, ADA, ALL)
    for who in (Identity("acme", "ada", "s-2"), Identity("acme", "ben", "s-1"), Identity("rival", "ada", "s-1")):
        assert await take_overrides(state, who) is None
    assert await take_overrides(state, ADA) == ALL


async def test_one_of_many_starts_takes_it(state: StateStore) -> None:
    """Whoever comes at the same moment gets nothing."""
    await set_overrides(state, ADA, ALL)
    taken = await asyncio.gather(*(take_overrides(state, ADA) for _ in range(20)))
    if isinstance(state, PlainStore):
        return  # without a swap only starts one after the other are told apart
    assert sorted(one is not None for one in taken) == [False] * 19 + [True]


async def test_what_no_run_got_is_put_back_unless_something_newer_was_set(state: StateStore) -> None:
    """A start that fails loses nothing."""
    await put_back(state, ADA, ALL)
    assert await take_overrides(state, ADA) == ALL
    await put_back(state, ADA, ALL)
    await set_overrides(state, ADA, ModelOverrides(max_tokens=1))
    await put_back(state, ADA, ALL)
    assert await take_overrides(state, ADA) == ModelOverrides(max_tokens=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning_effort", "off"),
        ("reasoning_effort", "extreme"),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("max_tokens", 0),
        ("max_tokens", -1),
    ],
)
async def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    """Nothing is set then."""
    store = MemoryStateStore()
    with pytest.raises(InvalidOptionError, match=field):
        await set_overrides(store, ADA, ModelOverrides(**{field: value}))
    assert await take_overrides(store, ADA) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning_effort", ""),
        ("reasoning_effort", "low"),
        ("temperature", 0),
        ("temperature", 2),
        ("top_p", 0),
        ("top_p", 1),
        ("max_tokens", 1),
    ],
)
def test_bounds_are_included(field: str, value: Any) -> None:
    """The ends of each range are legal."""
    check_overrides(ModelOverrides(**{field: value}))


@tool(effects="read")
async def look(place: str) -> str:
    """Look at a place."""
    return place


def scripted() -> ScriptedLLM:
    """A model that calls a tool and answers."""
    return ScriptedLLM([calls_tools(("look", {"place": "here"})), says("done")])


async def begin(rt: Runtime, key: str = "") -> str:
    """Start a run that takes what was set, and wait for its end; return its id."""
    begun = await RunStarter(rt.parts, rt._setup.clock, takes_overrides=True).begin("go", None, who=ADA, key=key)
    await (await rt.run(begun.who.run_id, who=ADA)).result()
    return begun.who.run_id


async def test_every_call_of_one_run_has_what_was_set() -> None:
    """The run after it is as its agent says."""
    model = scripted()
    async with Runtime([Agent("shop", tools=[look], model=model)]) as rt:
        await set_overrides(rt.parts.state, ADA, ALL)
        first, second = await begin(rt), await begin(rt)
    for call in model.of(first):
        request = call.request
        assert (request.temperature, request.max_tokens, request.extra["top_p"]) == (0.0, 77, 0.5)
        assert request.reasoning_effort is ReasoningEffort.HIGH
        assert str(request.messages[0].content.text).startswith("You are a pirate.")
        assert request.messages[0].role is Role.SYSTEM
    assert len(model.of(first)) == len(model.of(second)) == 2
    for call in model.of(second):
        request = call.request
        assert (request.temperature, request.max_tokens, request.extra) == (None, None, {})
        assert "pirate" not in str(request.messages[0].content.text)


async def test_only_a_start_that_asks_takes_it_and_a_known_key_does_not() -> None:
    """A start that returns an earlier run has no model call to set anything for."""
    model = scripted()
    async with Runtime([Agent("shop", tools=[look], model=model)]) as rt:
        state = rt.parts.state
        first = await begin(rt, "key")
        await set_overrides(state, ADA, ALL)
        await (await rt.start("go", who=ADA)).result()
        assert await begin(rt, "key") == first
        assert await take_overrides(state, ADA) == ALL


async def test_a_run_that_had_overrides_replays_the_same(tmp_path: Path) -> None:
    """They are recorded with the run, so the planner asks the same again; a process after this one knows them, too."""
    agent = Agent("shop", tools=[look], model=scripted())
    async with Runtime([agent], storage=f"sqlite:{tmp_path / 'runs.db'}") as rt:
        await set_overrides(rt.parts.state, ADA, ALL)
        run_id = await begin(rt)
        replayed = await rt.replay(await (await rt.run(run_id, who=ADA)).history())
        assert (replayed.difference, replayed.model_calls) == (None, 2)


async def test_a_planner_made_over_the_model_has_them_too() -> None:
    """Whatever planner calls the runtime's model."""

    class Wrapped:
        def __init__(self, inner: Planner) -> None:
            self._inner = inner

        async def next(self, run: RunContext) -> Any:
            return await self._inner.next(run)

    model = scripted()
    async with Runtime(planner=lambda client: Wrapped(ReActPlanner(client)), model=model, tools=[look]) as rt:
        await set_overrides(rt.parts.state, ADA, ModelOverrides(temperature=2, top_p=1))
        run_id = await begin(rt)
    assert [(one.request.temperature, one.request.extra) for one in model.of(run_id)] == [(2, {"top_p": 1})] * 2
