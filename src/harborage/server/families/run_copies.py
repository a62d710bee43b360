"""What is made of a recorded run: a fork, a replay, a test, a comparison with another run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET
from starlette.requests import ClientDisconnect

from harborage.errors import InvalidOptionError
from harborage.llm import LLMError
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.wire import runs as wire
from harborage.runtime.durable.engine import AgentMissingError
from harborage.runtime.durable.journal import encode_entry
from harborage.runtime.effects.options import check_key
from harborage.runtime.forks import start_fork
from harborage.runtime.history.comparing import Comparison, compare_runs, tail
from harborage.runtime.history.differences import Difference, compare
from harborage.runtime.history.forking import ForkError
from harborage.runtime.history.freezing import attached_to, freeze
from harborage.sessions import SessionClosedError
from harborage.tasks import IdempotencyConflictError

if TYPE_CHECKING:
    from harborage.runtime.durable.journal import Entry
    from harborage.runtime.history.overview import Overview
    from harborage.runtime.history.replaying import Replayed
    from harborage.server.families.run_views import RunViews
    from harborage.server.services import Call

T = TypeVar("T")

MOST_COMPARED: Final = 200
"""How many steps of each run the text of a comparison shows."""
_TESTS: Final = Path("tests")


def check_agent(call: Call, agent: str) -> None:
    """Accept the name of an agent that callers may start, or none.

    Raises:
        ProtocolError: there is no such agent.
    """
    if agent and agent not in {one.name for one in call.parts.agents.roots}:
        raise ProtocolError(Code.NOT_FOUND, f"no agent {agent!r} here")


def record_of(entries: Sequence[Entry]) -> list[bytes]:
    """Return a journal as `Run.history()` does."""
    return [encode_entry(one) for one in entries]


async def fork_run(call: Call, asked: wire.ForkRequest, entries: Sequence[Entry]) -> wire.ForkAnswer:
    """Start a fork.

    Raises:
        ProtocolError: a value is invalid, or there is no such agent.
    """
    check_agent(call, asked.agent)
    try:
        if asked.idempotency_key:
            check_key(asked.idempotency_key)
        if asked.max_steps < 0:
            raise InvalidOptionError("max_steps", asked.max_steps, "a whole number from 0")
        forked = await start_fork(
            call.parts,
            call.services.clock,
            record_of(entries),
            call.who,
            asked.step,
            goal=asked.goal,
            model=asked.model,
            instructions=asked.instructions,
            agent=asked.agent,
            live=asked.live,
            max_steps=asked.max_steps,
            key=asked.idempotency_key,
        )
    except AgentMissingError as error:
        raise ProtocolError(Code.NOT_FOUND, str(error)) from error
    except (ForkError, InvalidOptionError, LLMError, IdempotencyConflictError, SessionClosedError) as error:
        raise ProtocolError(Code.INVALID_REQUEST, f"invalid request: {error}") from error
    return wire.ForkAnswer(
        task_id=forked.begun.who.run_id,
        reused=forked.is_known,
        forked_from=wire.StepOf(id=asked.id, step=asked.step),
    )


async def replay_run(call: Call, agent: str, record: Sequence[bytes]) -> Replayed:
    """Replay a run, in turn with others, as long as the peer is there.

    Raises:
        ProtocolError: there is no such agent.
        JournalCorruptError: the record cannot be read.
        ClientDisconnect: the peer is gone.
    """
    check_agent(call, agent)

    async def work() -> Replayed:
        async with call.services.replays:
            return await call.services.runtime.replay(record, agent=agent)

    try:
        return await _while_there(call, work())
    except AgentMissingError as error:
        raise ProtocolError(Code.NOT_FOUND, str(error)) from error


async def _while_there(call: Call, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` gives; it is cancelled when the peer closes its connection."""
    outcome: list[T | Exception] = []

    async def finish() -> None:
        try:
            outcome.append(await work)
        except Exception as error:  # noqa: BLE001 - raised below, where no group wraps it
            outcome.append(error)

    async with asyncio.TaskGroup() as group:
        both = {group.create_task(finish()), group.create_task(call.gone())}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in both:
            one.cancel()
    if not outcome:
        raise ClientDisconnect()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def replayed(run_id: str, result: Replayed, views: RunViews) -> wire.ReplayAnswer:
    """Return how a replay came out."""
    return wire.ReplayAnswer(
        id=run_id,
        is_same=result.is_same,
        is_whole=result.is_whole,
        steps=result.steps,
        model_calls=result.model_calls,
        difference=UNSET if result.difference is None else difference_row(result.difference, views),
    )


def difference_row(difference: Difference, views: RunViews) -> wire.DifferenceRow:
    """Return a difference without secrets."""
    return wire.DifferenceRow(
        step=difference.step,
        kind=str(difference.kind),
        what=views.text(difference.what),
        path=difference.path or UNSET,
        diff=views.text(difference.diff) or UNSET,
    )


async def freeze_run(
    call: Call, asked: wire.AgentRequest, entries: Sequence[Entry], run: Overview, views: RunViews
) -> wire.FreezeAnswer:
    """Return the files of a test of a run that replays.

    Raises:
        ProtocolError: the run goes on, or does not replay.
        JournalCorruptError: the record cannot be read.
    """
    if not run.history.has_ended:
        raise ProtocolError(
            Code.INVALID_REQUEST, f"invalid request: run {asked.id!r} goes on; freeze it once it has ended"
        )
    record = record_of(entries)
    result = await replay_run(call, asked.agent, record)
    if result.difference is not None:
        first = difference_row(result.difference, views)
        where = f"at step {first.step}" if first.step else "before its first step"
        raise ProtocolError(
            Code.INVALID_REQUEST, f"invalid request: run {asked.id!r} does not replay: {where}, {first.what}"
        )
    attached = await attached_to(record, call.parts.artifacts)
    agent = asked.agent or run.row.agent
    frozen = freeze(record, agent=agent, root=Path(), out=_TESTS, attached=attached)
    files = [
        wire.FrozenFile(path=frozen.test.relative_to(_TESTS).as_posix(), content=frozen.test_text),
        wire.FrozenFile(path=frozen.run.relative_to(_TESTS).as_posix(), content=frozen.run_data.decode()),
    ]
    return wire.FreezeAnswer(name=frozen.run.stem, files=files)


def compare_page(
    left: Overview, right: Overview, views: tuple[RunViews, RunViews], after: int, limit: int
) -> wire.CompareAnswer:
    """Return two runs side by side, from the first step after `after` that they do not share."""
    compared = compare_runs(left.history, right.history, clean=views[0].clean)
    first = max(compared.shared, after)
    last = min(first + limit, compared.steps)
    most = min(limit, MOST_COMPARED)
    diff = compare(tail(left.history, first, most), tail(right.history, first, most), clean=views[0].clean)
    difference = compared.difference
    return wire.CompareAnswer(
        runs=[views[0].header(left), views[1].header(right)],
        shared_steps=compared.shared,
        difference=UNSET if difference is None else difference_row(difference, views[0]),
        rows=[_compared_row(left, right, views, compared, number) for number in range(first + 1, last + 1)],
        more=compared.steps > last,
        diff=views[0].text(diff),
    )


def _compared_row(
    left: Overview, right: Overview, views: tuple[RunViews, RunViews], compared: Comparison, number: int
) -> wire.ComparedRow:
    one, other = (
        view.step(run.steps[number - 1]) if number <= len(run.steps) else UNSET
        for view, run in zip(views, (left, right), strict=True)
    )
    return wire.ComparedRow(
        left=one,
        right=other,
        same=compared.is_same(number),
        changes=[
            wire.Change(
                path=change.path,
                left=UNSET if change.left is UNSET else views[0].show(change.left).either,
                right=UNSET if change.right is UNSET else views[1].show(change.right).either,
            )
            for change in compared.changes(number)
        ],
    )
