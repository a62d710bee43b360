"""Send controls to stored runs: validated, each with an event id of its own, and limited in number."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage import codec
from harborage.ids import new_id
from harborage.runtime.durable.engine import RunEndedError
from harborage.runtime.durable.inbox import Inbox
from harborage.runtime.durable.pauses.errors import AlreadyAnsweredError, AlreadyResumedError, PauseNotFoundError
from harborage.runtime.durable.pauses.rows import decode_row
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope, answered_pause
from harborage.runtime.loop.errors import InboxFullError
from harborage.runtime.loop.pauses import PauseFilter
from harborage.store import Commit, SendControl
from harborage.store.errors import (
    ControlLimitError,
    PauseAnsweredError,
    PauseSettledError,
    RowNotFoundError,
    RunOverError,
)

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.identity import Quadruple
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.store import ControlRow, Records, RunRow

_CONTINUES: Final = frozenset({ControlType.APPROVE, ControlType.RESUME})

MAX_UNREAD: Final = 10_000
"""How many controls may wait for one run by default."""


def unread_limit(control: ControlEvent, most: int) -> int:
    """Return how many controls may wait for the run, this one included; 0 is no limit: a CANCEL is always accepted."""
    return 0 if control.type is ControlType.CANCEL else most


def cancel_control(who: Quadruple, *, hard: bool) -> ControlEvent:
    """Return the CANCEL with which the runtime itself ends a run."""
    return ControlEvent(ControlType.CANCEL, who, Scope.ADMIN, who.tenant_id, {"hard": True} if hard else None)


async def check_handles(pauses: Coordinator, who: Quadruple, control: ControlEvent) -> None:
    """Refuse an answer after which the run could not continue in this process, because a live handle is missing.

    Raises:
        ToolContextLostError: a handle is missing.
    """
    if control.type not in _CONTINUES:
        return
    token = answered_pause(control)
    mine = PauseFilter(users=(who.user_id,), sessions=(who.session_id,), runs=(who.run_id,))
    for one in (token,) if token else [pause.token for pause in (await pauses.list(mine, who=who)).rows]:
        with suppress(PauseNotFoundError):  # applying the answer reports it
            await pauses.check_handles(one)


class ControlSender:
    """Sends controls to the runs of one store; at most `most` may wait for one run."""

    def __init__(self, store: Records, clock: Clock, *, most: int = MAX_UNREAD) -> None:
        self._store = store
        self._clock = clock
        self._most = most

    def validate(self, row: RunRow, control: ControlEvent) -> ControlEvent:
        """Return the control as its run will get it: valid, stamped with the time, with an event id.

        Raises:
            RunEndedError: the run has ended.
            SteeringError, IdentityRequiredError: as `Inbox.enqueue`.
        """
        if row.status.is_final:
            raise RunEndedError(row.run_id)
        checking = Inbox(row.quadruple, self._clock)
        checking.enqueue(control)
        (stamped,) = checking.drain()
        return stamped if stamped.event_id else replace(stamped, event_id=new_id())

    async def unread(self, run_id: str, *, besides: Container[int]) -> list[ControlEvent]:
        """Return the controls that a run has not consumed, except those numbers."""
        unread: list[ControlRow] = []
        while page := await self._store.controls(run_id, after=unread[-1].number if unread else 0):
            unread += page
        return [codec.decode(row.data, ControlEvent) for row in unread if row.number not in besides]

    async def send(self, control: ControlEvent) -> bool:
        """Store a validated control for its run; return False if it was stored before.

        Raises:
            RunEndedError: the run has ended.
            InboxFullError: too many controls wait for it.
            AlreadyResumedError: the pause that it answers has an answer already, consumed by its run or not.
            DatabaseError: the store refused.
        """
        run = control.identity
        limit = unread_limit(control, self._most)
        sent = SendControl(
            run_id=run.run_id,
            event_id=control.event_id,
            type=str(control.type),
            data=codec.encode(control),
            limit=limit,
            answers=answered_pause(control),
        )
        try:
            return (await self._store.commit(Commit(sends=(sent,)))).sent[0]
        except (RowNotFoundError, RunOverError) as error:
            raise RunEndedError(run.run_id) from error
        except ControlLimitError as error:
            raise InboxFullError(run=run, limit=limit) from error
        except PauseAnsweredError as error:
            raise AlreadyAnsweredError(error.row.token) from error
        except PauseSettledError as error:
            raise AlreadyResumedError.of(decode_row(error.row)) from error
