"""Answers to pauses on their way to a run: one at a time for each pause, so that of two sent at once one counts.

A run takes each event id once, so an answer travels under an id that its pause gives it. One that comes to nothing, as
with arguments that do not fit their tool, leaves the pause open and is noted here: then another may be sent. Nothing
else is kept of answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.ids import new_id
from harborage.runtime.pauses import PauseFilter, PauseNotFoundError
from harborage.runtime.steering.controls import ControlEvent, ControlType
from harborage.state.errors import NotFoundError
from harborage.state.store import StateRecord

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.pauses import PauseCoordinator
    from harborage.state.store import StateStore

__all__ = ["ANSWERS", "Answers", "answered_pause", "check_handles", "is_only_answer"]

ANSWERS: Final = frozenset({ControlType.APPROVE, ControlType.REJECT, ControlType.RESUME})
"""The controls that settle a pause."""

_GO_ON: Final = frozenset({ControlType.APPROVE, ControlType.RESUME})
_ID: Final = "answer/"
_KIND: Final = "answers.refused"
_REMEMBERED: Final = 10_000


def answered_pause(control: ControlEvent) -> str:
    """The token of the pause that a control answers; empty for one that answers none by name."""
    token = (control.payload or {}).get("token") if control.type in ANSWERS else None
    return token if isinstance(token, str) else ""


def is_only_answer(control: ControlEvent, token: str) -> bool:
    """Whether a control came as the one answer to this pause: if it was settled so, it was settled by this control."""
    return control.event_id == f"{_ID}{token}" or control.event_id.startswith(f"{_ID}{token}/")


class Answers:
    """Which answers came to nothing. With a `store` every process over it knows, else this one alone."""

    def __init__(self, store: StateStore | None = None) -> None:
        self._store = store
        self._refused: OrderedDict[str, None] = OrderedDict()

    async def send(self, control: ControlEvent, put: Callable[[ControlEvent], Awaitable[bool]]) -> bool:
        """Send an answer by `put`, which takes each event id once; False while another one to its pause is on its way.

        Raises:
            Exception: what `put` raised.
            StateError: the store refused.
        """
        first = f"{_ID}{answered_pause(control)}"
        event_id, attempt = first, 0
        while not await put(replace(control, event_id=event_id)):
            if not await self._was_refused(control, event_id):
                return False
            attempt += 1
            event_id = f"{first}/{attempt}"
        return True

    async def refuse(self, control: ControlEvent) -> None:
        """A control came to nothing: if it was an answer, another may take its place.

        Raises:
            StateError: the store refused.
        """
        if not control.event_id.startswith(_ID):
            return
        if self._store is None:
            self._refused[control.event_id] = None
            if len(self._refused) > _REMEMBERED:
                self._refused.popitem(last=False)
        else:
            await self._store.save(StateRecord(new_id(), control.identity, _kind(control.event_id), b"1"))

    async def _was_refused(self, control: ControlEvent, event_id: str) -> bool:
        if self._store is None:
            return event_id in self._refused
        try:
            await self._store.load(control.identity, _kind(event_id))
        except NotFoundError:
            return False
        return True


async def check_handles(pauses: PauseCoordinator, who: Quadruple, control: ControlEvent) -> None:
    """Refuse an answer after which the run could not go on in this process, for want of a live handle.

    Raises:
        ToolContextLostError: it could not.
    """
    if control.type not in _GO_ON:
        return
    token = answered_pause(control)
    mine = PauseFilter(users=(who.user_id,), sessions=(who.session_id,), runs=(who.run_id,))
    for one in (token,) if token else [pause.token for pause in (await pauses.list(mine, who=who)).rows]:
        with suppress(PauseNotFoundError):  # whoever applies the answer says so
            await pauses.check_handles(one)


def _kind(event_id: str) -> str:
    return f"{_KIND}:{event_id}"
