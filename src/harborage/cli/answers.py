"""What a typed line means: an answer to the open question, edited arguments, a command or a message. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from harborage.cli.text import masked_places
from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.schema import schema_validator

HELP = (
    ("any text", "send the agent a message; it reads it before its next step"),
    ("/say TEXT", "the same, also while a question is open"),
    ("/pause", "pause the run at its next step"),
    ("/resume", "resume the paused run"),
    ("/goal TEXT", "give the run another goal"),
    ("/context JSON", "give the planner a JSON object"),
    ("/priority N", "change the priority of the run's task"),
    ("/cancel", "cancel the run after the planner's next answer (also Ctrl-C)"),
    ("/cancel!", "cancel the run at once (also Ctrl-C twice)"),
    ("/show [STEP]", "print the steps that have ended once more, or one of them"),
    ("/pending", "list what this run asks"),
    ("/cost", "say what the run has taken so far"),
    ("/detach", "leave the run as it is (also /leave); harborage resume continues it"),
    ("Ctrl-O · Ctrl-L", "show every call, or few lines again · draw the screen anew"),
    ("/help", "show this"),
)
"""What can be typed, and its effect."""

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})
_EDIT = frozenset({"e", "edit"})
_HOW_TO_ANSWER = (
    "answer y, n (a reason may follow), e to edit, r to allow the tool for this run, or always for these arguments"
)
_REMEMBER = {"r": "run", "always": "always"}
_ACTED = frozenset({"d", "done"})
_RETRY = frozenset({"a", "again"})
_UNKNOWN = frozenset({"u", "unknown"})
_BARE = frozenset({"/pause", "/resume", "/cancel", "/cancel!", "/leave", "/detach", "/pending", "/cost", "/help"})
# Decoding a text that is not JSON, not UTF-8, or nested too deeply.
_NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class Mode(StrEnum):
    """What the next line answers: no question, a call that needs approval, an interrupted call, a pause for approval, a
    pause for an answer, or the editing of arguments."""

    FREE = "free"
    APPROVAL = "approval"
    INTERRUPTED = "interrupted"
    CONFIRM = "confirm"
    PAUSE = "pause"
    EDIT = "edit"


class Message(msgspec.Struct, frozen=True):
    """A message to the agent."""

    text: str


class Pause(msgspec.Struct, frozen=True):
    """Pause the run."""


class Resume(msgspec.Struct, frozen=True):
    """Resume the paused run."""


class Cancel(msgspec.Struct, frozen=True):
    """Cancel the run after its next step, or at once."""

    is_hard: bool = False


class Leave(msgspec.Struct, frozen=True):
    """Leave the run as it is."""


class Redirect(msgspec.Struct, frozen=True):
    """Another goal."""

    goal: str


class Inject(msgspec.Struct, frozen=True):
    """Context for the planner."""

    context: dict[str, Any]


class Prioritize(msgspec.Struct, frozen=True):
    """Another priority."""

    priority: int


class Show(msgspec.Struct, frozen=True):
    """Print the steps that have ended; one of them if `step` is its number."""

    step: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """List what waits for a person."""


class Cost(msgspec.Struct, frozen=True):
    """Say what the run has taken so far."""


class Help(msgspec.Struct, frozen=True):
    """Show what can be typed."""


class Approve(msgspec.Struct, frozen=True):
    """Approve the call or the pause; `args` replace the arguments of the call, and `remember` is "run" or "always" for
    an approval that holds for calls like it, too."""

    reason: str = ""
    args: dict[str, Any] | None = None
    remember: str = ""


class Reject(msgspec.Struct, frozen=True):
    """Reject the call or the pause, or leave the outcome of an interrupted call unknown."""

    reason: str = ""


class Edit(msgspec.Struct, frozen=True):
    """Edit the arguments before approving."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to the question of a paused run."""

    message: str


class Retry(msgspec.Struct, frozen=True):
    """Make the interrupted call again."""


class Acted(msgspec.Struct, frozen=True):
    """The interrupted call acted, with this result."""

    result: Any = None


class Empty(msgspec.Struct, frozen=True):
    """An empty line."""


class Invalid(msgspec.Struct, frozen=True):
    """A line that is no valid answer; `message` says what is."""

    message: str


ParsedLine = (
    Message
    | Pause
    | Resume
    | Cancel
    | Leave
    | Redirect
    | Inject
    | Prioritize
    | Show
    | Waiting
    | Cost
    | Help
    | Approve
    | Reject
    | Edit
    | Answer
    | Retry
    | Acted
    | Empty
    | Invalid
)


def parse_line(line: str, mode: Mode, shown: Any = None, schema: dict[str, Any] | None = None) -> ParsedLine:
    """Parse a typed line in `mode`; `shown` are the arguments that are edited, and `schema` is the tool's."""
    text = line.strip()
    if not text:
        return Empty()
    if mode in {Mode.CONFIRM, Mode.PAUSE} and (text == "/reject" or text.startswith("/reject ")):
        return Reject(text.removeprefix("/reject").strip())
    if text.startswith("/"):
        return _parse_command(text)
    match mode:
        case Mode.APPROVAL:
            return _parse_approval(text)
        case Mode.INTERRUPTED:
            return _parse_outcome(text)
        case Mode.CONFIRM:
            decided = _parse_approval(text)
            return decided if decided == Approve() or isinstance(decided, Reject) else Answer(text)
        case Mode.PAUSE:
            return Answer(text)
        case Mode.EDIT:
            return parse_arguments(text, shown, schema)
        case Mode.FREE:
            return Message(text)


def _parse_approval(text: str) -> ParsedLine:
    word, _, reason = text.partition(" ")
    word = word.lower().rstrip(",.:")
    if word in _YES and not reason:
        return Approve()
    if word in _NO:
        return Reject(reason.strip())
    if word in _EDIT and not reason.strip():
        return Edit()
    if word in _REMEMBER and not reason.strip():
        return Approve(remember=_REMEMBER[word])
    return Invalid(_HOW_TO_ANSWER)


def _parse_outcome(text: str) -> ParsedLine:
    word, _, rest = text.partition(" ")
    word, rest = word.lower().rstrip(",.:"), rest.strip()
    if word in _ACTED:
        return Acted(parse_result(rest) if rest else None)
    if word in _RETRY and not rest:
        return Retry()
    if word in _UNKNOWN:
        return Reject(rest)
    return Invalid("answer done (a result may follow), again to make the call again, or unknown")


def parse_result(text: str) -> Any:
    """Parse the result of a call that a person typed: JSON, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except _NOT_JSON:
        return text


def parse_arguments(text: str, shown: Any, schema: dict[str, Any] | None = None) -> Approve | Invalid:
    """Parse edited arguments into an approval: a JSON object without masked values that fits the tool's schema, if that
    is known."""
    try:
        args = msgspec.json.decode(text)
    except _NOT_JSON as error:
        return Invalid(f"the arguments are not JSON: {error}")
    if not isinstance(args, dict):
        return Invalid('arguments are a JSON object; example: {"path": "a.txt"}')
    hidden = masked_places(shown)
    kept = [place for place, value in masked_places(args).items() if hidden.get(place) == value]
    if kept and args != shown:
        return Invalid(f"masked: {', '.join(kept)}; type the real value, or answer y without editing")
    if args == shown:
        return Approve()
    misfit = _misfit(args, schema)
    return Invalid(f"the tool does not take these arguments: {misfit}") if misfit else Approve(args=args)


def _misfit(args: dict[str, Any], schema: dict[str, Any] | None) -> str:
    """Why a tool does not take the arguments; empty when it does, or when only its worker can check."""
    if not schema:
        return ""
    try:
        schema_validator(schema, "args_schema")(args)
    except ToolInvalidArgsError as error:
        return str(error)
    except UnsupportedTypeError:
        return ""
    return ""


def _parse_command(text: str) -> ParsedLine:
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    match word:
        case _ if rest and word in _BARE:
            return Invalid(f"{word} takes no text")
        case "/show":
            return _parse_show(rest)
        case "/pending":
            return Waiting()
        case "/cost":
            return Cost()
        case "/pause":
            return Pause()
        case "/resume":
            return Resume()
        case "/cancel":
            return Cancel()
        case "/cancel!":
            return Cancel(is_hard=True)
        case "/leave" | "/detach":
            return Leave()
        case "/help" | "/?":
            return Help()
        case "/say":
            return Message(rest) if rest else Invalid("/say needs a message; example: /say use the second table")
        case "/goal":
            return Redirect(rest) if rest else Invalid("/goal needs a goal; example: /goal write the summary first")
        case "/context":
            return _parse_context(rest)
        case "/priority":
            return _parse_priority(rest)
        case _:
            return Invalid(f"no command {word}; list them: /help")


def _parse_show(step: str) -> Show | Invalid:
    if step and not step.isdecimal():
        return Invalid("/show takes the number of a step; example: /show 3")
    return Show(step)


def _parse_context(text: str) -> Inject | Invalid:
    try:
        context = msgspec.json.decode(text)
    except _NOT_JSON:
        context = None
    if not isinstance(context, dict):
        return Invalid('/context needs a JSON object; example: /context {"branch": "main"}')
    return Inject(context)


def _parse_priority(text: str) -> Prioritize | Invalid:
    try:
        return Prioritize(int(text))
    except ValueError:
        return Invalid("/priority needs a whole number; example: /priority 10")
