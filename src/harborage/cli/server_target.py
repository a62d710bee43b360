"""The run on a server that a control is sent to: found as a stored one is, steered over the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from harborage.cli.control_target import ControlTarget, describe_question, describe_resolved
from harborage.cli.questions import is_held_by_control
from harborage.cli.server import Server, open_server
from harborage.errors import HarborageError
from harborage.identity import Identity, Quadruple
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.history.reading import is_part
from harborage.runtime.loop.controls import ControlType, Scope, required_scope
from harborage.runtime.pauses import AlreadyResumedError, Pause

if TYPE_CHECKING:
    from harborage.client import ControlFate
    from harborage.client.run import RemoteRun
    from harborage.store import RunRow

_SECOND: Final = frozenset({"already_resumed", "pause_not_found", "no_outstanding_pause"})


class ControlRefusedError(HarborageError):
    """The run did not take the control. `why` is the code."""

    def __init__(self, control: str = "", why: str = "") -> None:
        self.why = why
        super().__init__(f"{control.lower()} was not counted: {why}" if control else "")


@asynccontextmanager
async def open_server_target(url: str, name: str) -> AsyncIterator[ControlTarget]:
    """Open the run on a server that `name` names on the command line, as `open_target` does.

    Raises:
        Exception: as of `open_target`.
    """
    async with open_server(url) as server:
        record, questions = await _find(server, name)
        sender = _ServerSender(server, record)
        yield ControlTarget(name=name, record=record, questions=tuple(questions), sender=sender)


async def _find(server: Server, name: str) -> tuple[RunRow, list[Pause]]:
    """Return the run that `name` names, and its open questions with those of the runs below it, the oldest first."""
    pauses = [one.pause_for(server.who) for one in reversed(await server.pauses())]
    named = [one for one in pauses if one.token == name]
    if not named and (resolved := await _resolved(server, name)):
        raise AlreadyResumedError(resolved.token, message=describe_resolved(resolved))
    if not named:
        try:
            record = await server.find(name, is_unfinished=True)
        except RunNotFoundError:
            named = [one for one in pauses if name and is_part(name, one.token)]
            if len(named) != 1:
                raise
        else:
            tree = await _tree(server, record)
            return record, [one for one in pauses if one.identity.run_id in tree and not is_held_by_control(one)]
    return await server.find(named[0].identity.run_id), named


async def _resolved(server: Server, token: str) -> Pause | None:
    """The resolved pause with this token; None when there is none."""
    found = await server.pauses("resumed") if len(token) > _SHORTEST_TOKEN else []
    return next((one.pause_for(server.who) for one in found if one.token == token), None)


_SHORTEST_TOKEN: Final = 20


async def _tree(server: Server, record: RunRow) -> set[str]:
    """The ids of the run and of those below it."""
    found, left = {record.run_id}, [record.run_id]
    while left:
        rows = await server.runs(session=record.who.session_id, parent_task_id=left.pop())
        new = {row.run_id for row in rows} - found
        found |= new
        left += new
    return found


class _ServerSender:
    """Sends controls to a run on a server."""

    def __init__(self, server: Server, record: RunRow) -> None:
        self._server = server
        self._record = record

    async def answer(self, question: Pause, type: ControlType, payload: dict[str, Any]) -> None:
        """Send the one answer to a question, and wait up to two seconds for what the run makes of it.

        Raises:
            AlreadyResumedError: another answer came first.
            ControlRefusedError: it was refused for another reason.
        """
        fate = await self._send(question.identity, type, payload)
        if fate.counted:
            return
        first = await _resolved(self._server, question.token)
        if first is not None or fate.why in _SECOND:
            what = describe_question(question) if first is None else describe_resolved(first)
            text = f"{what} was already answered" if first is None else what
            raise AlreadyResumedError(question.token, message=text)
        raise ControlRefusedError(str(type), fate.why)

    async def send(self, type: ControlType, payload: dict[str, Any]) -> ControlFate:
        """Send a control, and return what the run made of it within two seconds."""
        return await self._send(self._record.quadruple, type, payload)

    async def _send(self, who: Quadruple, type: ControlType, payload: dict[str, Any]) -> ControlFate:
        needed = required_scope(type) or Scope.OWNER_USER
        scope = max(Scope.OWNER_USER, needed)
        owner = Identity(who.tenant_id, who.user_id, who.session_id)
        run: RemoteRun[Any] = self._server.remote.get(who.run_id, who=owner, scope=scope)
        return await run.send_and_wait(type, payload)
