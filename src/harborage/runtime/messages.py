"""What was said in a run, message by message, and how a later run is shown it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.errors import InvalidOptionError
from harborage.planner import CallParallel, CallTool, Finish, MemoryBlocks
from harborage.runtime.durable.histories import read_value
from harborage.runtime.durable.journal import Started, decode_entry
from harborage.runtime.loop.context import Context, ContextRequest, ContextSource, ProviderChoice
from harborage.runtime.loop.seam import RunRequest

if TYPE_CHECKING:
    from harborage.runtime.history.model import CallMade, RunHistory, StepTaken

_NAME: Final = "messages"
_EXAMPLE: Final = "messages of a run, such as result.messages"


class Speaker(StrEnum):
    """Who said a message."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a run. A call of the assistant has a `tool` and its `args` as JSON, an answer to it the `tool`."""

    role: Speaker
    text: str = ""
    tool: str = ""
    args: str = ""


def messages_of(history: RunHistory, finish: Finish | None = None) -> tuple[Message, ...]:
    """What was said in a run, from its goal to its answer, in order."""
    said = [Message(role=Speaker.USER, text=history.goal)]
    for step in history.steps:
        if step.preamble and not isinstance(step.decision, Finish):
            said.append(Message(role=Speaker.ASSISTANT, text=step.preamble))
        said += _calls(step)
    if finish is not None and finish.payload is not None:
        said.append(Message(role=Speaker.ASSISTANT, text=_text(finish.payload)))
    return tuple(said)


def _calls(step: StepTaken) -> list[Message]:
    """The calls of a step, and then what came of each."""
    match step.decision:
        case CallTool() | CallParallel():
            asked = [Message(role=Speaker.ASSISTANT, tool=call.tool, args=call.args) for call in step.calls]
            return asked + [Message(role=Speaker.TOOL, tool=call.tool, text=_outcome(call)) for call in step.calls]
        case _:
            return []


def _outcome(call: CallMade) -> str:
    if call.refusal or call.error:
        return call.refusal or call.error
    return "" if call.observation is None else _text(call.observation)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode_text(value)


class _Earlier:
    """Shows a run what was said before it, beside what its session remembers."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    async def provide(self, run: ContextRequest) -> Context | None:
        shown = {"strategy": _NAME, _NAME: msgspec.to_builtins(self._messages)}
        return Context(memory_blocks=MemoryBlocks(conversation=shown))


def with_messages(
    context: Context | Iterable[ProviderChoice], messages: Iterable[Message]
) -> Context | Iterable[ProviderChoice]:
    """The context of a run that is also shown these messages.

    Raises:
        InvalidOptionError: they are no messages, or the context has another conversation.
    """
    given = checked_messages(messages)
    if not given:
        return context
    source = ContextSource(provider=_Earlier(given), name=_NAME, is_required=True, max_bytes=0)
    if not isinstance(context, Context):
        return (*context, source)
    return (ContextSource(provider=_Given(context), name="context", is_required=True, max_bytes=0), source)


class _Given:
    """Gives a context as it is."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def provide(self, run: ContextRequest) -> Context | None:
        return self._context


def checked_messages(messages: Any) -> tuple[Message, ...]:
    """Return these messages.

    Raises:
        InvalidOptionError: they are none.
    """
    if isinstance(messages, str) or not isinstance(messages, Iterable):
        raise InvalidOptionError(_NAME, messages, _EXAMPLE)
    given = tuple(messages)
    for one in given:
        if not isinstance(one, Message):
            raise InvalidOptionError(_NAME, one, _EXAMPLE)
    return given


def earlier_messages(record: Sequence[bytes]) -> tuple[Message, ...]:
    """The messages that a recorded run was started with.

    Raises:
        JournalCorruptError: the record cannot be read.
    """
    started = decode_entry(record[0], "", 0) if record else None
    if not isinstance(started, Started):
        return ()
    request: RunRequest = read_value(started.request, RunRequest, "entry 0")
    blocks = None if request.context is None else request.context.memory_blocks
    shown = None if blocks is None else blocks.conversation
    if isinstance(shown, dict) and _NAME in shown and not isinstance(shown.get("strategy"), str):
        shown = shown[_NAME]  # beside the conversation of another provider
    if not isinstance(shown, dict) or shown.get("strategy") != _NAME:
        return ()
    found: tuple[Message, ...] = msgspec.convert(shown.get(_NAME, ()), tuple[Message, ...])
    return found
