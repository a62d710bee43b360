"""The suite for hosts of runs catches the faults it is there for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.errors import HarborageError
from harborage.planner import Finish
from harborage.runtime.durable.engine import Engine, HistoryMismatchError, RunNotFoundError
from harborage.runtime.durable.journal import (
    Arrived,
    Begun,
    Cut,
    Done,
    Failed,
    Joined,
    Patched,
    Rolled,
    decode_entry,
    encode_entry,
)
from harborage.runtime.durable.steps import Act, Effect, EffectTable
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.seam import Program, RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.store import Commit, Committed
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock
from tests.kit.conformance import host_lives, host_scale, host_shared, host_steps, host_waits, hosts
from tests.kit.slow_store import AwaitedStore

pytestmark = pytest.mark.anyio


class Hosts:
    """Engines of one class over one store."""

    keeps_queued_controls = True

    def __init__(self, engine: Callable[..., StoredEngine], store: Callable[..., MemoryStore], *, keeps: bool) -> None:
        self._clock = FakeClock()
        self._engine = engine
        self._new_store = store
        self._store = store(clock=self._clock)
        self._keeps = keeps
        self._opened: list[StoredEngine] = []
        self.pauses = Coordinator(store=self._store, clock=self._clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self, death: hosts.Death | None = None) -> Engine:
        if not self._keeps:
            self._store = self._new_store(clock=self._clock)
            self.pauses = Coordinator(store=self._store, clock=self._clock)
        store = self._store if death is None else death.of(self._store)
        self._opened.append(self._engine(store, self.pauses, clock=self._clock))
        return self._opened[-1]

    async def pass_time(self, seconds: float) -> None:
        await self._clock.run_for(seconds)

    async def aclose(self) -> None:
        for engine in self._opened:
            await engine.aclose()
        await self._store.aclose()


FORGOTTEN = Patched(at=datetime(2026, 1, 1, tzinfo=UTC), change="forgotten")


class Forgetful(AwaitedStore):
    """Keeps something else in the place of entries of one kind."""

    def __init__(self, kind: type, **options: Any) -> None:
        super().__init__(**options)
        self._kind = kind

    async def commit(self, commit: Commit) -> Committed:
        return await super().commit(replace(commit, entries=tuple(map(self._kept, commit.entries))))

    def _kept(self, data: bytes) -> bytes:
        return encode_entry(FORGOTTEN) if isinstance(decode_entry(data, "r", 0), self._kind) else data


class RepeatsEverything(StoredEngine):
    """Does again whatever had begun."""

    async def serve(self, program: Program, effects: EffectTable) -> None:
        def careless(effect: Effect) -> Effect:
            return replace(effect, recover=None) if isinstance(effect, Act) else effect

        table = {name: careless(effect) for name, effect in effects._exact.items()}
        await super().serve(program, EffectTable(table))


class StartsAnew(StoredEngine):
    """Takes every start for the first."""

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        self._store._tables.runs.pop(run_id, None)
        await super().start(run_id, request, seed=seed)


class IgnoresSeeds(StoredEngine):
    """Begins every run from nothing."""

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        await super().start(run_id, request)


class HearsTwice(StoredEngine):
    """Does not look at event ids."""

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        await super().send(run_id, replace(control, event_id=""))
        return True


class MixesRuns(StoredEngine):
    """Gives every control to the run that was started first."""

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        first = (await self.list())[0]
        return await super().send(first.run_id, replace(control, identity=first.who))


class KnowsEverybody(StoredEngine):
    """Has a finish for runs it never met."""

    async def result(self, run_id: str) -> Finish:
        try:
            return await super().result(run_id)
        except RunNotFoundError:
            return Finish("goal")


class FailsOnMismatch(StoredEngine):
    """Takes a record that does not fit for a failure of the run."""

    async def serve(self, program: Program, effects: EffectTable) -> None:
        async def hasty(io: object, request: RunRequest) -> Finish:
            try:
                return await program(io, request)
            except HistoryMismatchError as error:
                raise ValueError(str(error)) from error

        await super().serve(hasty, effects)


class Timeless(StoredEngine):
    """Does not look at deadlines."""

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        await super().start(run_id, replace(request, deadline=None), seed=seed)


def forgets(kind: type) -> dict[str, object]:
    """Options for hosts whose store does not keep this kind of entry."""
    return {"store": partial(Forgetful, kind)}


FAULTS: dict[str, tuple[dict[str, object], hosts.Scenario]] = {
    "a store that dies with its engine": ({"keeps": False}, host_steps.a_step_runs_once_and_is_recorded),
    "no intents": (forgets(Begun), host_steps.a_step_that_had_begun_is_repeated_or_unknown),
    "no results": (forgets(Done), host_steps.a_step_runs_once_and_is_recorded),
    "no failures": (forgets(Failed), host_steps.a_failed_step_stays_failed),
    "no winners": (forgets(Joined), host_steps.the_winners_of_a_race_stay_the_winners),
    "no arrivals": (forgets(Arrived), host_waits.what_was_drained_stays_drained),
    "no cuts": (forgets(Cut), host_waits.a_cut_step_stays_cut),
    "no patches": (forgets(Patched), host_lives.a_code_change_is_taken_by_new_runs_only),
    "no rollovers": (forgets(Rolled), host_lives.a_rollover_begins_a_new_history),
    "repeats": ({"engine": RepeatsEverything}, host_steps.a_run_killed_around_any_act_comes_to_the_same_end),
    "starts anew": ({"engine": StartsAnew}, host_lives.starting_twice_starts_once),
    "ignores seeds": ({"engine": IgnoresSeeds}, host_lives.a_fork_answers_its_first_steps_from_another_run),
    "hears twice": ({"engine": HearsTwice}, host_waits.a_control_counts_once),
    "mixes runs": ({"engine": MixesRuns}, host_lives.runs_do_not_see_each_other),
    "knows everybody": ({"engine": KnowsEverybody}, host_lives.an_unknown_run_is_not_found),
    "fails on mismatch": ({"engine": FailsOnMismatch}, host_steps.code_that_asks_for_another_step_is_blocked),
    "timeless": ({"engine": Timeless}, host_waits.a_deadline_that_passed_long_ago_lets_no_step_begin),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_faulty_host_is_caught_by_the_scenario_for_its_fault(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault fails the scenario that is there for it."""
    monkeypatch.setattr("tests.kit.conformance.host_bench._PATIENCE_S", 0.5)
    options, scenario = FAULTS[fault]

    async def open_faulty() -> hosts.HostFactory:
        return Hosts(**{"engine": StoredEngine, "store": MemoryStore, "keeps": True, **options})

    with pytest.raises(HarborageError):
        await hosts.check(scenario, open_faulty)


async def test_what_is_broken_is_named() -> None:
    """The whole suite at once lists every scenario that failed, with its name and what it promised."""

    async def open_faulty() -> hosts.HostFactory:
        return Hosts(HearsTwice, MemoryStore, keeps=True)

    with pytest.raises(ExceptionGroup) as caught:
        await hosts.run_conformance(open_faulty)
    (error,) = caught.value.exceptions
    assert error.__notes__[0].startswith("scenario a_control_counts_once: A second control")


@pytest.mark.parametrize(
    "module", [host_steps, host_waits, host_lives, host_scale, host_shared], ids=lambda module: module.__name__
)
def test_the_list_has_every_scenario(module: object) -> None:
    """No scenario is written and then forgotten: each coroutine that takes only a bench is in the tuple, once."""
    wanted = {"bench": "HostBench", "return": "None"}
    written = [
        value
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__ and getattr(value, "__annotations__", {}) == wanted
    ]
    assert list(module.SCENARIOS) == written
    assert all(scenario.__doc__ for scenario in module.SCENARIOS)
    assert set(module.SCENARIOS) <= {*hosts.SCENARIOS, *hosts.SHARED}
