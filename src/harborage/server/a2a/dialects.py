"""The two versions of the protocol that are spoken, as JSON: 1.0, and 0.3 before it."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from harborage.server.a2a.values import ArtifactPiece, Blob, Data, StatusChange, Task, Text

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.server.a2a.values import Artifact, Part, Said, State, Status, Update


class Dialect:
    """How a version spells the values of a peer."""

    version: ClassVar[str]
    user: ClassVar[str]
    """The role of a message that the peer sends."""
    agent: ClassVar[str]
    any_state: ClassVar[str] = ""
    """What a list of tasks in any state is asked for with."""
    has_named_errors: ClassVar[bool] = False
    """Whether streams name their errors as events, and errors their reasons."""

    def sent(self, task: Task) -> dict[str, Any]:
        """Spell the answer to a message."""
        raise NotImplementedError

    def update(self, update: Update) -> dict[str, Any]:
        """Spell one event of a stream."""
        raise NotImplementedError

    def task(self, task: Task) -> dict[str, Any]:
        """Spell a task."""
        fields: dict[str, Any] = {
            "id": task.id,
            "contextId": task.context,
            "status": self._status(task.status, task.id, task.context),
        }
        if task.artifacts:
            fields["artifacts"] = [self._artifact(one) for one in task.artifacts]
        return fields

    def _change(self, change: StatusChange) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "taskId": change.id,
            "contextId": change.context,
            "status": self._status(change.status, change.id, change.context),
        }
        if change.about:
            fields["metadata"] = {"harborage": change.about}
        return fields

    def _piece(self, piece: ArtifactPiece) -> dict[str, Any]:
        return {
            "taskId": piece.id,
            "contextId": piece.context,
            "artifact": self._artifact(piece.artifact),
            "append": piece.is_behind,
            "lastChunk": piece.is_last,
        }

    def _status(self, status: Status, task: str, context: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"state": self.state(status.state), "timestamp": _time(status.at)}
        if status.said is not None:
            fields["message"] = self._said(status.said, task, context)
        return fields

    def _said(self, said: Said, task: str, context: str) -> dict[str, Any]:
        return {
            "messageId": said.id,
            "taskId": task,
            "contextId": context,
            "role": self.agent,
            "parts": [self._part(one) for one in said.parts],
        }

    def _artifact(self, artifact: Artifact) -> dict[str, Any]:
        parts = [self._part(one) for one in artifact.parts]
        return {"artifactId": artifact.id, "name": artifact.name or artifact.id, "parts": parts}

    def state(self, state: State) -> str:
        """Spell a state."""
        raise NotImplementedError

    def _part(self, part: Part) -> dict[str, Any]:
        raise NotImplementedError


class Version1(Dialect):
    """Version 1.0: the JSON of protocol buffers."""

    version = "1.0"
    user = "ROLE_USER"
    agent = "ROLE_AGENT"
    any_state = "TASK_STATE_UNSPECIFIED"
    has_named_errors = True

    def sent(self, task: Task) -> dict[str, Any]:
        return {"task": self.task(task)}

    def update(self, update: Update) -> dict[str, Any]:
        match update:
            case Task():
                return {"task": self.task(update)}
            case StatusChange():
                return {"statusUpdate": self._change(update)}
            case ArtifactPiece():
                return {"artifactUpdate": self._piece(update)}

    def state(self, state: State) -> str:
        return f"TASK_STATE_{state.upper().replace('-', '_')}"

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case Text():
                return {"text": part.text}
            case Data():
                return {"data": part.data}
            case Blob():
                content = {"url": part.url} if part.url else {"raw": part.data}
                return {**content, "mediaType": part.mime, "filename": part.name}


class Version03(Dialect):
    """Version 0.3: each object says its kind."""

    version = "0.3"
    user = "user"
    agent = "agent"

    def sent(self, task: Task) -> dict[str, Any]:
        return self.task(task)

    def task(self, task: Task) -> dict[str, Any]:
        return {"kind": "task", **super().task(task)}

    def update(self, update: Update) -> dict[str, Any]:
        match update:
            case Task():
                return self.task(update)
            case StatusChange():
                return {"kind": "status-update", "final": update.is_last, **self._change(update)}
            case ArtifactPiece():
                return {"kind": "artifact-update", **self._piece(update)}

    def _said(self, said: Said, task: str, context: str) -> dict[str, Any]:
        return {"kind": "message", **super()._said(said, task, context)}

    def state(self, state: State) -> str:
        return str(state)

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case Text():
                return {"kind": "text", "text": part.text}
            case Data():
                return {"kind": "data", "data": part.data if isinstance(part.data, dict) else {"value": part.data}}
            case Blob():
                content = {"uri": part.url} if part.url else {"bytes": part.data}
                return {"kind": "file", "file": {**content, "mimeType": part.mime, "name": part.name}}


V1: Final = Version1()
V03: Final = Version03()


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Frames:
    """The answers of JSON-RPC to one request, as server-sent events."""

    def __init__(self, id: Any, dialect: Dialect) -> None:
        self._id = id
        self._dialect = dialect

    def result(self, value: Any) -> dict[str, Any]:
        """Spell an answer."""
        return {"jsonrpc": "2.0", "id": self._id, "result": value}

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        """Spell a refusal."""
        fields = body if self._dialect.has_named_errors else {**body, "code": _known_before(body["code"])}
        return {"jsonrpc": "2.0", "id": self._id, "error": fields}

    def update(self, update: Update) -> bytes:
        """Spell an event of a stream."""
        return b"data: " + msgspec.json.encode(self.result(self._dialect.update(update))) + b"\n\n"

    def last(self, body: dict[str, Any]) -> bytes:
        """Spell the end of a stream that fails."""
        name = b"event: error\n" if self._dialect.has_named_errors else b""
        return name + b"data: " + msgspec.json.encode(self.error(body)) + b"\n\n"


_FIRST_OF_V1: Final = -32008
_INTERNAL: Final = -32603


def _known_before(code: int) -> int:
    """The code of a refusal in 0.3, which has fewer of them."""
    return _INTERNAL if -32099 <= code <= _FIRST_OF_V1 else code
