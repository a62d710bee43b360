"""What a run does, as the updates of its task: the words of its model as an artifact that grows, and its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from harborage.server.a2a.values import ANSWER, Artifact, ArtifactPiece, State, Status, StatusChange, Text
from harborage.server.following import Called, Decided, Ended, Reasoned, Rejected, Returned, Shown, Wrote

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.server.a2a.values import Task, Update

_NOTHING: Final = (Text(""),)


class Teller:
    """Turns what is shown of one run into updates of its task.

    What the model writes before a call is no answer: the next piece takes its place.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._text = ""
        self._is_over = False

    def take(self, shown: Shown, at: datetime) -> Iterator[Update]:
        """Yield the updates that a peer gets of something that happened."""
        match shown:
            case Wrote():
                yield self._write(shown.text)
            case Called():
                self._is_over = True
                yield self._call(at, id=shown.id, tool=shown.tool, args=_plain(shown.args))
            case Returned() if shown.error:
                yield self._call(at, id=shown.id, tool=shown.tool, error=shown.error)
            case Returned():
                yield self._call(at, id=shown.id, tool=shown.tool, output=shown.output)
            case Rejected():
                yield self._call(at, id=shown.id, tool=shown.tool, rejected=shown.reason)
            case Ended():
                self._is_over = True
            case Reasoned() | Decided():
                return
            case _:
                assert_never(shown)

    def end(self, task: Task) -> Iterator[Update]:
        """Yield the end: the whole answer where not all of it was sent, and where the task is now."""
        for artifact in task.artifacts:
            is_sent = bool(self._text) and artifact.parts == (Text(self._text),)
            piece = Artifact(artifact.id, _NOTHING) if is_sent else artifact
            yield ArtifactPiece(task.id, task.context, piece, is_behind=is_sent, is_last=True)
        yield StatusChange(task.id, task.context, task.status)

    def _write(self, text: str) -> Update:
        is_behind = bool(self._text) and not self._is_over
        self._text, self._is_over = (self._text if is_behind else "") + text, False
        piece = Artifact(ANSWER, (Text(text),))
        return ArtifactPiece(self._task.id, self._task.context, piece, is_behind=is_behind)

    def _call(self, at: datetime, **fields: Any) -> Update:
        call = {name: value for name, value in fields.items() if value is not None}
        return StatusChange(self._task.id, self._task.context, Status(State.WORKING, at), {"call": call})


def _plain(args: str | None) -> Any:
    return None if args is None else msgspec.json.decode(args)
