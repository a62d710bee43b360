"""What an AG-UI client sends: a thread, a run, the conversation so far, and the answers to questions."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from harborage import codec
from harborage.runtime.loop.context import Context
from harborage.runtime.messages import Message, Speaker
from harborage.server.ag_ui.errors import RefusedError

MAX_BODY: Final = 8 * 1024 * 1024
_MOST_ID_CHARS: Final = 150


class _Sent(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the request; names that are not known are another version's."""


class Function(_Sent, frozen=True):
    """What is called, with its arguments as JSON."""

    name: str
    arguments: str = ""


class AskedCall(_Sent, frozen=True):
    """A call in a message of the assistant."""

    id: str
    function: Function


class SaidMessage(_Sent, frozen=True):
    """A message of the conversation."""

    id: str
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: Any = None
    tool_calls: list[AskedCall] | None = None
    tool_call_id: str = ""
    error: str | None = None


class Resume(_Sent, frozen=True):
    """The answer to an interrupt, or that nobody will answer it."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class Note(_Sent, frozen=True):
    """Something that the run is told beside the conversation."""

    description: str
    value: str


class RunInput(_Sent, frozen=True):
    """The body of a request. `messages` are kept as they came, to be told back."""

    thread_id: str
    run_id: str
    messages: list[msgspec.Raw]
    parent_run_id: str | None = None
    state: Any = None
    tools: list[Any] | None = None
    context: list[Note] | None = None
    forwarded_props: Any = None
    resume: list[Resume] | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was understood: the newest words of the user, what was said before, and what else is shown."""

    input: RunInput
    text: str
    earlier: tuple[Message, ...]
    context: Context | None

    @property
    def has_state(self) -> bool:
        """Whether the client has a state that the run is shown."""
        return self.input.state not in (None, {}, [], "")


def read_input(body: bytes) -> Asked:
    """Return what a body asks for.

    Raises:
        RefusedError: it is no RunAgentInput, or it asks for what is not served here.
    """
    try:
        given = msgspec.json.decode(body, type=RunInput)
        said = [msgspec.json.decode(one, type=SaidMessage) for one in given.messages]
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RefusedError(message=f"the body is no RunAgentInput: {error}") from error
    for name, value in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not value.strip() or len(value) > _MOST_ID_CHARS or not value.isprintable():
            raise RefusedError(message=f"{name} is a text of 1 to {_MOST_ID_CHARS} printable characters")
    if given.tools:
        why = "tools of the client cannot be called from here: give the agent tools of its own, and send tools: []"
        raise RefusedError(code="tools_unsupported", message=why)
    text = ""
    if not given.resume:
        if not said or said[-1].role != "user":
            raise RefusedError(message="the last message must be the user's, unless resume has answers")
        text = text_of(said[-1])
        if not text.strip():
            raise RefusedError(message="the last message of the user is empty")
    return Asked(input=given, text=text, earlier=_earlier(said[:-1]), context=_context(given, said))


def text_of(message: SaidMessage) -> str:
    """Return the text of a message.

    Raises:
        RefusedError: it has parts that are no text.
    """
    content = message.content
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [one.get("text") for one in parts if isinstance(one, dict) and one.get("type") == "text"]
    if len(texts) != len(parts) or not all(isinstance(one, str) for one in texts):
        raise RefusedError(code="content_unsupported", message="only text can be sent in a message here")
    return "\n".join(str(one) for one in texts)


def _earlier(said: list[SaidMessage]) -> tuple[Message, ...]:
    """What was said before the newest message, as a run is shown it."""
    found: list[Message] = []
    tools: dict[str, str] = {}
    for one in said:
        match one.role:
            case "user":
                found.append(Message(role=Speaker.USER, text=text_of(one)))
            case "assistant":
                if text := text_of(one):
                    found.append(Message(role=Speaker.ASSISTANT, text=text))
                for call in one.tool_calls or ():
                    tools[call.id] = call.function.name
                    args = call.function.arguments
                    found.append(Message(role=Speaker.ASSISTANT, tool=call.function.name, args=args))
            case "tool":
                tool = tools.get(one.tool_call_id, "")
                found.append(Message(role=Speaker.TOOL, tool=tool, text=one.error or text_of(one)))
            case "developer" | "system" | "activity" | "reasoning":
                pass  # the first two are shown beside the conversation, the others are for people
    return tuple(found)


def _context(given: RunInput, said: list[SaidMessage]) -> Context | None:
    """What the client wants the model to know beside the conversation."""
    shown: dict[str, Any] = {}
    if instructions := [text_of(one) for one in said if one.role in ("developer", "system")]:
        shown["instructions"] = instructions
    if given.context:
        shown["context"] = [{"description": one.description, "value": one.value} for one in given.context]
    if given.state not in (None, {}, [], ""):
        shown["state"] = given.state
    if given.forwarded_props not in (None, {}, [], ""):
        shown["forwarded_props"] = given.forwarded_props
    return Context(llm_context=shown) if shown else None


def echoed(messages: list[msgspec.Raw]) -> list[Any]:
    """Return messages as they were sent, for an event."""
    return [codec.decode(bytes(one)) for one in messages]
