"""Values, times and sizes in a form that fits on a line. Pure.

Text of tools and models passes through here before it reaches a terminal: secrets are masked, and control characters
are spelled out, so that no result can move the cursor or imitate a question.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TextIO

import msgspec
from rich.cells import cell_len, chop_cells

from harborage import codec
from harborage.events import RedactionFailedError, wire_time
from harborage.events.redaction import default_redactor

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_TIMES = frozenset({"deadline", "since", "until"})
# Text of tools, models and people is left as it is.
_FOREIGN = frozenset({"answer", "background", "metadata", "observation", "payload", "seen"})
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)")
_HIDDEN = ("***", "[redacted: ")
# Format characters that reorder text could make a question read differently.
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Return `text` with control and invisible format characters spelled out, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(char if char in keep or not _is_hidden(char) else _spelled(char) for char in text)


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE and char not in _JOINERS


def _spelled(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` with secrets masked, on one line of at most `limit` characters, white space collapsed."""
    text = str(masked(text))
    line = printable(" ".join(text[: limit * 4].split()))
    if len(line) <= limit and len(text) <= limit * 4:
        return line
    return f"{line[: limit - 1].rstrip('…')}…"


def wrapped(text: str, width: int) -> list[str]:
    """Return `text` in rows of at most `width` columns, wrapped after a space if one is near.

    Tabs become spaces, and no other character is lost. A row may begin with white space: it is written after an indent.
    """
    rows, rest = [], text.expandtabs(8)
    while cell_len(rest) > width:
        row = chop_cells(rest, width)[0]
        behind = row.rfind(" ") + 1
        cut = behind if behind > len(row) // 2 else len(row)
        rows.append(rest[:cut])
        rest = rest[cut:]
    return [*rows, rest]


def fit_terminal(lines: Iterable[str], stream: TextIO) -> list[str]:
    """Return the lines wrapped by words to the width of the terminal `stream`; as they are when it is no terminal."""
    width = terminal_width(stream)
    return list(lines) if width is None else [row for line in lines for row in fit_line(line, width)]


def fit_line(line: str, width: int) -> list[str]:
    """Return `line` in rows of at most `width` columns; rows after the first are indented by two columns more."""
    if cell_len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    first = wrapped(line, width)[0]
    rest = wrapped(line[len(first) :].lstrip(), max(8, width - len(indent)))
    return [first.rstrip(), *(f"{indent}{row.rstrip()}" for row in rest)]


def terminal_width(stream: TextIO) -> int | None:
    """Return the width of the terminal `stream` in columns; None when it is no terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def masked(value: Any) -> Any:
    """Return `value` with secrets and binary bodies masked; one that cannot be masked is not shown at all."""
    try:
        return default_redactor().redact(value)
    except RedactionFailedError:
        return "[not shown: it could not be redacted]"


def wire_json(data: bytes) -> str:
    """Return JSON as every command prints it: identities and times have the form of the events of `--json`."""
    return codec.encode(_in_wire_form(codec.decode(data))).decode()


def _in_wire_form(value: Any, key: str = "") -> Any:
    match value:
        case {"TenantID": tenant, "UserID": user, "SessionID": session, **rest} if rest.keys() <= {"RunID"}:
            return {"tenant": tenant, "user": user, "session": session, **({"run": rest["RunID"]} if rest else {})}
        case dict():
            return {name: inner if name in _FOREIGN else _in_wire_form(inner, name) for name, inner in value.items()}
        case list():
            return [_in_wire_form(inner, key) for inner in value]
        case str(text) if (key.endswith("_at") or key in _TIMES) and _ISO.fullmatch(text):
            return wire_time(datetime.fromisoformat(text))
        case _:
            return value


def shortened(value: Any, limit: int = 160) -> str:
    """Return a value on one line: text as it is, anything else as JSON; empty for None."""
    match masked(value):
        case None:
            return ""
        case str(text):
            return one_line(text, limit)
        case other:
            return one_line(compact(other), limit)


def arguments(args: Any, limit: int = 160) -> str:
    """Return the arguments of a call, such as `path="a", deep=true`; long ones share the room."""
    clean = masked(args)
    if not isinstance(clean, Mapping):
        return shortened(args, limit)
    room = max(16, limit // max(1, len(clean)) - 4)
    return one_line(", ".join(f"{key}={one_line(compact(value), room)}" for key, value in clean.items()), limit)


def pretty(value: Any) -> str:
    """Return a value in full, as indented JSON; not masked, because an approver decides about it."""
    return printable(msgspec.json.format(compact(value), indent=2))


def masked_places(value: Any, path: str = "") -> dict[str, str]:
    """Return the path of each masked text in a value, and that text."""
    match value:
        case str(text) if any(mark in text for mark in _HIDDEN):
            return {path: text}
        case Mapping():
            items = [(f"{path}.{key}".lstrip("."), inner) for key, inner in value.items()]
        case list() | tuple():
            items = [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
        case _:
            return {}
    return {place: text for where, inner in items for place, text in masked_places(inner, where).items()}


def compact(value: Any) -> str:
    """Return a value as JSON on one line; what has no JSON form as its text."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        return msgspec.json.encode(str(value)).decode()


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `3 ms`, `1.2 s`, `2 m 5 s`, `6 d 23 h`."""
    if seconds < 0.9995:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    for index, (unit, name) in enumerate(_UNITS):
        if rest >= unit:
            smaller = _UNITS[index + 1 : index + 2]
            tail = [f"{rest % unit // one} {short}" for one, short in smaller if rest % unit // one]
            return " ".join((f"{rest // unit} {name}", *tail))
    return f"{rest} s"


def size(count: int) -> str:
    """Return a number of bytes: `812 B`, `12.3 KB`, `4.0 MB`."""
    if count < 1000:
        return f"{count} B"
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95 or unit == "GB":
            return f"{amount:.1f} {unit}"
    return f"{count} B"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 step`, `2 steps`; `many` is the plural that does not end in s alone."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def age(since: timedelta) -> str:
    """Return how long ago something was, in its largest unit: `14 s`, `51 m`, `2 h`, `3 d`."""
    seconds = max(0, round(since.total_seconds()))
    return next((f"{seconds // unit} {name}" for unit, name in _UNITS if seconds >= unit), "0 s")


def count(number: int) -> str:
    """Return a number in at most five characters and a unit: `1,204`, `50.5k`, `1.31M`."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.2f}M"


def money(millionths: int) -> str:
    """Return a cost in millionths of a US dollar: `$0.41`, `$.004` below a cent; "" for none or an unknown one."""
    if millionths <= 0:
        return ""
    dollars = millionths / 1_000_000
    if dollars >= 0.995:
        return f"${dollars:,.2f}"
    return (
        f"${dollars:.2f}"
        if dollars >= 0.00995
        else f"${dollars:.3f}".replace("$0.", "$.")
        if dollars >= 0.0005
        else "<$.001"
    )
