"""What principals do where the answer shows no value: the operation itself looks whether another's data was touched.

Each of them names what it changes, or compares what another has before and after, or compares the answer with what the
caller itself keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from harborage.artifacts import ArtifactScope
from harborage.ids import new_id
from harborage.memory import SessionMemory, Turn
from harborage.sessions import SessionAlreadyOpenError, SessionClosedError, SessionMismatchError
from harborage.state import RecordNotFoundError
from harborage.tasks import SpawnRequest, TaskKind
from tests.kit.isolation.operations import KINDS, OPERATIONS, Operation

if TYPE_CHECKING:
    from harborage.identity import Identity
    from tests.kit.isolation.tenants import Tenants

_SPARE = 12


class CrossedError(AssertionError):
    """A call did something to another principal, or took its caller for another."""


def check(is_true: bool, says: str) -> None:
    """Accept what must be true.

    Raises:
        CrossedError: it is not.
    """
    if not is_true:
        raise CrossedError(says)


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _memory(tenants: Tenants) -> SessionMemory:
    memory = tenants.runtime.memory
    assert memory is not None
    return memory


async def _add_turn(tenants: Tenants, me: Identity) -> None:
    value = tenants.value(me)
    await _memory(tenants).add_turn(me, Turn(user_message=value, assistant_response="." * tenants.luck.randrange(200)))
    kept = await _memory(tenants).context(me)
    check(bool(kept.recent_turns) and kept.recent_turns[-1].user_message == value, "the turn went to another session")


async def _context(tenants: Tenants, me: Identity) -> Any:
    return await _memory(tenants).context(me)


async def _snapshot(tenants: Tenants, me: Identity) -> Any:
    return await _memory(tenants).snapshot(me)


async def _restore(tenants: Tenants, me: Identity) -> None:
    memory, other = _memory(tenants), _other(tenants, me)
    kept = await memory.snapshot(me)
    theirs = await memory.snapshot(other)
    await memory.flush(me)
    await memory.restore(me, kept)
    check(await memory.snapshot(me) == kept, "the snapshot went to another session")
    check(await memory.snapshot(other) == theirs, f"the memory of {other} was replaced")


async def _estimate(tenants: Tenants, me: Identity) -> None:
    memory = _memory(tenants)
    check(await memory.estimate_tokens(me) == (await memory.context(me)).tokens, "the estimate is another's")


async def _health(tenants: Tenants, me: Identity) -> Any:
    return await _memory(tenants).health(me)


async def _flush(tenants: Tenants, me: Identity) -> None:
    if tenants.luck.random() < 0.3:
        memory, other = _memory(tenants), _other(tenants, me)
        theirs = await memory.snapshot(other)
        await memory.flush(me)
        check(not (await memory.context(me)).recent_turns, "the caller's memory is still there")
        check(await memory.snapshot(other) == theirs, f"the memory of {other} is gone")


def _other(tenants: Tenants, me: Identity) -> Identity:
    """Another principal, often with the same names in another tenant."""
    return tenants.luck.choice([who for who in tenants.principals if who != me])


# ── state and artifacts ─────────────────────────────────────────────────────────────────────────────────────────────


async def _delete(tenants: Tenants, me: Identity) -> None:
    if tenants.storage is None or tenants.luck.random() < 0.7:
        return
    state, run, kind = tenants.storage.state, tenants.luck.choice(("", "r")), tenants.luck.choice(KINDS)
    await state.delete(me.with_run(run), kind)
    try:
        await state.load(me.with_run(run), kind)
    except RecordNotFoundError:
        return
    raise CrossedError("the caller's record is still there")


async def _exists(tenants: Tenants, me: Identity) -> Any:
    scope = ArtifactScope.of(me, tenants.luck.choice(("", "t")))
    return await tenants.runtime.artifacts.exists(scope, tenants.any_id("artifact"))


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _wait_ended(tenants: Tenants, me: Identity) -> Any:
    await _background(tenants, me)
    return await tenants.runtime.tasks.wait_ended(tenants.any_id("background"), who=me)


async def _background(tenants: Tenants, me: Identity) -> None:
    """Let the caller have a background task that has ended, now and then a new one."""
    if not _is_full(tenants, "background"):
        request = SpawnRequest(identity=me.with_run(""), kind=TaskKind.BACKGROUND, query=tenants.value(me))
        task = (await tenants.runtime.tasks.spawn(request)).id
        tenants.note("background", me, task)
        await tenants.runtime.tasks.wait_ended(task, who=me)


def _is_full(tenants: Tenants, kind: str) -> bool:
    return len(tenants.known.get(kind, ())) >= len(tenants.principals) and tenants.luck.random() < 0.9


async def _acknowledge(tenants: Tenants, me: Identity) -> Any:
    await _background(tenants, me)
    return await tenants.runtime.tasks.acknowledge_background(me, [tenants.any_id("background")])


async def _cancel_group(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.tasks.cancel_group(tenants.any_id("group"), "why", who=me)


async def _apply_group(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.tasks.apply_group(tenants.any_id("group"), "seal", who=me)


async def _watch_group(tenants: Tenants, me: Identity) -> Any:
    watch = await tenants.runtime.tasks.watch_group(me, tenants.any_id("group"))
    watch.cancel()
    return watch


async def _create_patch(tenants: Tenants, me: Identity) -> Any:
    patch = await tenants.runtime.tasks.create_pending_patch(me, new_id())
    tenants.note("patch", me, patch.id)
    return patch


async def _apply_patch(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.tasks.apply_patch(me, tenants.any_id("patch"), "accept")


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _touch(tenants: Tenants, me: Identity) -> Any:
    session = await tenants.runtime.sessions.touch(me)
    check(session.identity == me, f"{session.identity} was touched")
    return session


async def _inspect(tenants: Tenants, me: Identity) -> Any:
    found = await tenants.runtime.sessions.inspect(tenants.anybody().session_id, who=me)
    check(found.session.identity == me, f"{found.session.identity} was inspected")
    return found


async def _open_session(tenants: Tenants, me: Identity) -> None:
    """A new name is free for everybody, whoever else has it, and opens for nobody else."""
    sessions, name = tenants.runtime.sessions, new_id()
    for who in (_other(tenants, me), me):
        if (who.tenant_id, who.user_id) == (me.tenant_id, me.user_id) and who != me:
            continue
        mine = replace(who, session_id=name)
        try:
            opened = await sessions.open(name, mine)
        except SessionAlreadyOpenError as error:
            raise CrossedError(f"{mine} was taken by another") from error
        check(opened.identity == mine, f"{opened.identity} was opened for {mine}")
    try:
        await sessions.open(f"{name}-", me)
    except SessionMismatchError:
        return
    raise CrossedError(f"a session of another name was opened for {me}")


async def _close_session(tenants: Tenants, me: Identity) -> None:
    """A closed session takes no session of the same name along."""
    sessions, name = tenants.runtime.sessions, f"spare{tenants.luck.randrange(_SPARE)}"
    mine, theirs = replace(me, session_id=name), replace(_other(tenants, me), session_id=name)
    try:
        await sessions.ensure_open(mine)
        await sessions.ensure_open(theirs)
    except SessionClosedError:
        return
    closed = await sessions.close(mine, "done")
    check(closed.identity == mine, f"{closed.identity} was closed")
    check((await sessions.get(name, who=mine)).closed, f"{mine} is still open")
    if theirs != mine:
        check(not (await sessions.get(name, who=theirs)).closed, f"{theirs} was closed")


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _fork(tenants: Tenants, me: Identity) -> Any:
    if tenants.luck.random() < 0.7:
        return None
    fork = await tenants.runtime.fork(tenants.any_id("run"), at=1, who=me)
    return await fork.finished()


async def _replay(tenants: Tenants, me: Identity) -> Any:
    """A record is had through a handle alone, so a replay is its owner's."""
    run = await tenants.runtime.run(tenants.any_id("run"), who=me)
    record = await run.history()
    return [(await tenants.runtime.replay(record)).is_same, await run.finished()]


EVERY: dict[str, Operation] = {
    **OPERATIONS,
    "memory.add_turn": Operation(_add_turn),
    "memory.context": Operation(_context),
    "memory.snapshot": Operation(_snapshot),
    "memory.restore": Operation(_restore),
    "memory.estimate_tokens": Operation(_estimate),
    "memory.health": Operation(_health),
    "memory.flush": Operation(_flush),
    "state.delete": Operation(_delete),
    "artifacts.exists": Operation(_exists, "artifact"),
    "tasks.wait_ended": Operation(_wait_ended, "background"),
    "tasks.acknowledge_background": Operation(_acknowledge, "background"),
    "groups.cancel": Operation(_cancel_group, "group"),
    "groups.apply": Operation(_apply_group, "group"),
    "groups.watch": Operation(_watch_group, "group"),
    "patches.create": Operation(_create_patch),
    "patches.apply": Operation(_apply_patch, "patch"),
    "sessions.touch": Operation(_touch),
    "sessions.inspect": Operation(_inspect),
    "sessions.open": Operation(_open_session),
    "sessions.close": Operation(_close_session),
    "runs.fork": Operation(_fork, "run"),
    "runs.replay": Operation(_replay, "run"),
}
"""By name, everything that a principal can do."""
