"""The conversations that are kept: the last one with an agent, or the one of a name, and what was said in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harborage import codec
from harborage.app.project import Origin
from harborage.cli.status import ending_of
from harborage.cli.storage import WrongUseError, database_file, open_kept_storage, release_expired_leases
from harborage.cli.text import masked, printable
from harborage.planner import Finish
from harborage.runtime.durable.journal import Ended, decode_entries
from harborage.runtime.history import all_runs, build_history, read_run
from harborage.runtime.messages import Message, earlier_messages, messages_of
from harborage.runtime.starting import MESSAGE
from harborage.store import RunQuery, RunRow

if TYPE_CHECKING:
    from harborage.store import Store


class Exchange(msgspec.Struct, frozen=True):
    """A message and its answer, or why there is none."""

    message: str
    answer: str


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation: its session, what was said, and the run that has yet to answer, None for none.

    `before` is what was said in another session before it, when its last message was undone there.
    """

    session: str
    said: tuple[Exchange, ...] = ()
    live: RunRow | None = None
    before: tuple[Message, ...] = ()


async def find_talk(url: str, user: str, target: str, session: str) -> Talk | None:
    """Return the conversation of `user` in `session`; with "" the last one with the agent `target`, None for none.

    A session of that name in which nothing was said is a new conversation.

    Raises:
        HarborageError: the storage cannot be read.
    """
    path = database_file(url)
    if path is not None and not path.exists():
        return Talk(session=session) if session else None
    async with open_kept_storage(url) as storage:
        await release_expired_leases(storage)
        rows = await all_runs(storage.store, _query(user, session))
        messages = [row for row in rows if row.description == MESSAGE]
        if not session:
            mine = [row for row in messages if _place(Origin.of(row.agent).target) == _place(target)]
            if not mine:
                return None
            session = mine[-1].who.session_id
            messages = [row for row in mine if row.who.session_id == session]
        said = [await _exchange(storage.store, row) for row in messages if row.status.is_final]
        before = earlier_messages(await read_run(storage.store, messages[0].run_id)) if messages else ()
    live = next((row for row in messages if not row.status.is_final), None)
    return Talk(session=session, said=tuple(said), live=live, before=before)


async def said_before_last(url: str, user: str, session: str) -> tuple[Message, ...]:
    """Return the messages of a conversation but for its last exchange.

    Raises:
        HarborageError: the storage cannot be read.
    """
    async with open_kept_storage(url) as storage:
        rows = [row for row in await all_runs(storage.store, _query(user, session)) if row.description == MESSAGE]
        found: list[Message] = []
        for number, row in enumerate(row for row in rows[:-1] if row.status.is_final):
            record = await read_run(storage.store, row.run_id)
            history = build_history(record)
            found += [*([] if number else earlier_messages(record)), *messages_of(history, history.finish)]
        if not found and rows:
            found += earlier_messages(await read_run(storage.store, rows[0].run_id))
    return tuple(found)


async def last_messages(url: str, user: str, target: str) -> tuple[Message, ...]:
    """Return what was said in the last run of `user` with the agent `target` that has ended, for one that goes on.

    Raises:
        WrongUseError: there is none.
        HarborageError: the storage cannot be read.
    """
    path = database_file(url)
    if path is None or path.exists():
        async with open_kept_storage(url) as storage:
            await release_expired_leases(storage)
            rows = await all_runs(storage.store, _query(user, ""))
            mine = [
                row
                for row in rows
                if not row.parent and row.status.is_final and _place(Origin.of(row.agent).target) == _place(target)
            ]
            if mine:
                record = await read_run(storage.store, max(mine, key=lambda row: row.number).run_id)
                history = build_history(record)
                return (*earlier_messages(record), *messages_of(history, history.finish))
    name = target or "the standard assistant"
    raise WrongUseError(f"--continue: no run of {name} has ended here; leave --continue out to begin one")


def _query(user: str, session: str) -> RunQuery:
    """The runs of a user, those of one session if it is named."""
    mine = RunQuery(tenant="local", user=user)
    return msgspec.structs.replace(mine, session=session) if session else mine


def _place(target: str) -> str:
    return target.removesuffix(":agent")


async def _exchange(store: Store, row: RunRow) -> Exchange:
    entries = decode_entries(await read_run(store, row.run_id), row.run_id)
    end = next((one for one in reversed(entries) if isinstance(one, Ended)), None)
    if end is None or end.finish is None:
        answer = "failed" if end is None else f"failed: {masked(end.message)}"
    else:
        ending = ending_of(codec.decode(bytes(end.finish), Finish))
        answer = ending.answer or ending.why
    return Exchange(row.about, printable(str(masked(answer))))


def without_last(said: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages of a conversation without the last one of its user, and what came after that."""
    last = next((at for at in range(len(said) - 1, -1, -1) if said[at].role == "user"), 0)
    return said[:last]


async def spent_in(url: str, user: str, session: str) -> tuple[int, int, int]:
    """Return how many runs a conversation has, their tokens, and their cost in millionths of a US dollar.

    Raises:
        HarborageError: the storage cannot be read.
    """
    path = database_file(url)
    if path is not None and not path.exists():
        return 0, 0, 0
    async with open_kept_storage(url) as storage:
        rows = await all_runs(storage.store, _query(user, session))
    return len(rows), sum(row.tokens for row in rows), sum(row.cost for row in rows)
