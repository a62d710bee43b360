"""The simulation finds what is broken: stories with one thing wrong in each are caught within a few seeds.

What is wrong here sits where processes meet what is outside of them: in a storage that does not do what it says, and in
tools that do not say what they do. Everything else is as it is in the product.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.events import EventType
from harborage.ids import new_id
from harborage.runtime.durable.journal import Begun, Done, Entry, Patched, encode_entry
from harborage.state.storage import Storage
from harborage.store import Commit, Committed, ControlRow, Guard, NewEvent
from harborage.store.errors import LeaseLostError
from harborage.store.memory import MemoryStore
from harborage.testing.simulation import AuditedStore, Faults, Process, ServiceCall, Simulation, StorageServer, Wire
from harborage.tools import ToolDescriptor
from tests.kit.tables import each_row
from tests.programs.simulation.scenario import Scenario
from tests.programs.simulation.stories import play
from tests.programs.simulation.workload import Traits
from tests.programs.simulation.world import World, tools_of

TRAITS = Traits(processes=2, runs=2, longest=6, has_parallel=True, has_approvals=True, messages=4, linger_s=0.1)
FAULTS = Faults(crash=0.02, freeze=0.005, slow=0.05, slow_s=5.0, most_crashes=8)
SEEDS = 30


def finds(
    wanted: str, scenario: Callable[[Simulation, Traits], Scenario], faults: Faults = FAULTS, **traits: Any
) -> bool:
    """Whether some story of such a scenario fails with what is wanted."""
    drawn = replace(TRAITS, **traits)
    errors = (play(seed, faults=faults, traits=drawn, scenario=scenario).error for seed in range(SEEDS))
    return any(wanted in f"{type(error).__name__}: {error}" for error in errors)


class Around:
    """Something that stands in the place of a store: all is the store's, but for what a subclass does itself."""

    def __init__(self, store: Any, process: Process) -> None:
        self.store = store
        self.process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def with_store(around: Callable[[Any, Process], Any]) -> type[Scenario]:
    """A scenario where processes reach the store through that."""

    class Odd(Scenario):
        def storage_of(self, process: Process) -> Storage:
            storage = super().storage_of(process)
            return Storage(state=storage.state, store=around(storage.store, process))

    return Odd


def without(commit: Commit, is_lost: Callable[[Entry], bool]) -> Commit:
    """The commit with something that means nothing in the place of the entries that are lost."""
    return replace(commit, entries=tuple(_dulled(one, is_lost) for one in commit.entries))


def _dulled(stored: bytes, is_lost: Callable[[Entry], bool]) -> bytes:
    entry = codec.decode(stored, Entry)
    return encode_entry(Patched(at=entry.at, change="nothing")) if is_lost(entry) else stored


def test_nothing_is_found_in_a_sound_scenario() -> None:
    """With the same traits and faults as below, and a stand-in that does nothing itself."""
    for seed in range(6):
        outcome = play(seed, faults=FAULTS, traits=TRAITS, scenario=with_store(Around))
        assert outcome.error is None, f"seed {seed}: {outcome.error}"


def test_a_key_that_is_new_each_time() -> None:
    """What is done once a key is done twice."""

    class NewKeys(World):
        async def act(self, act: ServiceCall) -> str:
            return await super().act(act._replace(key=new_id()))

    class Odd(Scenario):
        def tools_of(self, process: Process, wire: Wire) -> list[ToolDescriptor]:
            return tools_of(self.new_keys, process.name, wire)

        def __init__(self, simulation: Simulation, traits: Traits) -> None:
            super().__init__(simulation, traits)
            self.new_keys = NewKeys(simulation)
            self.new_keys.acts = self.world.acts

    assert finds("was done 2 times", Odd)


def test_intents_that_are_not_recorded() -> None:
    """Calls that must not be repeated are."""

    class NoIntents(Around):
        async def commit(self, commit: Commit) -> Committed:
            return await self.store.commit(without(commit, lambda entry: isinstance(entry, Begun)))

    assert finds("was done 2 times", with_store(NoIntents))


def test_decisions_that_are_not_recorded() -> None:
    """The model is asked for them again and again."""

    class NoDecisions(Around):
        async def commit(self, commit: Commit) -> Committed:
            is_lost = lambda entry: isinstance(entry, Done) and entry.name == "plan"  # noqa: E731
            return await self.store.commit(without(commit, is_lost))

    assert finds("too often", with_store(NoDecisions), linger_s=0.0, has_questions=True, ttl_s=600.0)


def test_a_store_that_says_it_wrote_before_it_did() -> None:
    """The last commit is gone when the process dies."""

    class Late(Around):
        def __init__(self, store: Any, process: Process) -> None:
            super().__init__(store, process)
            self.late: list[Commit] = []

        async def commit(self, commit: Commit) -> Committed:
            if commit.guard is not None and commit.change is None:
                self.late.append(commit)
                return Committed()
            while self.late:
                await self.store.commit(self.late.pop(0))
            return await self.store.commit(commit)

    assert finds("was done 2 times", with_store(Late))


def test_an_engine_that_goes_on_without_its_lease() -> None:
    """Two processes carry one run, and the calls of both are made."""

    class Stubborn(Around):
        async def commit(self, commit: Commit) -> Committed:
            try:
                return await self.store.commit(commit)
            except LeaseLostError:
                return Committed()

    faults = Faults(freeze=0.02, freeze_s=100.0, most_freezes=6)
    assert finds("was done 2 times", with_store(Stubborn), faults)


def test_a_store_without_fences() -> None:
    """A write of a worker that lost its run is seen at once."""

    class NoFences(MemoryStore):
        async def commit(self, commit: Commit) -> Committed:
            if commit.guard is not None:
                row = self._tables.runs[commit.guard.lease.run_id].row
                commit = replace(commit, guard=Guard(lease=row.lease, position=row.position))
            return await super().commit(commit)

    class Fenceless(AuditedStore, NoFences):
        pass

    def scenario(simulation: Simulation, traits: Traits) -> Scenario:
        return Scenario(simulation, traits, StorageServer(simulation, Fenceless(simulation)))

    faults = Faults(freeze=0.02, freeze_s=100.0, most_freezes=6)
    assert finds("StaleWriteError", scenario, faults)


def test_controls_that_never_arrive() -> None:
    """Later ones come before them, or never do they."""

    class Deaf(Around):
        async def controls(self, run_id: str, *, after: int = 0, limit: int = 100) -> Sequence[ControlRow]:
            sent = await self.store.controls(run_id, after=after, limit=limit)
            return [one for one in sent if random.Random(one.event_id).random() < 0.5]

        async def controls_of(self, after: Mapping[str, int], *, limit: int = 100) -> Sequence[ControlRow]:
            sent = await self.store.controls_of(after, limit=limit)
            return [one for one in sent if random.Random(one.event_id).random() < 0.5]

    assert finds("InvariantBrokenError", with_store(Deaf), messages=12, runs=1)


def test_a_store_that_loses_an_end_event() -> None:
    """A run that has ended without an event that says so is found, however many faults there were."""

    class Mute(Around):
        async def commit(self, commit: Commit) -> Committed:
            return await self.store.commit(
                replace(commit, events=tuple(one for one in commit.events if not _ends(one)))
            )

    assert finds("it ended 1 times, and 0 events say so", with_store(Mute))


def _ends(event: NewEvent) -> bool:
    return event.type in {EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED}


def test_a_store_that_keeps_an_outcome_twice() -> None:
    """One outcome too many of a redirect is found."""

    class Twofold(Around):
        async def commit(self, commit: Commit) -> Committed:
            again = [one for one in commit.events if one.type == EventType.CONTROL_APPLIED and b"REDIRECT" in one.data]
            return await self.store.commit(replace(commit, events=(*commit.events, *again)))

    assert finds("REDIRECT were accepted, and 2 have an outcome", with_store(Twofold), messages=12, runs=1)


def test_a_host_that_keeps_runs_to_itself() -> None:
    """A run that waits is never resumed."""

    class Hoarder(Around):
        async def commit(self, commit: Commit) -> Committed:
            if commit.change is not None and commit.change.release:
                await asyncio.sleep(0)
                return Committed()
            return await self.store.commit(commit)

    assert finds("StuckError", with_store(Hoarder))


def test_events_that_are_lost() -> None:
    """The places of the session have gaps."""

    class Forgetful(AuditedStore):
        async def commit(self, commit: Commit) -> Committed:
            done = await super().commit(commit)
            for who, kept in self._tables.events.items():
                self._tables.events[who] = [one for one in kept if one.place % 7]
            return done

    def town(simulation: Simulation, traits: Traits) -> Scenario:
        return Scenario(simulation, traits, StorageServer(simulation, Forgetful(simulation)))

    assert finds("events of the session have gaps", town)


@each_row(
    "kind, published, wanted",
    [
        ("control.applied", "control.received", "have an outcome"),
        ("control.received", "control.applied", "have an outcome"),
        ("task.completed", "task.started", "events say so"),
        ("task.started", "task.completed", "events say so"),
    ],
)
def test_events_that_say_something_else(kind: str, published: str, wanted: str) -> None:
    """A control without an outcome, or with two, and a run without an end, or with two."""

    class Liar(Around):
        async def commit(self, commit: Commit) -> Committed:
            said = tuple(replace(one, type=published) if one.type == kind else one for one in commit.events)
            done: Committed = await self.store.commit(replace(commit, events=said))
            return done

    assert finds(wanted, with_store(Liar), Faults())


@pytest.mark.parametrize("tool", ["gated", "write"])
def test_tools_that_act_by_themselves(tool: str) -> None:
    """What nobody allowed, or what is done twice, is seen in the world outside."""

    class Twice(World):
        async def act(self, act: ServiceCall) -> str:
            if act.tool == tool:
                self.acts.append(act)
            return await super().act(act)

    class Odd(Scenario):
        def __init__(self, simulation: Simulation, traits: Traits) -> None:
            super().__init__(simulation, traits)
            self.world = Twice(simulation)

    assert finds(f"{tool} ", Odd)
