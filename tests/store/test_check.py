"""The check of a store finds nothing wrong in a healthy one, and whatever does not agree in one that is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from harborage.store import (
    Change,
    ChangeGroup,
    Commit,
    GroupStatus,
    Lease,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    PauseStatus,
    SettlePause,
    Status,
)
from harborage.store.check import Shown, check, disagreements, read
from harborage.store.errors import EntryDamagedError
from harborage.store.memory import MemoryStore
from harborage.testing.conformance.store_bench import ME, finish, send, start, step
from tests.kit.tables import each_row


def consumed(entry: bytes) -> list[str]:
    """The event ids that an entry of these tests answers."""
    return entry.decode().split()[1:] if entry.startswith(b"answers ") else []


async def lived_in() -> MemoryStore:
    """A store with runs in every state, a family, a group, pauses, controls and events."""
    store = MemoryStore()
    await store.join("one")
    events = tuple(NewEvent(type="a", data=b"{}", run_id="parent") for _ in range(3))
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),), who=ME, events=events))
    parent = await start(store, "parent", worker="one", key="k")
    ended = await start(store, "ended", worker="one", parent="parent", root="parent", group="g")
    await start(store, "pending", parent="parent", root="parent", group="g")
    await finish(store, ended)
    await send(store, "parent", "first")
    await send(store, "parent", "second")
    (first, _) = await store.controls("parent")
    await store.commit(step(parent, 1, b"answers first", consumed=(first.number,), who=ME, events=events))
    for run_id, token in (("asks", "open"), ("asked", "settled")):
        pause = NewPause(token=token, run_id=run_id, who=ME, reason="await_input")
        lease = await start(store, run_id, worker="one")
        park = Change(status=Status.PAUSED, release=True)
        await store.commit(step(lease, 1, b"parks", opens=(pause,), change=park))
    await store.commit(Commit(settles=(SettlePause(token="settled", status=PauseStatus.ANSWERED),)))
    for run_id, change in (
        ("until", Change(status=Status.PAUSED, release=True, wake_at=1 << 60)),
        ("joins", Change(status=Status.PAUSED, release=True, awaits="g")),
        ("awaits", Change(status=Status.PAUSED, release=True, awaits="parent")),
    ):
        await store.commit(step(await start(store, run_id, worker="one"), 1, b"parks", change=change))
    await start(store, "reads later", worker="one")
    await send(store, "reads later", "third")
    (third,) = await store.controls("reads later")
    wait = Change(status=Status.PAUSED, release=True, awaits="parent", seen_control=third.number)
    await store.commit(step(Lease("reads later", "one", 1), 1, b"parks", change=wait))
    seal = ChangeGroup(group_id="g", who=ME, expected=(GroupStatus.OPEN,), status=GroupStatus.SEALED)
    task = NewRun(run_id="task", who=ME, parent="parent", root="parent")
    await store.commit(Commit(groups=(seal,), starts=(task,)))
    await send(store, "task", "unread")
    return store


async def test_a_healthy_store_agrees() -> None:
    """Runs that work, wait and have ended, with all that belongs to them, agree."""
    assert await disagreements(await lived_in(), consumed=consumed) == []


Break = Callable[[Shown], Shown]


def run(run_id: str, **changed: object) -> Break:
    """The row of a run is another."""
    return lambda shown: replace(
        shown, runs=[replace(row, **changed) if row.run_id == run_id else row for row in shown.runs]
    )


def journal(run_id: str, *entries: bytes) -> Break:
    """The journal of a run is another."""
    return lambda shown: replace(shown, journals={**shown.journals, run_id: entries})


def damaged(shown: Shown) -> Shown:
    return replace(shown, journals={**shown.journals, "ended": EntryDamagedError("ended", 2)})


def without_control(shown: Shown) -> Shown:
    return replace(shown, controls={**shown.controls, "parent": ()})


def pause(token: str, **changed: object) -> Break:
    """A pause is another."""
    return lambda shown: replace(
        shown, pauses=[replace(one, **changed) if one.token == token else one for one in shown.pauses]
    )


def group(**changed: object) -> Break:
    """The group is another."""
    return lambda shown: replace(shown, groups=[replace(one, **changed) for one in shown.groups])


def session(**changed: object) -> Break:
    """The session is another."""
    return lambda shown: replace(shown, sessions=[replace(one, **changed) for one in shown.sessions])


@each_row(
    "broken, kind",
    [
        (run("parent", position=1), "journal_length"),
        (journal("ended", b"started"), "journal_length"),
        (damaged, "journal_damaged"),
        (run("parent", unread=0), "unread_count"),
        (without_control, "unread_count"),
        (journal("parent", b"answers first", b"answers first"), "consumed_twice"),
        (journal("parent", b"answers first", b"answers second"), "consumed_unread"),
        (run("ended", owner="one"), "ended_but_waits"),
        (run("ended", wake_at=5), "ended_but_waits"),
        (run("ended", awaits="parent"), "ended_but_waits"),
        (run("ended", is_woken=True), "ended_but_waits"),
        (run("asks", status=Status.FAILED), "pause_of_ended"),
        (run("parent", status=Status.COMPLETE), "control_of_ended"),
        (run("parent", fence=0), "owner_without_fence"),
        (run("parent", owner="", is_woken=False), "sleeps_with_mail"),
        (run("reads later", seen_control=0), "sleeps_with_mail"),
        (run("until", wake_at=None), "waits_for_nothing"),
        (run("asked", is_woken=False), "waits_for_nothing"),
        (run("pending", is_woken=False), "waits_for_nothing"),
        (run("parent", owner="", is_woken=True, status=Status.COMPLETE), "waits_for_nothing"),
        (group(status=GroupStatus.COMPLETED), "waits_for_nothing"),
        (run("task", is_woken=True), "claimed_without_entries"),
        (run("task", owner="one", fence=1), "claimed_without_entries"),
        (run("parent", children=1), "children_count"),
        (run("parent", tree=1), "tree_count"),
        (run("ended", key="k"), "key_twice"),
        (pause("open", settled_at=1), "pause_settled"),
        (pause("settled", settled_at=None), "pause_settled"),
        (pause("open", run_id="nobody"), "pause_of_nobody"),
        (group(open_members=2), "group_live"),
        (group(members=1), "group_members"),
        (lambda shown: replace(shown, groups=[]), "group_missing"),
        (lambda shown: replace(shown, sessions=[]), "session_missing"),
        (lambda shown: replace(shown, events=[*shown.events[:2], *shown.events[3:]]), "event_gap"),
        (lambda shown: replace(shown, events=shown.events[:-1]), "event_count"),
        (session(events=7), "event_count"),
        (lambda shown: replace(shown, events=[*shown.events, shown.events[-1]]), "event_twice"),
        (
            lambda shown: replace(shown, events=[replace(shown.events[0], sequence=4097), *shown.events[1:]]),
            "event_step",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_does_not_agree_is_found(broken: Break, kind: str) -> None:
    """Each thing that is kept twice is compared, and what differs is named."""
    shown = broken(await read(await lived_in()))
    found = check(shown, consumed=consumed)
    assert kind in {one.kind for one in found}, found


async def test_events_that_are_gone_from_the_beginning_are_found() -> None:
    """No event is ever deleted, so the first places of a session are as good as any, and so is the lack of all."""
    shown = await read(await lived_in())
    (first,) = check(replace(shown, events=shown.events[2:]))
    assert (first.kind, first.says) == ("event_gap", "events 1 to 2 are gone")
    (every,) = check(replace(shown, events=[]))
    assert (every.kind, every.says) == ("event_count", "its row counts 6 events, the last one is 0")


async def test_what_changes_between_two_looks_is_no_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that others write to while it is read is looked at twice, and only what stays is reported."""
    store = await lived_in()
    healthy = await read(store)
    looks = [run("parent", position=1)(healthy), run("ended", position=5)(healthy)]

    async def look(_: object) -> Shown:
        return looks.pop(0)

    monkeypatch.setattr("harborage.store.check.read", look)
    assert await disagreements(store) == []
    assert looks == []
