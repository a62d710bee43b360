"""A model that follows a script: for demos, tests and first steps with nothing installed and no key.

`script:path.json` reads one; `script:` alone is an honest stand-in that says that no model is configured. It calls
nobody and never waits. Where it stands in its script is read off the conversation, so that a run which is carried on by
another process goes on with the right turn.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.identity import IdentityMissingError, Quadruple, effective_quadruple
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    LLMClient,
    Role,
    ToolCallStructured,
    Usage,
)
from harborage.llm.content import TextPart
from harborage.llm.errors import (
    ERRORS,
    ClientClosedError,
    InvalidConfigError,
    InvalidJSONSchemaError,
    LLMError,
    ProviderError,
    restore_error,
)
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps

_RAISABLE: Final = sorted(
    name for name, kind in ERRORS.items() if issubclass(kind, ProviderError | InvalidJSONSchemaError)
)
DEMO_MODEL: Final = "script"
"""The model name that stands for no script at all."""

_MAX_RAISED: Final = 1024
_WORDS: Final = re.compile(r"\s*\S+\s*")
_CHARS_PER_TOKEN: Final = 4


class ScriptInvalidError(InvalidConfigError):
    """A script cannot be followed. `path` is its file; the text names the line or the place and what is wrong."""

    def __init__(self, message: str = "", *, path: str = "") -> None:
        self.path = path
        super().__init__(message)


class ScriptExhaustedError(LLMError):
    """A scripted model was asked for more turns than its script has; add turns, or a turn with `when`."""


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a turn. Without an id it gets one from its place.

    Inside `args`, `{"$result": "task_id"}` stands for what the latest tool result with this key has there, and with
    `"nth": 1` for what the first one has: ids are known only when a run has made them.
    """

    name: str
    args: dict[str, Any] = {}
    id: str = ""


class ScriptResultMissingError(LLMError):
    """A turn refers to a tool result that is not in its conversation; the text names the key."""


class ScriptedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure of a turn, by the name of its class, raised `times` times before the script goes on."""

    kind: str
    message: str = ""
    status: int | None = None
    retry_after_s: float | None = None
    times: int = 1


class ScriptedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says, calls or fails with once.

    `text` may be given as `pieces`, which is how it is streamed; without them it comes word by word. `when` makes the
    turn part of the answer to a user's message that contains this text, in any case.
    """

    text: str = ""
    pieces: tuple[str, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedError | None = None
    when: str = ""
    finish_reason: str = ""


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script: turns in order. Those without `when` are one conversation; those with the same `when` one answer."""

    turns: tuple[ScriptedTurn, ...] = ()


class ScriptedModel:
    """Answers with the turns of a script; without one it says that it is none.

    The n-th answer of a conversation is the n-th turn. When a user's message contains the `when` of some turns, these
    answer it, counted from that message on, until another question is asked. `name` is what errors call the script.
    """

    def __init__(self, script: Script | None = None, *, name: str = "the script") -> None:
        self._script = script
        self._name = name
        self._raised: OrderedDict[tuple[Quadruple, str, int], int] = OrderedDict()
        self._is_closed = False

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The next turn of the request's conversation.

        Raises:
            ClientClosedError, IdentityMissingError: as for every client.
            ScriptExhaustedError: there is no such turn.
            LLMError: the turn itself.
        """
        if self._is_closed:
            raise ClientClosedError
        who = effective_quadruple()
        if who is None:
            raise IdentityMissingError
        if self._script is None:
            return _spoken(request, ScriptedTurn(text=_stand_in(request)))
        turn = self._turn(self._script, request, who)
        if turn.error is not None:
            with AnswerBuilder(request, provider="script") as answer:
                _stream(answer, turn)
                raise _error(turn.error)
        return _spoken(request, turn)

    async def close(self) -> None:
        """Answer nothing any more. Closing twice does nothing."""
        self._is_closed = True

    def _turn(self, script: Script, request: CompleteRequest, who: Quadruple) -> ScriptedTurn:
        when, at = _place(script, request.messages)
        turns = [turn for turn in script.turns if turn.when == when]
        for index, turn in enumerate(turns):
            if turn.error is None:
                if at == 0:
                    return turn
                at -= 1
            elif at == 0 and self._raises(turn.error, (who, when, index)):
                return turn
        said = f" that answer {when!r}" if when else ""
        raise ScriptExhaustedError(f"{self._name} has no further turn{said}; its {len(turns)} turn(s) are said")

    def _raises(self, error: ScriptedError, place: tuple[Quadruple, str, int]) -> bool:
        """Whether the error is still due for this run; a failed call leaves no trace in the conversation."""
        count = self._raised.pop(place, 0)
        self._raised[place] = min(count + 1, error.times)
        if len(self._raised) > _MAX_RAISED:
            self._raised.popitem(last=False)
        return count < error.times


def make(cfg: ConfigSnapshot, deps: Deps) -> LLMClient:
    """The driver: the model's name is the path of a script; empty or `script` is the stand-in.

    Raises:
        ScriptInvalidError: there is no such file, or it is no script.
    """
    if cfg.model in ("", DEMO_MODEL):
        return ScriptedModel()
    return ScriptedModel(load_script(cfg.model), name=cfg.model)


def load_script(path: str | Path) -> Script:
    """The script in a JSON file: an object with `turns`, or just the list of them.

    Raises:
        ScriptInvalidError: it cannot be read, is no JSON (with line and column), or a turn makes no sense (with its
            place).
    """
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ScriptInvalidError(f"cannot read the script {path}: {reason}", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise ScriptInvalidError(f"{path}: not UTF-8 at byte {error.start}", path=str(path)) from error
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScriptInvalidError(f"{path}: not JSON: {error}", path=str(path)) from error
    try:
        script = msgspec.convert({"turns": plain} if isinstance(plain, list) else plain, Script)
    except msgspec.ValidationError as error:
        raise ScriptInvalidError(f"{path}: {error}", path=str(path)) from error
    for at, turn in enumerate(script.turns):
        complaint = _complaint(turn)
        if complaint:
            raise ScriptInvalidError(f"{path}: {complaint} - at `$.turns[{at}]`", path=str(path))
    if not script.turns:
        raise ScriptInvalidError(f"{path}: a script needs at least one turn - at `$.turns`", path=str(path))
    return script


def _complaint(turn: ScriptedTurn) -> str:
    """What is wrong with a turn; empty when nothing is."""
    if turn.text and turn.pieces and "".join(turn.pieces) != turn.text:
        return "the pieces are not the text; give one of them"
    if turn.error is not None:
        if turn.tool_calls:
            return "a turn either fails or calls tools"
        if turn.error.kind not in _RAISABLE:
            return f"there is no error {turn.error.kind!r}; there are {', '.join(_RAISABLE)}"
        return "" if turn.error.times > 0 else "`times` must be positive"
    if not (turn.text or turn.pieces or turn.tool_calls):
        return "a turn needs text, pieces, tool_calls or an error"
    return ""


def _place(script: Script, messages: Sequence[ChatMessage]) -> tuple[str, int]:
    """Which turns a conversation is at: their `when`, and how many of them have been said."""
    conditions = list(dict.fromkeys(turn.when for turn in script.turns if turn.when))
    said = {"": 0}
    current, is_answered = "", False
    for message in messages:
        if message.role is Role.ASSISTANT:
            said[current] += 1
            is_answered = not message.tool_calls
        elif message.role is Role.USER:
            text = _text(message).lower()
            found = next((when for when in conditions if when.lower() in text), "")
            if found:
                current, said[found] = found, 0
            elif is_answered:
                # Only what follows a whole answer is a new question; anything else was put in between.
                current = ""
    return current, said[current]


def _spoken(request: CompleteRequest, turn: ScriptedTurn) -> CompleteResponse:
    with AnswerBuilder(request, provider="script") as answer:
        _stream(answer, turn)
    text = turn.text or "".join(turn.pieces)
    calls = tuple(
        ToolCallStructured(
            id=call.id or f"call-{at}",
            name=call.name,
            args=codec.encode(_filled(call.args, request.messages)),
            index=at,
        )
        for at, call in enumerate(turn.tool_calls)
    )
    return CompleteResponse(
        content=text,
        tool_calls=calls,
        reasoning=turn.reasoning,
        usage=_usage(request, len(text) + len(turn.reasoning) + sum(len(call.args) for call in calls)),
        finish_reason=turn.finish_reason or ("tool_calls" if calls else "stop"),
    )


def _filled(value: Any, messages: Sequence[ChatMessage]) -> Any:
    """Plain data with the results that it refers to in their places."""
    match value:
        case {"$result": str(key)} if len(value) == 1:
            return _result(key, 0, messages)
        case {"$result": str(key), "nth": int(nth)} if len(value) == 2:
            return _result(key, nth, messages)
        case dict():
            return {name: _filled(inner, messages) for name, inner in value.items()}
        case list():
            return [_filled(inner, messages) for inner in value]
        case _:
            return value


def _result(key: str, nth: int, messages: Sequence[ChatMessage]) -> Any:
    """What the `nth` tool result with `key` has there, counted from 1; 0 is the latest."""
    found = [result[key] for result in map(_as_object, messages) if key in result]
    try:
        return found[nth - 1]
    except IndexError:
        raise ScriptResultMissingError(
            f"no tool result has {key!r} here"
            if not found
            else f"{len(found)} tool result(s) have {key!r}, and the script asks for number {nth}"
        ) from None


def _as_object(message: ChatMessage) -> dict[str, Any]:
    """The JSON object in a tool result; empty for everything else."""
    if message.role is not Role.TOOL:
        return {}
    try:
        value = json.loads(_text(message))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _stream(answer: AnswerBuilder, turn: ScriptedTurn) -> None:
    for word in _WORDS.findall(turn.reasoning):
        answer.reasoning(word)
    for piece in turn.pieces or _WORDS.findall(turn.text) or [turn.text]:
        answer.content(piece)


def _usage(request: CompleteRequest, chars: int) -> Usage:
    prompt = sum(len(_text(message)) for message in request.messages) // _CHARS_PER_TOKEN
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=chars // _CHARS_PER_TOKEN,
        total_tokens=prompt + chars // _CHARS_PER_TOKEN,
    )


def _text(message: ChatMessage) -> str:
    if message.content.text is not None:
        return message.content.text
    return "\n".join(part.text for part in message.content.parts or () if isinstance(part, TextPart))


def _stand_in(request: CompleteRequest) -> str:
    """What is said where there is no model: nothing that could be taken for an answer."""
    last = next((_text(message) for message in reversed(request.messages) if message.role is Role.USER), "")
    return (
        "No model is configured, so nobody has thought about this. Choose one with --model, for example "
        "--model ollama:qwen3 or --model local:, or set a provider's key such as OPENAI_API_KEY."
        + (f"\n\nWhat you said was: {last}" if last else "")
    )


def _error(error: ScriptedError) -> LLMError:
    message = error.message or f"script: {error.kind}"
    if error.kind == InvalidJSONSchemaError.__name__:
        return InvalidJSONSchemaError(message)
    fields = {"provider": "script", "status": error.status, "retry_after_s": error.retry_after_s}
    return restore_error(error.kind, message, fields)
