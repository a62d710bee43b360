"""The suite for record stores catches the faults it is there for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from harborage.identity import Identity, Quadruple
from harborage.state import MemoryStateStore, RecordNotFoundError, StateRecord, StateStore, StoreClosedError, memory
from tests.kit.conformance import state as suite


class ForgetsTheTenant(MemoryStateStore):
    """Keys every slot without its tenant."""

    async def save(self, record: StateRecord) -> None:
        who = record.identity
        shared = Quadruple("shared" if who.tenant_id else "", who.user_id, who.session_id, who.run_id)
        await super().save(msgspec.structs.replace(record, identity=shared))

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        shared = Quadruple("shared" if identity.tenant_id else "", *msgspec.structs.astuple(identity)[1:])
        return msgspec.structs.replace(await super().load(shared, kind), identity=identity)


class IgnoresTheRun(MemoryStateStore):
    """Takes every run for the blank one."""

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        return await super().load(identity.identity.with_run(""), kind)


class KeepsOldEventIds(MemoryStateStore):
    """Never forgets an event id, so a replaced one finds the newer record."""

    async def save(self, record: StateRecord) -> None:
        before = dict(self._slots)
        await super().save(record)
        self._slots = {**before, **self._slots}


class OverwritesConflicts(MemoryStateStore):
    """Lets an event id be used for anything."""

    async def save(self, record: StateRecord) -> None:
        self._slots.pop((record.identity.identity, record.event_id), None)
        replaced = self._records.get((record.identity, record.kind))
        if replaced is not None:
            self._slots.setdefault((replaced.identity.identity, replaced.event_id), (record.identity, record.kind))
        await super().save(record)


class SharesEventIds(MemoryStateStore):
    """Keeps one index of event ids for all owners."""

    async def load_by_event_id(self, event_id: str, *, who: Identity | Quadruple | None = None) -> StateRecord:
        for (_, known), slot in self._slots.items():
            if known == event_id:
                return self._records[slot]
        return await super().load_by_event_id(event_id, who=who)


class KeepsTheBuffer(MemoryStateStore):
    """Stores the caller's own buffer."""

    async def save(self, record: StateRecord) -> None:
        await super().save(record)
        self._records[record.identity, record.kind] = msgspec.structs.replace(
            self._records[record.identity, record.kind], data=record.data
        )


class MissingIsEmpty(MemoryStateStore):
    """Answers a missing slot with an empty record."""

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        try:
            return await super().load(identity, kind)
        except RecordNotFoundError:
            return StateRecord("none", identity, kind)


class AnswersAfterClose(MemoryStateStore):
    """Goes on after close."""

    async def aclose(self) -> None:
        """Do nothing."""


class ChecksIdentityFirst(MemoryStateStore):
    """Looks at the identity before it looks whether it is closed."""

    async def delete(self, identity: Quadruple, kind: str) -> None:
        memory.check_slot(identity, kind, "state.delete")
        await super().delete(identity, kind)


class ClosesOnce(MemoryStateStore):
    """Fails the second close."""

    async def aclose(self) -> None:
        if self._is_closed:
            raise StoreClosedError()
        await super().aclose()


FAULTS: dict[type[MemoryStateStore], Callable[[StateStore], object]] = {
    ForgetsTheTenant: suite.owners_never_meet,
    IgnoresTheRun: suite.runs_and_kinds_are_slots_of_their_own,
    KeepsOldEventIds: suite.a_replaced_event_id_is_forgotten,
    OverwritesConflicts: suite.an_event_id_stands_for_one_record,
    SharesEventIds: suite.an_event_id_says_nothing_about_other_owners,
    KeepsTheBuffer: suite.buffers_are_copied,
    MissingIsEmpty: suite.a_missing_record_is_not_found,
    AnswersAfterClose: suite.a_closed_store_says_so,
    ChecksIdentityFirst: suite.a_closed_store_says_so,
    ClosesOnce: suite.a_closed_store_says_so,
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_a_faulty_store_is_caught_by_the_scenario_for_its_fault(fault: type[MemoryStateStore]) -> None:
    """Each planted fault fails the suite, in the scenario that names it."""

    async def open_faulty() -> StateStore:
        return fault()

    with pytest.raises(ExceptionGroup) as caught:
        await suite.run_conformance(open_faulty)
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert any(note.startswith(f"scenario {FAULTS[fault].__name__}:") for note in notes), notes


def test_the_list_has_every_scenario() -> None:
    """No scenario is written and then forgotten: each coroutine that takes a store is in the tuple, once."""
    wanted = {"store": "StateStore", "return": "None"}
    written = [
        value
        for value in vars(suite).values()
        if getattr(value, "__module__", "") == suite.__name__ and getattr(value, "__annotations__", {}) == wanted
    ]
    assert list(suite.SCENARIOS) == written
    assert all(scenario.__doc__ for scenario in suite.SCENARIOS)
