"""A store whose rows are damaged from outside, one fact at a time, and what a check of everything says of each."""

from __future__ import annotations

import hashlib
from typing import Final

from harborage.identity import Identity
from harborage.store import (
    Change,
    Commit,
    NewEvent,
    NewGroup,
    NewPause,
    PauseStatus,
    SettlePause,
    Status,
    Store,
)
from harborage.store.examining import Judges
from harborage.store.suspects import check_everything
from harborage.testing.conformance.store_bench import ME, finish, send, start, step

ELSEWHERE: Final = Identity(ME.tenant_id, ME.user_id, "elsewhere")
BODY: Final = b"a large value" * 100
DIGEST: Final = hashlib.sha256(BODY).hexdigest()

JUDGES: Final = Judges(
    entry=lambda run_id, index, data: f"run {run_id}, entry {index}: no words" if data == b"{}" else "",
    bodies=lambda data: [data.decode().removeprefix("body ")] if data.startswith(b"body ") else [],
    run=lambda data: "named-by-its-first-entry" if data == b"started" else "",
    event=lambda at, data: "no event" if data == b"no" else "",
    control=lambda row: f"control {row.number} of run {row.run_id}: no control" if row.data == b"no" else "",
    pause=lambda row: f"pause {row.token}: no pause" if row.data == b"no" else "",
    session=lambda row: f"session {row.who.session_id}: no session" if row.context == b"no" else "",
)

DAMAGE: Final[dict[str, tuple[str, str]]] = {
    "UPDATE harborage_runs SET position = 9 WHERE run_id = 'ended'": ("journal_damaged", "ended"),
    "DELETE FROM harborage_journal WHERE run = 2": ("journal_damaged", "ended"),
    "DELETE FROM harborage_journal": ("journal_damaged", "parent ended pending asks until mailed"),
    "UPDATE harborage_journal SET position = 7 WHERE run = 2 AND position = 2": ("journal_damaged", "ended"),
    "UPDATE harborage_journal SET crc = 1 WHERE run = 2 AND position = 2": ("entry_damaged", "ended"),
    "UPDATE harborage_journal SET data = {no}, crc = 2745614147 WHERE run = 2 AND position = 1": (
        "entry_damaged",
        "ended",
    ),
    "DELETE FROM harborage_runs WHERE run_id = 'ended'": ("run_missing", "named-by-its-first-entry"),
    "DELETE FROM harborage_controls": ("unread_count", "parent mailed"),
    "UPDATE harborage_runs SET seen_control = seen_control - 1 WHERE run_id = 'mailed'": ("sleeps_with_mail", "mailed"),
    "UPDATE harborage_runs SET unread = 5 WHERE run_id = 'parent'": ("unread_count", "parent"),
    "UPDATE harborage_controls SET data = {bad}": ("control_damaged", "parent mailed"),
    "DELETE FROM harborage_run_bodies": ("body_gone", "parent"),
    "UPDATE harborage_bodies SET data = {bad}": ("body_damaged", "parent"),
    "UPDATE harborage_runs SET children = 1 WHERE run_id = 'parent'": ("children_count", "parent"),
    "UPDATE harborage_runs SET tree = 1 WHERE run_id = 'parent'": ("tree_count", "parent"),
    "UPDATE harborage_runs SET owner = 'one' WHERE run_id = 'ended'": ("ended_but_waits", "ended"),
    "UPDATE harborage_runs SET fence = 0 WHERE run_id = 'parent'": ("owner_without_fence", "parent"),
    "UPDATE harborage_runs SET wake_at = NULL WHERE run_id = 'until'": ("waits_for_nothing", "until"),
    "UPDATE harborage_runs SET status = 4, woken = FALSE WHERE run_id = 'asks'": ("pause_of_ended", "asks"),
    "UPDATE harborage_pauses SET run = 'nobody' WHERE token = 'open'": ("pause_of_nobody", "open"),
    "UPDATE harborage_pauses SET settled_at = NULL WHERE token = 'settled'": ("pause_settled", "settled"),
    "UPDATE harborage_pauses SET data = {bad} WHERE token = 'settled'": ("pause_damaged", "settled"),
    "UPDATE harborage_groups SET open_members = 5": ("group_live", "g"),
    "UPDATE harborage_groups SET members = 1, open_members = 1": ("group_members", "g"),
    "DELETE FROM harborage_groups": ("group_missing", "g"),
    "DELETE FROM harborage_events": ("event_count", "session elsewhere"),
    "DELETE FROM harborage_events WHERE place = 2": ("event_gap", "session"),
    "UPDATE harborage_sessions SET events = 9 WHERE session = 'session'": ("event_count", "session"),
    "UPDATE harborage_events SET place = 5 WHERE place = 2": ("event_gap", "session"),
    "UPDATE harborage_events SET crc = 1 WHERE place = 2": ("event_damaged", "session"),
    "UPDATE harborage_events SET data = {bad}, crc = 1739204639 WHERE place = 2": ("event_damaged", "session"),
    "UPDATE harborage_events SET sequence = sequence + 1 WHERE place = 3": ("event_damaged", "session"),
    "UPDATE harborage_sessions SET context = {bad} WHERE session = 'session'": ("session_damaged", "session"),
}
"""What is changed, and the kind and the subjects of what is found; `{bad}` are the bytes `no`, `{no}` are `{{}}`."""


async def fill(store: Store) -> None:
    """Keep runs in several states, a family, a group, pauses, controls, a body and the events of two sessions."""
    await store.join("one")
    events = tuple(NewEvent(type="a", data=b"{}", run_id="parent") for _ in range(3))
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),), who=ME, events=events))
    await store.commit(Commit(who=ELSEWHERE, events=(NewEvent(type="a", data=b"{}"),)))
    parent = await start(store, "parent", worker="one")
    ended = await start(store, "ended", worker="one", parent="parent", root="parent", group="g")
    await start(store, "pending", parent="parent", root="parent", group="g")
    await finish(store, ended)
    await send(store, "parent", "first")
    await store.commit(step(parent, 1, f"body {DIGEST}".encode(), bodies={DIGEST: BODY}))
    pauses = [NewPause(token=token, run_id="asks", who=ME, reason="await_input") for token in ("open", "settled")]
    asks = await start(store, "asks", worker="one")
    await store.commit(step(asks, 1, b"parks", opens=tuple(pauses), change=Change(status=Status.PAUSED, release=True)))
    await store.commit(Commit(settles=(SettlePause(token="settled", status=PauseStatus.ANSWERED),)))
    until = await start(store, "until", worker="one")
    await store.commit(step(until, 1, b"parks", change=Change(status=Status.PAUSED, release=True, wake_at=1 << 50)))
    mailed = await start(store, "mailed", worker="one")
    await send(store, "mailed", "seen")
    (seen,) = await store.controls("mailed")
    wait = Change(status=Status.PAUSED, release=True, wake_at=1 << 50, seen_control=seen.number)
    await store.commit(step(mailed, 1, b"parks", change=wait))


async def found(store: Store) -> dict[str, set[str]]:
    """What a check of everything finds: subjects by kind."""
    kinds: dict[str, set[str]] = {}
    async for one in check_everything(store, JUDGES):
        kinds.setdefault(one.kind, set()).add(one.subject)
    return kinds
