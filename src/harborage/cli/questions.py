"""What a run waits to hear from a person: the open questions in order, and how one is put. Pure."""

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
from harborage.cli.text import compact, duration, hidden_places, masked, plural, pretty, printable, wrapped
from harborage.planner import PauseReason
from harborage.runtime.agent.doubts import QUESTION

if TYPE_CHECKING:
    from harborage.runtime.pauses import Pause

__all__ = [
    "Desk",
    "Question",
    "announced_args",
    "described",
    "is_doubt",
    "is_gate",
    "put",
    "put_again",
    "question_of",
    "schema_of",
]

_INDENT = " " * 6
_BAR = "│ "
_SHORT = 72
_NARROWEST = 20
_CONTEXT_LINES = 3
_WHY_IN_DOUBT = "it was under way when its process died: nobody knows whether it acted"
_ROW_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One open question. `tool` is set for a call, which `args` are for; else a run is paused.

    The call needs approval, or `is_doubt`: it was interrupted, and nobody knows whether it acted. `change` is what the
    call would change, and `args_schema` what arguments its tool takes, if that is known.
    """

    token: str
    run_id: str
    label: str = ""
    reason: str = ""
    tool: str = ""
    args: Any = None
    is_doubt: bool = False
    change: Change | None = None
    args_schema: dict[str, Any] | None = None
    payload: dict[str, Any] = {}
    deadline: datetime | None = None

    @property
    def mode(self) -> Mode:
        """How a line is read that answers this."""
        if self.is_doubt:
            return Mode.DOUBT
        if self.tool:
            return Mode.APPROVAL
        return Mode.CONSENT if self.wants_yes_or_no else Mode.PAUSE

    @property
    def wants_yes_or_no(self) -> bool:
        """Whether a plain yes answers it."""
        return not self.is_doubt and (bool(self.tool) or self.reason == PauseReason.APPROVAL_REQUIRED)

    @property
    def subject(self) -> str:
        """What it is about, in a few words."""
        return printable(self.tool or self.reason, keep="")


def is_gate(pause: Pause) -> bool:
    """Whether a pause is that of a gated call; the gate announces it itself when it is ready to hear the answer."""
    return {"tool", "fingerprint"} <= (pause.payload or {}).keys() and not is_doubt(pause)


def is_doubt(pause: Pause) -> bool:
    """Whether a pause asks what became of a call that was interrupted."""
    payload = pause.payload or {}
    return payload.get("question") == QUESTION and "tool" in payload


def is_held(pause: Pause) -> bool:
    """Whether somebody parked the run by a control; that asks nothing, /resume lets it go on."""
    return (pause.payload or {}).get("requested_by") == "steering"


def question_of(pause: Pause, label: str = "") -> Question | None:
    """The question that a pause puts; None for a run that somebody parked."""
    if is_held(pause):
        return None
    payload = dict(pause.payload or {})
    common: dict[str, Any] = {
        "token": pause.token,
        "run_id": pause.identity.run_id,
        "label": label,
        "deadline": pause.deadline,
    }
    if is_doubt(pause):
        tool, args = str(payload["tool"]), announced_args(payload.get("args_summary"))
        return Question(reason=str(pause.reason), tool=tool, args=args, is_doubt=True, **common)
    if is_gate(pause):
        reason, tool = str(payload.get("reason", "")), str(payload["tool"])
        args, schema = announced_args(payload.get("args_summary")), schema_of(pause)
        return Question(reason=reason, tool=tool, args=args, args_schema=schema, **common)
    return Question(reason=str(pause.reason), payload=payload, **common)


def schema_of(pause: Pause) -> dict[str, Any] | None:
    """The JSON Schema of the arguments that the tool of a gated call takes; None where the pause does not hold it."""
    schema = (pause.payload or {}).get("args_schema")
    return schema if isinstance(schema, dict) else None


class Desk:
    """The questions that nobody has answered yet, oldest first; one at a time is put."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}
        self._answered: set[str] = set()
        self.is_editing = False

    @property
    def current(self) -> Question | None:
        """The question that is put now."""
        return next(iter(self._open.values()), None)

    @property
    def token(self) -> str:
        """The token of the question that is put now; empty when none is."""
        return next(iter(self._open), "")

    @property
    def mode(self) -> Mode:
        """How the next line is read."""
        question = self.current
        if question is None:
            return Mode.FREE
        return Mode.EDIT if self.is_editing else question.mode

    def __len__(self) -> int:
        return len(self._open)

    def knows(self, token: str) -> bool:
        """Whether this question was put here, answered or not."""
        return token in self._open or token in self._answered

    def add(self, question: Question) -> bool:
        """Take a question in; True when it is the one to put now, False when others come first or it is known."""
        if self.knows(question.token):
            return False
        self._open[question.token] = question
        return len(self._open) == 1

    def close(self, token: str) -> bool:
        """The question is answered, here or elsewhere; True when it was the one that was put, so the next is due."""
        self._answered.add(token)
        question = self.current
        is_current = question is not None and question.token == token
        self._open.pop(token, None)
        if is_current:
            self.is_editing = False
        return is_current

    def reopen(self, question: Question) -> bool:
        """Put a question back whose answer did not count; True when it is the one to put now."""
        self._answered.discard(question.token)
        return self.add(question)


def put(question: Question, now: datetime, width: int) -> list[Text]:
    """A question as it is put on a screen of so many columns, with what can be typed."""
    return [*described(question, now, width), *_keys(question, max(width, _NARROWEST))]


def described(question: Question, now: datetime, width: int) -> list[Text]:
    """What a question asks about, complete: who decides must see all of it.

    No row is wider than a screen of `width` columns, so that it breaks none: text of a model never begins a line.
    """
    room = max(width, _NARROWEST)
    lines = [Text(), *_title(question, room)]
    if question.is_doubt:
        lines += [*_facts({"why": _WHY_IN_DOUBT}, 1, room), *_arguments(question.args, None, room)]
    elif question.tool:
        lines += [*_facts({"why": printable(question.reason)}, 1, room)]
        lines += _arguments(question.args, question.change, room)
    else:
        lines += _facts({key: _told(value) for key, value in question.payload.items()}, 1, room)
    if question.deadline is not None:
        left = (question.deadline - now).total_seconds()
        lines += _facts({"expires": f"in {duration(left)}" if left > 0 else "now"}, 1, room)
    return lines


def _arguments(args: Any, change: Change | None, width: int) -> list[Text]:
    if not isinstance(args, Mapping) or not args:
        return _facts({"arguments": _exact(args)}, 1, width)
    shown = {key: _exact(value) for key, value in args.items()}
    if change is not None:
        shown[change.field] = f"{_lines(change.after)}, compared with what is there:"
    lines = [Text(f"{_INDENT}arguments", style="dim"), *_facts(shown, 2, width)]
    return lines if change is None else [*lines, *_compared(change, width)]


def _lines(text: str) -> str:
    return plural(text.count("\n") + (not text.endswith("\n")), "line")


def _compared(change: Change, width: int) -> Iterator[Text]:
    """The change, line by line as `diff -u` shows it. Secrets are masked in both texts, so they are no difference."""
    before, after = str(masked(change.before)), str(masked(change.after))
    rows = list(unified_diff(before.split("\n"), after.split("\n"), n=_CONTEXT_LINES, lineterm=""))[2:]
    if hidden_places(before) or hidden_places(after):
        rows.append("@ what is hidden is not compared")
    for row in rows or ["nothing changes"]:
        yield from _behind(f"{_INDENT}  ", printable(row, keep=chr(9)), width, _ROW_STYLES.get(row[:1], "dim"))
    if change.objection:
        text = f"as it stands the call will fail: {printable(change.objection)}"
        yield from _rows(text, f"{_INDENT}  ", width, "yellow")


def put_again(question: Question, width: int) -> list[Text]:
    """The same question in short, for somebody who saw all of it."""
    room = max(width, _NARROWEST)
    return [*_title(question, room), *_keys(question, room)]


def _title(question: Question, width: int) -> list[Text]:
    whose = f" ({question.label})" if question.label else ""
    before, after = "", f"{whose} needs your approval"
    if question.is_doubt:
        before, after = "What became of ", f"{whose}?"
    elif not question.tool:
        before, after = f"The run{whose} waits: ", ""
    first, *more = wrapped(f"{before}{question.subject}{after}", width - 2)
    line = Text.assemble(("? ", "bold yellow"), first)
    line.stylize("bold", 2 + len(before), 2 + len(before) + len(question.subject))
    return [line, *(Text(f"  {row}") for row in more)]


def _keys(question: Question, width: int) -> list[Text]:
    if question.is_doubt:
        keys = "done [result] it acted · again make the call again · unknown [reason] leave it open"
    else:
        yes = "y yes · n [reason] no · " if question.wants_yes_or_no else ""
        keys = f"{yes}{'e edit the arguments' if question.tool else 'type an answer · /reject [reason]'}"
    return [Text(f"{_INDENT}{row}", style="yellow") for row in wrapped(keys, width - len(_INDENT))]


def _told(value: Any) -> str:
    """A value of a question's payload, which is there to be read: text as it is."""
    return printable(value) if isinstance(value, str) else _exact(value)


def _exact(value: Any) -> str:
    """A value that will be acted upon: as JSON, but text of several lines as such lines, each behind a bar."""
    if isinstance(value, str) and "\n" in value:
        return "\n".join(f"{_BAR}{printable(text, keep=chr(9))}" for text in value.split("\n"))
    short = printable(compact(value))
    return short if len(short) <= _SHORT else pretty(value)


def _facts(facts: Mapping[str, str], depth: int, width: int) -> list[Text]:
    """Names and values in two columns; a value's further lines stand under its first, what is wrapped behind a bar.

    Where the names leave too little room, each stands on a line of its own, and its value under it.
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
    """A line behind its indent; what does not fit goes on behind the same indent and a bar."""
    bar = _BAR if line.startswith(_BAR) else ""
    first, *more = wrapped(line.removeprefix(bar), width - len(indent) - len(_BAR))
    return [Text(f"{indent}{bar}{first}", style=style), *(Text(f"{indent}{_BAR}{row}", style=style) for row in more)]


def announced_args(args_summary: Any) -> Any:
    """The arguments inside a summary, which names the tool as well; pauses of earlier versions hold them alone."""
    if isinstance(args_summary, Mapping) and set(args_summary) == {"args", "tool"}:
        return args_summary["args"]
    return args_summary
