"""A model that follows a script: for demos, tests and first steps with nothing installed and no key.

`script:path.json` reads one; `script:` alone answers that no model is configured. It makes no call and never waits. Its
place in the script follows from the conversation, so that a run that another process resumes goes on with the right
turn.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
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
    InvalidJSONSchemaError,
    LLMConfigError,
    LLMError,
    ProviderError,
    restore_error,
)
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from harborage.llm.config import ConfigSnapshot, Deps

_RAISABLE: Final = sorted(
    name for name, kind in ERRORS.items() if issubclass(kind, ProviderError | InvalidJSONSchemaError)
)
DEMO_MODEL: Final = "script"
"""The model name without a script."""

_MAX_RAISED: Final = 1024
_WORDS: Final = re.compile(r"\s*\S+\s*")
_CHARS_PER_TOKEN: Final = 4


class ScriptInvalidError(LLMConfigError):
    """A script cannot be followed. `path` is its file; the text names the line or the place and what is wrong."""

    def __init__(self, message: str = "", *, path: str = "") -> None:
        self.path = path
        super().__init__(message)


class ScriptExhaustedError(LLMError):
    """A scripted model was asked for more than its script has; add to the script. `run_id` names the run, if known."""

    def __init__(self, message: str = "", *, run_id: str = "") -> None:
        self.run_id = run_id
        super().__init__(message)


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a turn. Without an id it gets one from its place.

    Inside `args`, `{"$result": "task_id"}` is replaced by the value in the latest tool result with this key, and with
    `"nth": 1` by the value in the first one: ids are known only when a run has made them.
    """

    name: str
    args: dict[str, Any] = {}
    id: str = ""


class ScriptedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure of a turn, by the name of its class, raised `times` times before the script goes on."""

    kind: str
    message: str = ""
    status: int | None = None
    retry_after_s: float | None = None
    times: int = 1


class ScriptedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model, one set of calls, or one failure.

    `text` may be given as `pieces`, in which it is streamed; without them it comes word by word. `when` makes the
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
    """Answers with the turns of a script; without one it answers that no model is configured.

    The n-th answer of a conversation is the n-th turn. When a user's message contains the `when` of some turns, these
    answer it, counted from that message on, until the next question. `name` is the name of the script in errors.
    """

    def __init__(self, script: Script | None = None, *, name: str = "the script") -> None:
        self._script = script
        self._name = name
        self._raised: OrderedDict[tuple[Quadruple, str, int], int] = OrderedDict()
        self._is_closed = False

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the next turn of the request's conversation.

        Raises:
            ClientClosedError, IdentityMissingError: as for every client.
            ScriptExhaustedError: there is no such turn.
            LLMError: the turn is an error.
        """
        if self._is_closed:
            raise ClientClosedError
        who = effective_quadruple()
        if who is None:
            raise IdentityMissingError
        if self._script is None:
            return _answer(request, ScriptedTurn(text=_no_model_text(request)))
        turn = self._turn(self._script, request, who)
        if turn.error is not None:
            with AnswerBuilder(request, provider="script") as answer:
                _stream(answer, turn)
                raise _error(turn.error)
        return _answer(request, turn)

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
        condition = f" for {when!r}" if when else ""
        count = "its only turn is" if len(turns) == 1 else f"all {len(turns)} turns are"
        raise ScriptExhaustedError(f"{self._name} has no further turn{condition}: {count} used; add turns to it")

    def _raises(self, error: ScriptedError, place: tuple[Quadruple, str, int]) -> bool:
        """Return whether the error is still due for this run; a failed call leaves no trace in the conversation."""
        count = self._raised.pop(place, 0)
        self._raised[place] = min(count + 1, error.times)
        if len(self._raised) > _MAX_RAISED:
            self._raised.popitem(last=False)
        return count < error.times


def make(cfg: ConfigSnapshot, deps: Deps) -> LLMClient:
    """Return the driver: the model's name is the path of a script; empty or `script` is the model without one.

    Raises:
        ScriptInvalidError: there is no such file, or it is no script.
    """
    if cfg.model in ("", DEMO_MODEL):
        return ScriptedModel()
    return ScriptedModel(load_script(cfg.model), name=cfg.model)


def load_script(path: str | Path) -> Script:
    """Return the script in a JSON file: an object with `turns`, or just the list of them.

    Raises:
        ScriptInvalidError: it cannot be read, is no JSON (with line and column), or a turn is invalid (with its place).
    """
    import json
    from pathlib import Path

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
    """Return what is wrong with a turn; empty when it is valid."""
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
    """Return the place of a conversation: the `when` of its turns, and how many of them are used."""
    conditions = list(dict.fromkeys(turn.when for turn in script.turns if turn.when))
    used = {"": 0}
    current, is_answered = "", False
    for message in messages:
        if message.role is Role.ASSISTANT:
            used[current] += 1
            is_answered = not message.tool_calls
        elif message.role is Role.USER:
            text = _text(message).lower()
            found = next((when for when in conditions if when.lower() in text), "")
            if found:
                current, used[found] = found, 0
            elif is_answered:
                # Only a message that follows a whole answer is a new question.
                current = ""
    return current, used[current]


def _answer(request: CompleteRequest, turn: ScriptedTurn) -> CompleteResponse:
    with AnswerBuilder(request, provider="script") as answer:
        _stream(answer, turn)
    text = turn.text or "".join(turn.pieces)
    calls = tuple(
        ToolCallStructured(
            id=call.id or f"call-{at}",
            name=call.name,
            args=codec.encode(_fill_in(call.args, request.messages)),
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


def _fill_in(value: Any, messages: Sequence[ChatMessage]) -> Any:
    """Return plain data with the results in the places of their references."""
    match value:
        case {"$result": str(key)} if len(value) == 1:
            return _result(key, 0, messages)
        case {"$result": str(key), "nth": int(nth)} if len(value) == 2:
            return _result(key, nth, messages)
        case dict():
            return {name: _fill_in(inner, messages) for name, inner in value.items()}
        case list():
            return [_fill_in(inner, messages) for inner in value]
        case _:
            return value


def _result(key: str, nth: int, messages: Sequence[ChatMessage]) -> Any:
    """Return the value of `key` in the `nth` tool result that has it, counted from 1; 0 is the latest."""
    found = [result[key] for result in map(_as_object, messages) if key in result]
    try:
        return found[nth - 1]
    except IndexError:
        raise ScriptInvalidError(
            f"no tool result has {key!r} here"
            if not found
            else f"{len(found)} tool result(s) have {key!r}, and the script asks for number {nth}"
        ) from None


def _as_object(message: ChatMessage) -> dict[str, Any]:
    """Return the JSON object in a tool result; empty for any other message."""
    if message.role is not Role.TOOL:
        return {}
    import json

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


def _no_model_text(request: CompleteRequest) -> str:
    """Return the text of a system without a model, which no reader takes for an answer."""
    last = next((_text(message) for message in reversed(request.messages) if message.role is Role.USER), "")
    return (
        "No model is configured, so this is not an answer. Choose one with --model, for example "
        "--model ollama:qwen3 or --model local:, or set a provider's key such as OPENAI_API_KEY."
        + (f"\n\nYour message was: {last}" if last else "")
    )


def _error(error: ScriptedError) -> LLMError:
    message = error.message or f"script: {error.kind}"
    if error.kind == InvalidJSONSchemaError.__name__:
        return InvalidJSONSchemaError(message)
    fields = {"provider": "script", "status": error.status, "retry_after_s": error.retry_after_s}
    return restore_error(error.kind, message, fields)
