"""The open questions of a run in order, and how one is shown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from harborage.app import Change
from harborage.cli.answers import Mode
from harborage.cli.handles import LENGTH
from harborage.cli.pane import Pane
from harborage.cli.text import compact, duration, masked, masked_places, plural, pretty, printable, wrapped
from harborage.planner import PauseReason
from harborage.runtime.effects.interrupted import QUESTION
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.runtime.loop.workflow_waits import value_of_answer

if TYPE_CHECKING:
    from harborage.runtime.pauses import Pause

_INDENT = " " * 6
_BAR = "│ "
_SHORT = 72
_NARROWEST = 20
_YES_OR_NO = {"type": "boolean"}
_CONTEXT_LINES = 3
_CALL_KEYS = "e edit the arguments · r allow for this run"
_WHY_INTERRUPTED = "its worker was lost during the call; it may have acted"
_ROW_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One open question: about a call, with `tool` and `args`, or about a run that is paused.

    The call needs approval, or it `is_interrupted` and may have acted. `change` is what it would change and
    `args_schema` what its tool takes, as far as that is known.
    """

    token: str
    run_id: str
    label: str = ""
    reason: str = ""
    tool: str = ""
    args: Any = None
    is_interrupted: bool = False
    change: Change | None = None
    args_schema: dict[str, Any] | None = None
    payload: dict[str, Any] = {}
    deadline: datetime | None = None

    @property
    def mode(self) -> Mode:
        """How an answer to this is parsed."""
        if self.is_interrupted:
            return Mode.INTERRUPTED
        if self.tool:
            return Mode.APPROVAL
        return Mode.CONFIRM if self.takes_yes_or_no else Mode.PAUSE

    @property
    def command(self) -> str:
        """The command line that answers it, with the handle of its run."""
        return f"harborage {'approve' if self.takes_yes_or_no else 'answer'} {self.run_id[-LENGTH:]}"

    @property
    def takes_yes_or_no(self) -> bool:
        """Whether a plain yes answers it."""
        if self.is_interrupted:
            return False
        is_yes_or_no = self.payload.get("schema") == _YES_OR_NO
        return bool(self.tool) or self.reason == PauseReason.APPROVAL_REQUIRED or is_yes_or_no

    @property
    def subject(self) -> str:
        """The tool, or the reason of the pause."""
        return printable(self.tool or self.reason, keep="")

    def misfit(self, text: str) -> str:
        """Why a typed text does not answer a question that takes values of one type; empty when it does."""
        return misfit_of(self.payload, text)


def misfit_of(payload: Mapping[str, Any], text: str) -> str:
    """Why a typed text does not answer the question of a pause with this payload; empty when it does, or when the
    payload does not say of which type an answer is."""
    schema = payload.get("schema")
    if not isinstance(schema, dict):
        return ""
    try:
        value_of_answer(schema, {"message": text})
    except PayloadInvalidError as error:
        return f"{error}; it takes {compact(schema)}"
    return ""


def is_approval(pause: Pause) -> bool:
    """Whether a pause is that of a call that needs approval."""
    return {"tool", "fingerprint"} <= (pause.payload or {}).keys() and not is_interrupted_call(pause)


def is_interrupted_call(pause: Pause) -> bool:
    """Whether a pause asks for the outcome of an interrupted call."""
    payload = pause.payload or {}
    return payload.get("question") == QUESTION and "tool" in payload


def is_held_by_control(pause: Pause) -> bool:
    """Whether a control paused the run; that asks nothing, and another control resumes it."""
    return (pause.payload or {}).get("requested_by") == "steering"


def question_of(pause: Pause, label: str = "") -> Question | None:
    """Return the question of a pause; None for a run that a control paused."""
    if is_held_by_control(pause):
        return None
    payload = dict(pause.payload or {})
    common: dict[str, Any] = {
        "token": pause.token,
        "run_id": pause.identity.run_id,
        "label": label,
        "deadline": pause.deadline,
    }
    if is_interrupted_call(pause):
        tool, args = str(payload["tool"]), shown_args(payload.get("args_summary"))
        return Question(reason=str(pause.reason), tool=tool, args=args, is_interrupted=True, **common)
    if is_approval(pause):
        reason, tool = str(payload.get("reason", "")), str(payload["tool"])
        args, schema = shown_args(payload.get("args_summary")), schema_of(pause)
        return Question(reason=reason, tool=tool, args=args, args_schema=schema, **common)
    return Question(reason=str(pause.reason), payload=payload, **common)


def schema_of(pause: Pause) -> dict[str, Any] | None:
    """Return the JSON Schema of the arguments that the tool takes; None if the pause does not have it."""
    schema = (pause.payload or {}).get("args_schema")
    return schema if isinstance(schema, dict) else None


class QuestionQueue:
    """The unanswered questions, oldest first; one at a time is shown, in its `pane` if it is long."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}
        self._answered: set[str] = set()
        self.is_editing = False
        self.pane: Pane | None = None

    @property
    def current(self) -> Question | None:
        """The question that is shown now."""
        return next(iter(self._open.values()), None)

    @property
    def token(self) -> str:
        """The token of the question that is shown now; empty when none is."""
        return next(iter(self._open), "")

    @property
    def mode(self) -> Mode:
        """How the next line is parsed."""
        question = self.current
        if question is None:
            return Mode.FREE
        return Mode.EDIT if self.is_editing else question.mode

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Question]:
        return iter([*self._open.values()])

    def has_seen(self, token: str) -> bool:
        """Whether this question was added before, answered or not."""
        return token in self._open or token in self._answered

    def add(self, question: Question) -> bool:
        """Add a question; True when it is to be shown now, False when others come first or it was added before."""
        if self.has_seen(question.token):
            return False
        self._open[question.token] = question
        return len(self._open) == 1

    def close(self, token: str) -> bool:
        """Remove a question that is answered, here or elsewhere; True when it was shown, so that the next is due."""
        self._answered.add(token)
        question = self.current
        is_current = question is not None and question.token == token
        self._open.pop(token, None)
        if is_current:
            self.is_editing = False
            self.pane = None
        return is_current

    def reopen(self, question: Question) -> bool:
        """Add a question again whose answer was not counted; True when it is to be shown now."""
        self._answered.discard(question.token)
        return self.add(question)


def pane_of(question: Question, now: datetime) -> Pane:
    """Return a long question, to scroll below its title."""

    def title(width: int) -> list[Text]:
        return _title(question, max(width, _NARROWEST))

    def body(width: int) -> list[Text]:
        return render_question(question, now, width)[1 + len(title(width)) :]

    return Pane(title, body)


def render_scrolled(question: Question, pane: Pane, width: int) -> list[Text]:
    """Render what stays on the screen of a question that scrolled."""
    far = "shown to its end" if pane.is_read else "not shown to its end"
    return [Text(), *_title(question, max(width, _NARROWEST)), Text(f"{_INDENT}{plural(pane.length, 'line')}, {far}")]


def render_with_keys(question: Question, now: datetime, width: int) -> list[Text]:
    """Render a question for `width` columns, with the answers that can be typed."""
    return [*render_question(question, now, width), *_keys(question, max(width, _NARROWEST))]


def render_question(question: Question, now: datetime, width: int) -> list[Text]:
    """Render all that a question is about, uncut: the approver must see all of it.

    No row is wider than `width` columns, so that no terminal wraps it: text of a model never begins a line.
    """
    room = max(width, _NARROWEST)
    lines = [Text(), *_title(question, room)]
    if question.is_interrupted:
        lines += [*_facts({"why": _WHY_INTERRUPTED}, 1, room), *_arguments(question.args, None, room)]
    elif question.tool:
        lines += [*_facts({"why": printable(question.reason)}, 1, room)]
        lines += _arguments(question.args, question.change, room)
    else:
        shown = {"takes" if key == "schema" else key: _plain(value) for key, value in question.payload.items()}
        lines += _facts(shown, 1, room)
    if question.deadline is not None:
        left = (question.deadline - now).total_seconds()
        lines += _facts({"expires": f"in {duration(left)}" if left > 0 else "now"}, 1, room)
    return lines


def _arguments(args: Any, change: Change | None, width: int) -> list[Text]:
    if not isinstance(args, Mapping) or not args:
        return _facts({"arguments": _exact(args)}, 1, width)
    shown = {key: _exact(value) for key, value in args.items()}
    if change is not None:
        shown[change.field] = f"{_lines(change.after)}, compared with the present text:"
    lines = [Text(f"{_INDENT}arguments", style="dim"), *_facts(shown, 2, width)]
    return lines if change is None else [*lines, *_compared(change, width)]


def _lines(text: str) -> str:
    return plural(text.count("\n") + (not text.endswith("\n")), "line")


def _compared(change: Change, width: int) -> Iterator[Text]:
    """Render the change as `diff -u` does. Secrets are masked in both texts, so they never differ."""
    before, after = str(masked(change.before)), str(masked(change.after))
    rows = list(unified_diff(before.split("\n"), after.split("\n"), n=_CONTEXT_LINES, lineterm=""))[2:]
    if masked_places(before) or masked_places(after):
        rows.append("@ masked values are not compared")
    for row in rows or ["nothing changes"]:
        yield from _behind(f"{_INDENT}  ", printable(row, keep=chr(9)), width, _ROW_STYLES.get(row[:1], "dim"))
    if change.objection:
        text = f"the call will fail: {printable(change.objection)}"
        yield from _rows(text, f"{_INDENT}  ", width, "yellow")


def render_reminder(question: Question, width: int) -> list[Text]:
    """Render the question in short, for a person who has seen all of it."""
    room = max(width, _NARROWEST)
    return [*_title(question, room), *_keys(question, room)]


def _title(question: Question, width: int) -> list[Text]:
    whose = f" ({question.label})" if question.label else ""
    before, after = "", f"{whose} needs your approval"
    if question.is_interrupted:
        before, after = "", f"{whose} may have acted; what is its outcome?"
    elif not question.tool:
        before, after = f"The run{whose} waits: ", ""
    first, *more = wrapped(f"{before}{question.subject}{after}", width - 2)
    line = Text.assemble(("? ", "bold yellow"), first)
    line.stylize("bold", 2 + len(before), 2 + len(before) + len(question.subject))
    return [line, *(Text(f"  {row}") for row in more)]


def _keys(question: Question, width: int) -> list[Text]:
    if question.is_interrupted:
        keys = "done [result] it acted · again make the call again · unknown [reason] leave it unknown"
    else:
        yes = "y yes · n [reason] no · " if question.takes_yes_or_no else ""
        keys = f"{yes}{_CALL_KEYS if question.tool else 'type an answer · /reject [reason]'}"
    return [Text(f"{_INDENT}{row}", style="yellow") for row in wrapped(keys, width - len(_INDENT))]


def _plain(value: Any) -> str:
    """A value of a pause's payload: text as it is, anything else as JSON."""
    return printable(value) if isinstance(value, str) else _exact(value)


def _exact(value: Any) -> str:
    """An argument of a call as JSON, but text of several lines as such lines, each after a bar."""
    if isinstance(value, str) and "\n" in value:
        return "\n".join(f"{_BAR}{printable(text, keep=chr(9))}" for text in value.split("\n"))
    short = printable(compact(value))
    return short if len(short) <= _SHORT else pretty(value)


def _facts(facts: Mapping[str, str], depth: int, width: int) -> list[Text]:
    """Render names and values in two columns; further lines of a value are below its first, wrapped ones after a bar.

    When the names leave too little room, each is on a line of its own with its value below.
    """
    names = {printable(name, keep=""): text for name, text in facts.items() if text}
    column = max(map(cell_len, names), default=0)
    indent = _INDENT + "  " * (depth - 1)
    is_narrow = width - len(indent) - column - 2 < min(_SHORT, width // 2)
    lines: list[Text] = []
    for name, text in names.items():
        if is_narrow:
            lines += _behind(indent, name, width, "dim")
            values = _rows(text, f"{indent}  ", width)
        else:
            hanging = " " * (len(indent) + column + 2)
            values = _rows(text, hanging, width)
            first = values.pop(0).plain[len(hanging) :]
            lines.append(Text.assemble(indent, (set_cell_size(name, column) + "  ", "dim"), first))
        lines += values
    return lines


def _rows(text: str, indent: str, width: int, style: str = "") -> list[Text]:
    return [row for line in text.split("\n") for row in _behind(indent, line, width, style)]


def _behind(indent: str, line: str, width: int, style: str = "") -> list[Text]:
    """Indent a line; what does not fit continues on rows with the same indent and a bar."""
    bar = _BAR if line.startswith(_BAR) else ""
    first, *more = wrapped(line.removeprefix(bar), width - len(indent) - len(_BAR))
    return [Text(f"{indent}{bar}{first}", style=style), *(Text(f"{indent}{_BAR}{row}", style=style) for row in more)]


def shown_args(args_summary: Any) -> Any:
    """Return the arguments in a summary, which also names the tool; older pauses have the arguments alone."""
    if isinstance(args_summary, Mapping) and set(args_summary) == {"args", "tool"}:
        return args_summary["args"]
    return args_summary
