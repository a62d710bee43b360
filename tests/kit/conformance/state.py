"""What every record store must do. Hand in a function that opens an empty store:

    await run_conformance(open_store)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_store)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from harborage.identity import IdentityRequiredError, Quadruple, bound
from harborage.ids import new_id
from harborage.state import (
    EventIdConflictError,
    InvalidRecordError,
    RecordNotFoundError,
    StateRecord,
    StateStore,
    StoreClosedError,
    SwappingStateStore,
)
from harborage.testing.conformance.checks import check_scenario, expect, expect_equal, expect_raises, run_scenarios

OpenStore: TypeAlias = Callable[[], Awaitable[StateStore]]
Scenario: TypeAlias = Callable[[StateStore], Awaitable[None]]

ME = Quadruple("tenant", "user", "session", "run")
OTHERS = (
    Quadruple("other", "user", "session", "run"),
    Quadruple("tenant", "other", "session", "run"),
    Quadruple("tenant", "user", "other", "run"),
)
INCOMPLETE = (
    Quadruple("", "user", "session", "run"),
    Quadruple("tenant", "", "session", "run"),
    Quadruple("tenant", "user", "", "run"),
    Quadruple("", "", "", ""),
)
CALLERS = 100


def a_record(data: bytes = b"data", who: Quadruple = ME, kind: str = "kind", **fields: object) -> StateRecord:
    """A record with a fresh event id and what else is asked for."""
    return msgspec.structs.replace(StateRecord(new_id(), who, kind, data), **fields)


async def a_saved_record_comes_back(store: StateStore) -> None:
    """What was saved is loaded back by its slot and by its event id, field for field."""
    record = a_record(b"\x00\xff", version=7, updated_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    await store.save(record)
    expect_equal(await store.load(ME, "kind"), record, "load")
    expect_equal(await store.load_by_event_id(record.event_id, who=ME), record, "load by event id")


async def a_record_without_a_time_gets_one(store: StateStore) -> None:
    """A missing updated_at becomes the time of saving, in UTC."""
    await store.save(a_record())
    updated_at = (await store.load(ME, "kind")).updated_at
    expect(updated_at is not None, "updated_at is filled in")
    expect(updated_at is not None and updated_at.tzinfo is not None, "updated_at has a time zone")


async def empty_data_is_a_record(store: StateStore) -> None:
    """A record without bytes is kept, and is not the same as no record."""
    await store.save(a_record(b""))
    expect_equal((await store.load(ME, "kind")).data, b"", "data")


async def the_last_write_wins(store: StateStore) -> None:
    """A slot holds the record that was saved last, whatever its version."""
    await store.save(a_record(b"one", version=9))
    await store.save(a_record(b"two", version=1))
    expect_equal((await store.load(ME, "kind")).data, b"two", "data after the second save")


async def a_replaced_event_id_is_forgotten(store: StateStore) -> None:
    """The event id of a replaced record finds nothing any more and may be used again."""
    first = a_record(b"one")
    await store.save(first)
    await store.save(a_record(b"two"))
    await expect_raises(RecordNotFoundError, store.load_by_event_id(first.event_id, who=ME), "the replaced event id")
    await store.save(msgspec.structs.replace(first, data=b"three"))
    expect_equal((await store.load(ME, "kind")).data, b"three", "data saved under the freed event id")


async def saving_the_same_again_does_nothing(store: StateStore) -> None:
    """The same event id, slot, data and version again is silently accepted and changes nothing, not even the time."""
    record = a_record(updated_at=datetime(2026, 1, 1, tzinfo=UTC))
    await store.save(record)
    await store.save(msgspec.structs.replace(record, updated_at=datetime(2027, 1, 1, tzinfo=UTC)))
    expect_equal(await store.load(ME, "kind"), record, "the record after a repeated save")


async def an_event_id_stands_for_one_record(store: StateStore) -> None:
    """The same event id with other data, version, kind or run is a conflict that changes nothing."""
    record = a_record()
    await store.save(record)
    changed: tuple[dict[str, object], ...] = (
        {"data": b"other"},
        {"version": record.version + 1},
        {"kind": "other"},
        {"identity": Quadruple("tenant", "user", "session", "other")},
    )
    for change in changed:
        attempt = msgspec.structs.replace(record, **change)
        await expect_raises(EventIdConflictError, store.save(attempt), f"reuse with another {next(iter(change))}")
    expect_equal((await store.load(ME, "kind")).data, record.data, "data after refused saves")
    await expect_raises(RecordNotFoundError, store.load(ME, "other"), "the slot of a refused save")


async def runs_and_kinds_are_slots_of_their_own(store: StateStore) -> None:
    """Each run and each kind has its own record; the blank run is one of them."""
    slots = [(Quadruple("tenant", "user", "session", run), kind) for run in ("", "a", "b") for kind in ("k", "l")]
    for who, kind in slots:
        await store.save(a_record(f"{who.run_id}/{kind}".encode(), who, kind))
    for who, kind in slots:
        expect_equal((await store.load(who, kind)).data, f"{who.run_id}/{kind}".encode(), f"slot {who.run_id}/{kind}")


async def owners_never_meet(store: StateStore) -> None:
    """Another tenant, user or session neither loads, finds nor deletes a record, and gets only 'not found'."""
    record = a_record()
    await store.save(record)
    for other in OTHERS:
        await expect_raises(RecordNotFoundError, store.load(other, "kind"), "a foreign load")
        await expect_raises(
            RecordNotFoundError, store.load_by_event_id(record.event_id, who=other), "a foreign event id"
        )
        await store.delete(other, "kind")
    expect_equal((await store.load(ME, "kind")).data, record.data, "the record after foreign deletes")


async def an_event_id_says_nothing_about_other_owners(store: StateStore) -> None:
    """The same event id and slot names under another owner are a record of its own: no conflict reveals them."""
    record = a_record(b"mine")
    await store.save(record)
    for other in OTHERS:
        await store.save(msgspec.structs.replace(record, identity=other, data=b"theirs"))
    expect_equal((await store.load_by_event_id(record.event_id, who=ME)).data, b"mine", "my record")
    for other in OTHERS:
        expect_equal((await store.load_by_event_id(record.event_id, who=other)).data, b"theirs", "their record")


async def joined_names_do_not_meet(store: StateStore) -> None:
    """Identities whose parts look alike when they are strung together are still different."""
    alike = (
        Quadruple("a", "b/c", "d", "e"),
        Quadruple("a/b", "c", "d", "e"),
        Quadruple("a", "b", "c/d", "e"),
        Quadruple("A", "b", "c/d", "e"),
        Quadruple("a ", "b", "c/d", "e"),
        Quadruple("a", "b", "c/d", ""),
        Quadruple("é", "b", "c", "e"),
        Quadruple("e\u0301", "b", "c", "e"),
    )
    for index, who in enumerate(alike):
        await store.save(a_record(str(index).encode(), who))
    for index, who in enumerate(alike):
        expect_equal((await store.load(who, "kind")).data, str(index).encode(), f"the record of {who}")


async def white_space_is_a_value(store: StateStore) -> None:
    """Only the empty string is missing: a blank tenant is stored like any other."""
    who = Quadruple(" ", "\t", "\n", " ")
    await store.save(a_record(who=who))
    expect_equal((await store.load(who, "kind")).identity, who, "the blank owner")


def calls(store: StateStore, who: Quadruple, event_id: str, kind: str) -> Iterator[tuple[str, Awaitable[object]]]:
    """Each call of the port once, by name."""
    yield "save", store.save(StateRecord(event_id, who, kind))
    yield "load", store.load(who, kind)
    yield "load_by_event_id", store.load_by_event_id(event_id, who=who)
    yield "delete", store.delete(who, kind)


async def an_incomplete_identity_is_refused(store: StateStore) -> None:
    """Every call needs tenant, user and session, and says so before it looks at event id and kind."""
    for who in INCOMPLETE:
        for name, call in calls(store, who, "", ""):
            await expect_raises(IdentityRequiredError, call, f"{name} for {who}")


async def an_empty_event_id_or_kind_is_refused(store: StateStore) -> None:
    """Event id and kind must not be empty."""
    await expect_raises(InvalidRecordError, store.save(StateRecord("", ME, "kind")), "save without an event id")
    await expect_raises(InvalidRecordError, store.save(StateRecord(new_id(), ME, "")), "save without a kind")
    await expect_raises(InvalidRecordError, store.load(ME, ""), "load without a kind")
    await expect_raises(InvalidRecordError, store.delete(ME, ""), "delete without a kind")
    await expect_raises(InvalidRecordError, store.load_by_event_id("", who=ME), "load without an event id")


async def the_ambient_identity_is_the_fallback(store: StateStore) -> None:
    """A lookup by event id without an identity uses the ambient one, and is refused when there is none."""
    record = a_record()
    await store.save(record)
    await expect_raises(IdentityRequiredError, store.load_by_event_id(record.event_id), "a lookup by nobody")
    with bound(ME):
        expect_equal((await store.load_by_event_id(record.event_id)).data, record.data, "the ambient lookup")
    with bound(OTHERS[0]):
        await expect_raises(RecordNotFoundError, store.load_by_event_id(record.event_id), "a foreign ambient lookup")


async def a_missing_record_is_not_found(store: StateStore) -> None:
    """An empty slot and an unknown event id are not found."""
    await expect_raises(RecordNotFoundError, store.load(ME, "kind"), "an empty slot")
    await expect_raises(RecordNotFoundError, store.load_by_event_id(new_id(), who=ME), "an unknown event id")


async def deleting_empties_the_slot(store: StateStore) -> None:
    """After a delete neither slot nor event id finds anything; deleting again succeeds; saving again works."""
    record = a_record()
    await store.save(record)
    await store.delete(ME, "kind")
    await store.delete(ME, "kind")
    await expect_raises(RecordNotFoundError, store.load(ME, "kind"), "a deleted slot")
    await expect_raises(RecordNotFoundError, store.load_by_event_id(record.event_id, who=ME), "a deleted event id")
    await store.save(record)
    expect_equal((await store.load(ME, "kind")).data, record.data, "the record saved again")


async def a_closed_store_says_so(store: StateStore) -> None:
    """After close every call is refused as closed, before anything else is checked; closing twice is fine."""
    await store.save(a_record())
    await store.aclose()
    await store.aclose()
    for who in (ME, INCOMPLETE[0]):
        for name, call in calls(store, who, "", ""):
            await expect_raises(StoreClosedError, call, f"{name} after close")


async def buffers_are_copied(store: StateStore) -> None:
    """Changing a buffer after the save does not change the record, which is plain bytes."""
    buffer = bytearray(b"before")
    await store.save(a_record(buffer))  # type: ignore[arg-type] # a caller may do so all the same
    buffer[:] = b"after!"
    data = (await store.load(ME, "kind")).data
    expect_equal((type(data), data), (bytes, b"before"), "the stored data")


async def a_hundred_writers_of_their_own_slots(store: StateStore) -> None:
    """A hundred concurrent callers with slots of their own each read back what they wrote."""

    async def one(index: int) -> bytes:
        who = Quadruple(f"tenant {index % 10}", f"user {index % 7}", f"session {index}", "run")
        for turn in range(3):
            await store.save(a_record(f"{index}.{turn}".encode(), who))
            await asyncio.sleep(0)
        return (await store.load(who, "kind")).data

    got = await asyncio.gather(*(one(index) for index in range(CALLERS)))
    expect_equal(got, [f"{index}.2".encode() for index in range(CALLERS)], "what each caller reads back")


async def a_hundred_writers_of_one_slot(store: StateStore) -> None:
    """A hundred concurrent writers of one slot leave one of their records, whole, and one event id."""
    records = [a_record(f"{index}".encode(), version=index) for index in range(CALLERS)]
    await asyncio.gather(*(store.save(record) for record in records))
    kept = await store.load(ME, "kind")
    expect((kept.event_id, kept.version, kept.data) in {(r.event_id, r.version, r.data) for r in records}, "one record")
    for record in records:
        if record.event_id != kept.event_id:
            await expect_raises(
                RecordNotFoundError, store.load_by_event_id(record.event_id, who=ME), "a replaced event id"
            )


async def a_swap_needs_what_was_read(store: StateStore) -> None:
    """It changes the slot only where that holds what it names; an empty slot is named by nothing."""
    if not isinstance(store, SwappingStateStore):
        return
    first, second, third = a_record(b"1"), a_record(b"2"), a_record(b"3")
    expect_equal(await store.swap(first, after="nobody"), False, "a swap of an empty slot that names a record")
    expect_equal(await store.swap(first, after=""), True, "a swap of an empty slot")
    expect_equal(await store.swap(second, after=""), False, "a swap of a full slot that names nothing")
    expect_equal((await store.load(ME, "kind")).data, b"1", "what stayed")
    expect_equal(await store.swap(second, after=first.event_id), True, "a swap that names what is there")
    expect_equal(await store.swap(third, after=first.event_id), False, "a swap that names what was there")
    expect_equal((await store.load(ME, "kind")).event_id, second.event_id, "what is there now")
    await expect_raises(RecordNotFoundError, store.load_by_event_id(third.event_id, who=ME), "what was not kept")
    await expect_raises(InvalidRecordError, store.swap(a_record(event_id=""), after=""), "a swap without an event id")


async def of_a_hundred_swaps_none_is_lost(store: StateStore) -> None:
    """Callers that read, add to it and swap, and retry where another was faster, lose no change."""
    if not isinstance(store, SwappingStateStore):
        return

    async def add(index: int) -> None:
        for _ in range(CALLERS):  # a swap fails only where another one was faster, which is then done
            try:
                before = await store.load(ME, "kind")
                after, data = before.event_id, before.data
            except RecordNotFoundError:
                after, data = "", b""
            if await store.swap(a_record(data + bytes([index])), after=after):
                return

    await asyncio.gather(*(add(index) for index in range(CALLERS)))
    expect_equal(sorted((await store.load(ME, "kind")).data), list(range(CALLERS)), "the marks")


async def a_hundred_times_the_same_save(store: StateStore) -> None:
    """A hundred concurrent saves of one record all succeed and store it once."""
    record = a_record()
    await asyncio.gather(*(store.save(record) for _ in range(CALLERS)))
    expect_equal((await store.load(ME, "kind")).data, record.data, "the record")


SCENARIOS: tuple[Scenario, ...] = (
    a_saved_record_comes_back,
    a_record_without_a_time_gets_one,
    empty_data_is_a_record,
    the_last_write_wins,
    a_replaced_event_id_is_forgotten,
    saving_the_same_again_does_nothing,
    an_event_id_stands_for_one_record,
    runs_and_kinds_are_slots_of_their_own,
    owners_never_meet,
    an_event_id_says_nothing_about_other_owners,
    joined_names_do_not_meet,
    white_space_is_a_value,
    an_incomplete_identity_is_refused,
    an_empty_event_id_or_kind_is_refused,
    the_ambient_identity_is_the_fallback,
    a_missing_record_is_not_found,
    deleting_empties_the_slot,
    a_closed_store_says_so,
    buffers_are_copied,
    a_hundred_writers_of_their_own_slots,
    a_hundred_writers_of_one_slot,
    a_swap_needs_what_was_read,
    of_a_hundred_swaps_none_is_lost,
    a_hundred_times_the_same_save,
)


async def check(scenario: Scenario, open_store: OpenStore) -> None:
    """Run one scenario against a fresh store.

    Raises:
        ConformanceError: the store breaks a promise.
    """
    await check_scenario(scenario, open_store)


async def run_conformance(open_store: OpenStore) -> None:
    """Run every scenario, each against a fresh, empty store.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_store)
