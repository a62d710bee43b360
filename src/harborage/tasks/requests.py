"""The rules of a spawn request: what it may say, what makes two of them the same, how many a tree takes.

Pure. Texts that people and models write into a task go through the redactor that the registry was given; without one
they stay as they are. A redactor that fails fails the operation: nothing unredacted is kept instead.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from harborage import codec
from harborage.ids import new_id
from harborage.tasks.errors import InvalidRequestError
from harborage.tasks.model import Propagate, SpawnRequest, SpawnToolRequest, Task, TaskFailure, TaskKind

if TYPE_CHECKING:
    from harborage.events import Redactor

DEFAULT_MAX_CHILDREN: Final = 256
"""How many tasks one task may spawn in its life."""

DEFAULT_MAX_TREE: Final = 1024
"""How many tasks may be started below one root in its life."""

_KINDS: Final = frozenset[str](TaskKind)
_POLICIES: Final = frozenset[str](Propagate)


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks one task may spawn (`max_children`), and how many may be spawned below one root (`max_tree`).

    Tasks that have ended count, too.

    Raises:
        InvalidRequestError: a limit is not positive; `field` names it.
    """

    max_children: int = DEFAULT_MAX_CHILDREN
    max_tree: int = DEFAULT_MAX_TREE

    def __post_init__(self) -> None:
        for field in ("max_children", "max_tree"):
            if getattr(self, field) <= 0:
                raise InvalidRequestError(f"tasks.{field}", "must be greater than 0")


def capped(deadline: datetime | None, most: datetime | None) -> datetime | None:
    """The deadline of a task that asks for `deadline`; its parent's, `most`, where that comes first."""
    if most is None:
        return deadline
    return most if deadline is None else min(deadline, most)


def check_words(request: SpawnRequest) -> None:
    """Accept a request whose words are known.

    Raises:
        InvalidRequestError: `field` is the part to correct.
    """
    if request.kind not in _KINDS:
        raise InvalidRequestError("kind", f"{request.kind!r} is not one of foreground, background")
    if request.propagate_on_cancel and request.propagate_on_cancel not in _POLICIES:
        raise InvalidRequestError(
            "propagate_on_cancel", f"{request.propagate_on_cancel!r} is not one of cascade, isolate"
        )


def new_task(request: SpawnRequest, at: int, redactor: Redactor | None) -> Task:
    """The pending task that a request asks for, without secrets; `at` is the time in unix nanoseconds."""
    return Task(
        id=new_id(),
        identity=request.identity,
        kind=TaskKind(request.kind),
        priority=request.priority,
        parent_task_id=request.parent_task_id or None,
        group_id=request.group_id,
        description=redacted_text(redactor, request.description),
        query=redacted_text(redactor, request.query),
        propagate_on_cancel=Propagate(request.propagate_on_cancel or Propagate.CASCADE),
        notify_on_complete=request.notify_on_complete,
        idempotency_key=request.idempotency_key,
        created_at=at,
        updated_at=at,
        input_artifact_ids=tuple(request.input_artifact_ids),
        deadline=request.deadline,
        retains_turn=request.retains_turn,
        agent=request.agent,
        tags=request.tags,
        output=request.output,
    )


def tool_request(request: SpawnToolRequest) -> SpawnRequest:
    """The request for the task of a tool call."""
    return SpawnRequest(
        identity=request.identity,
        kind=TaskKind.FOREGROUND,
        priority=request.priority,
        parent_task_id=request.parent_task_id,
        group_id=request.group_id,
        description=request.description or f"tool: {request.tool_name}",
        query=request.args.decode("utf-8", "replace"),
        propagate_on_cancel=request.propagate_on_cancel,
        notify_on_complete=request.notify_on_complete,
        idempotency_key=request.idempotency_key,
    )


def fingerprint(request: SpawnRequest) -> str:
    """A hash that is equal for two requests exactly when they ask for the same task.

    Compared: all four parts of the identity, kind, priority, parent, propagation as it takes effect, notification,
    description, query, input artifacts, agent and mark. Not compared: the group, and the key itself.
    """
    who = request.identity
    parts = [
        [who.tenant_id, who.user_id, who.session_id, who.run_id],
        request.kind,
        request.priority,
        request.parent_task_id,
        request.propagate_on_cancel or Propagate.CASCADE,
        request.notify_on_complete,
        request.description,
        request.query,
        request.input_artifact_ids,
        # Without these the hash is that of earlier versions.
        *([request.agent] if request.agent else []),
        *([{"mark": request.mark}] if request.mark else []),
    ]
    return sha256(codec.encode(parts, "spawn")).hexdigest()


def redacted_text(redactor: Redactor | None, text: str) -> str:
    """`text` without its secrets.

    Raises:
        RedactionFailedError: the redactor could not do it.
    """
    if redactor is None or not text:
        return text
    clean = redactor.redact(text)
    return clean if isinstance(clean, str) else codec.encode_text(clean, "text")


def redacted_failure(redactor: Redactor | None, failure: TaskFailure) -> TaskFailure:
    """`failure` with its message redacted; the code is a word of ours and stays."""
    if redactor is None or not failure.message:
        return failure
    return TaskFailure(failure.code, redacted_text(redactor, failure.message))


def redacted_result(redactor: Redactor | None, result: bytes) -> bytes:
    """`result` as JSON text without its secrets: JSON is redacted by structure, other text as one JSON string.

    An empty result stays empty. Without a redactor JSON text is kept byte for byte.
    """
    if not result:
        return b""
    try:
        value = msgspec.json.decode(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return codec.encode(redacted_text(redactor, result.decode("utf-8", "replace")), "result")
    if redactor is None:
        return bytes(result)
    return codec.encode(redactor.redact(value), "result")
