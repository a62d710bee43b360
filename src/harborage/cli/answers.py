"""What a typed line means: at an approval, at a pause, while arguments are edited, and at any other time. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from harborage.cli.text import hidden_places
from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.schema import schema_validator

__all__ = [
    "HELP",
    "Again",
    "Allow",
    "Answer",
    "Cancel",
    "Done",
    "Edit",
    "Go",
    "Help",
    "Inject",
    "Leave",
    "Mode",
    "Nothing",
    "Prioritize",
    "Redirect",
    "Refuse",
    "Say",
    "Stop",
    "Typed",
    "Wrong",
    "edited",
    "meaning",
    "result_of",
]

HELP = (
    ("any text", "tell the agent something; it sees it at its next step"),
    ("/say TEXT", "the same, also while a question is open"),
    ("/pause", "park the run at its next step"),
    ("/resume", "let the parked run go on"),
    ("/goal TEXT", "give the run another goal"),
    ("/context JSON", "give the planner a JSON object"),
    ("/priority N", "change the priority of the run's task"),
    ("/cancel", "end the run after the planner's next answer (also Ctrl-C)"),
    ("/cancel!", "end the run at once (also Ctrl-C twice)"),
    ("/leave", "leave the run as it stands; harborage resume goes on"),
    ("/help", "show this"),
)
"""What can be typed, and what it does."""

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})
_EDIT = frozenset({"e", "edit"})
_DONE = frozenset({"d", "done"})
_AGAIN = frozenset({"a", "again"})
_UNKNOWN = frozenset({"u", "unknown"})
# What reading a text as JSON raises: it is none, it is no UTF-8, or it is nested deeper than anybody means.
_NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class Mode(StrEnum):
    """What the next line answers: nothing, a call that needs approval, one that was interrupted, a run that waits for a
    yes, or for words."""

    FREE = "free"
    APPROVAL = "approval"
    DOUBT = "doubt"
    CONSENT = "consent"
    PAUSE = "pause"
    EDIT = "edit"


class Say(msgspec.Struct, frozen=True):
    """A message to the agent."""

    text: str


class Stop(msgspec.Struct, frozen=True):
    """Park the run."""


class Go(msgspec.Struct, frozen=True):
    """Let the parked run go on."""


class Cancel(msgspec.Struct, frozen=True):
    """End the run, softly or at once."""

    is_hard: bool = False


class Leave(msgspec.Struct, frozen=True):
    """Leave the run as it stands."""


class Redirect(msgspec.Struct, frozen=True):
    """Another goal."""

    goal: str


class Inject(msgspec.Struct, frozen=True):
    """Context for the planner."""

    context: dict[str, Any]


class Prioritize(msgspec.Struct, frozen=True):
    """Another priority."""

    priority: int


class Help(msgspec.Struct, frozen=True):
    """Show what can be typed."""


class Allow(msgspec.Struct, frozen=True):
    """Yes: the call may run, with `args` in place of its own if they are given."""

    reason: str = ""
    args: dict[str, Any] | None = None


class Refuse(msgspec.Struct, frozen=True):
    """No."""

    reason: str = ""


class Edit(msgspec.Struct, frozen=True):
    """Change the arguments first."""


class Answer(msgspec.Struct, frozen=True):
    """What a paused run waited to hear."""

    message: str


class Again(msgspec.Struct, frozen=True):
    """The call that was interrupted shall be made again."""


class Done(msgspec.Struct, frozen=True):
    """The call that was interrupted had acted; `result` is what came of it."""

    result: Any = None


class Nothing(msgspec.Struct, frozen=True):
    """An empty line: it answers nothing."""


class Wrong(msgspec.Struct, frozen=True):
    """A line that means nothing here; `message` says what would."""

    message: str


Typed = (
    Say
    | Stop
    | Go
    | Cancel
    | Leave
    | Redirect
    | Inject
    | Prioritize
    | Help
    | Allow
    | Refuse
    | Edit
    | Answer
    | Again
    | Done
    | Nothing
    | Wrong
)


def meaning(line: str, mode: Mode, shown: Any = None, schema: dict[str, Any] | None = None) -> Typed:
    """What `line` means in `mode`; `shown` are the arguments that were shown to be edited, which must fit `schema`."""
    text = line.strip()
    if not text:
        return Nothing()
    if mode in {Mode.CONSENT, Mode.PAUSE} and (text == "/reject" or text.startswith("/reject ")):
        return Refuse(text.removeprefix("/reject").strip())
    if text.startswith("/"):
        return _command(text)
    match mode:
        case Mode.APPROVAL:
            return _approval(text)
        case Mode.DOUBT:
            return _doubt(text)
        case Mode.CONSENT:
            decided = _approval(text)
            return decided if isinstance(decided, Allow | Refuse) else Answer(text)
        case Mode.PAUSE:
            return Answer(text)
        case Mode.EDIT:
            return edited(text, shown, schema)
        case Mode.FREE:
            return Say(text)


def _approval(text: str) -> Typed:
    word, _, reason = text.partition(" ")
    word = word.lower().rstrip(",.:")
    if word in _YES and not reason:
        return Allow()
    if word in _NO:
        return Refuse(reason.strip())
    if word in _EDIT and not reason.strip():
        return Edit()
    return Wrong("answer just y (yes), n (no, with a reason if you like) or e (edit the arguments)")


def _doubt(text: str) -> Typed:
    word, _, rest = text.partition(" ")
    word, rest = word.lower().rstrip(",.:"), rest.strip()
    if word in _DONE:
        return Done(result_of(rest) if rest else None)
    if word in _AGAIN and not rest:
        return Again()
    if word in _UNKNOWN:
        return Refuse(rest)
    return Wrong("answer done (with what came of it, if you know), again (make the call again) or unknown")


def result_of(text: str) -> Any:
    """What a call gave, as a person writes it: JSON, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except _NOT_JSON:
        return text


def edited(text: str, shown: Any, schema: dict[str, Any] | None = None) -> Allow | Wrong:
    """The approval with the arguments in `text`, which must be a JSON object that holds nothing masked and, where the
    schema of the tool's arguments is known, fits it."""
    try:
        args = msgspec.json.decode(text)
    except _NOT_JSON as error:
        return Wrong(f"that is not JSON: {error}")
    if not isinstance(args, dict):
        return Wrong('arguments are a JSON object, such as {"path": "a.txt"}')
    hidden = hidden_places(shown)
    kept = [place for place, value in hidden_places(args).items() if hidden.get(place) == value]
    if kept and args != shown:
        return Wrong(f"{', '.join(kept)}: hidden here; write the real value in its place, or answer y without editing")
    if args == shown:
        return Allow()
    misfit = _misfit(args, schema)
    return Wrong(f"the tool does not take that: {misfit}") if misfit else Allow(args=args)


def _misfit(args: dict[str, Any], schema: dict[str, Any] | None) -> str:
    """Why a tool does not take arguments; empty when it does, or when only its worker can tell."""
    if not schema:
        return ""
    try:
        schema_validator(schema, "args_schema")(args)
    except ToolInvalidArgsError as error:
        return str(error)
    except UnsupportedTypeError:
        return ""
    return ""


def _command(text: str) -> Typed:
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    match word:
        case "/pause" | "/resume" | "/cancel" | "/cancel!" | "/leave" | "/help" if rest:
            return Wrong(f"{word} takes nothing behind it")
        case "/pause":
            return Stop()
        case "/resume":
            return Go()
        case "/cancel":
            return Cancel()
        case "/cancel!":
            return Cancel(is_hard=True)
        case "/leave":
            return Leave()
        case "/help" | "/?":
            return Help()
        case "/say":
            return Say(rest) if rest else Wrong("/say needs something to tell the agent: /say use the second table")
        case "/goal":
            return Redirect(rest) if rest else Wrong("/goal needs the new goal: /goal write the summary first")
        case "/context":
            return _context(rest)
        case "/priority":
            return _priority(rest)
        case _:
            return Wrong(f"there is no {word}; /help lists what can be typed")


def _context(text: str) -> Inject | Wrong:
    try:
        context = msgspec.json.decode(text)
    except _NOT_JSON:
        context = None
    if not isinstance(context, dict):
        return Wrong('/context needs a JSON object: /context {"branch": "main"}')
    return Inject(context)


def _priority(text: str) -> Prioritize | Wrong:
    try:
        return Prioritize(int(text))
    except ValueError:
        return Wrong("/priority needs a whole number: /priority 10")
