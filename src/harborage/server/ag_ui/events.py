"""The events of AG-UI that this server sends, as values. Each is one line of JSON with its kind as `type`."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

PROTOCOL_VERSION: Final = "1.0"


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of an event."""


class Sent(_Value, frozen=True, tag_field="type"):
    """An event."""


class RunStarted(Sent, frozen=True, tag="RUN_STARTED"):
    """The first event. `metadata` names the run of Harborage that answers."""

    thread_id: str
    run_id: str
    protocol_version: str | UnsetType = UNSET
    parent_run_id: str | UnsetType = UNSET
    metadata: dict[str, Any] = {}


class TextStart(Sent, frozen=True, tag="TEXT_MESSAGE_START"):
    """A message of the agent begins."""

    message_id: str
    role: str | UnsetType = UNSET


class TextContent(Sent, frozen=True, tag="TEXT_MESSAGE_CONTENT"):
    """A piece of a message."""

    message_id: str
    delta: str


class TextEnd(Sent, frozen=True, tag="TEXT_MESSAGE_END"):
    """A message is whole."""

    message_id: str


class ReasoningStart(Sent, frozen=True, tag="REASONING_START"):
    """The model begins to think aloud."""

    message_id: str


class ReasoningMessageStart(Sent, frozen=True, tag="REASONING_MESSAGE_START"):
    """A message of its thoughts begins."""

    message_id: str
    role: str


class ReasoningContent(Sent, frozen=True, tag="REASONING_MESSAGE_CONTENT"):
    """A piece of its thoughts."""

    message_id: str
    delta: str


class ReasoningMessageEnd(Sent, frozen=True, tag="REASONING_MESSAGE_END"):
    """A message of its thoughts is whole."""

    message_id: str


class ReasoningEnd(Sent, frozen=True, tag="REASONING_END"):
    """The model has thought."""

    message_id: str


class CallStart(Sent, frozen=True, tag="TOOL_CALL_START"):
    """A call of a tool begins."""

    tool_call_id: str
    tool_call_name: str


class CallArgs(Sent, frozen=True, tag="TOOL_CALL_ARGS"):
    """The arguments of a call, as JSON without secrets."""

    tool_call_id: str
    delta: str


class CallEnd(Sent, frozen=True, tag="TOOL_CALL_END"):
    """All arguments of a call were sent."""

    tool_call_id: str


class CallResult(Sent, frozen=True, tag="TOOL_CALL_RESULT"):
    """What came of a call."""

    message_id: str
    tool_call_id: str
    content: str
    role: str | UnsetType = UNSET


class MessagesSnapshot(Sent, frozen=True, tag="MESSAGES_SNAPSHOT"):
    """The whole conversation, in place of what a client has."""

    messages: list[Any]


class StateSnapshot(Sent, frozen=True, tag="STATE_SNAPSHOT"):
    """The state of the client as the run was shown it; a run does not change it."""

    snapshot: Any


class Interrupt(_Value, frozen=True):
    """A question to a person. A client sends `id` back with the answer."""

    id: str
    reason: str
    message: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    response_schema: dict[str, Any] | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    metadata: dict[str, Any] = {}


class Succeeded(_Value, frozen=True, tag_field="type", tag="success"):
    """The run reached its goal."""


class Interrupted(_Value, frozen=True, tag_field="type", tag="interrupt"):
    """The run waits for a person."""

    interrupts: list[Interrupt]


class Cancelled(_Value, frozen=True, tag_field="type", tag="cancelled"):
    """The run was cancelled."""


Outcome: TypeAlias = Succeeded | Interrupted | Cancelled


class TokenUsage(_Value, frozen=True):
    """What the calls of one model used."""

    model: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    reasoning_tokens: int | UnsetType = UNSET


class RunFinished(Sent, frozen=True, tag="RUN_FINISHED"):
    """The last event of a request whose run did not fail."""

    thread_id: str
    run_id: str
    outcome: Outcome
    result: Raw | UnsetType = UNSET
    usage: list[TokenUsage] | UnsetType = UNSET


class RunError(Sent, frozen=True, tag="RUN_ERROR"):
    """The last event of a request that failed."""

    message: str
    code: str
    usage: list[TokenUsage] | UnsetType = UNSET


_encoder: Final = msgspec.json.Encoder()


def frame(event: Sent) -> bytes:
    """Return an event as one server-sent event."""
    return b"data: " + _encoder.encode(event) + b"\n\n"
