"""Read a docstring: what a function does, and what each of its parameters means.

Google, NumPy and Sphinx styles are read; a docstring in none of these styles is all description.
"""

from __future__ import annotations

import inspect
import re

import msgspec

_PARAMETER_HEADINGS = frozenset({"args", "arguments", "params", "parameters", "other parameters", "keyword args"})
_OTHER_HEADINGS = frozenset({"returns", "return", "yields", "yield", "raises", "raise", "attributes", "warns"})
_GOOGLE_HEADING = re.compile(r"^([A-Za-z ]+):$")
# Those for entries as texts: `re` compiles them for the first section and keeps them.
_GOOGLE_ENTRY = r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$"
_NUMPY_ENTRY = r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_SPHINX_FIELD = re.compile(r"^:(\w+)(?:\s+([^:]*))?:\s*(.*)$")


class Docstring(msgspec.Struct, frozen=True):
    """The description, and the meaning of each parameter that is documented, each as one line of text."""

    description: str = ""
    parameters: dict[str, str] = {}


def parse_docstring(text: str | None) -> Docstring:
    """Parse the description of a function and of its parameters; the sections on results and errors are left out."""
    lines = inspect.cleandoc(text or "").splitlines()
    start = next((at for at in range(len(lines)) if _opens_section(lines, at)), len(lines))
    parameters: dict[str, str] = {}
    at = start
    while at < len(lines):
        at = _read_section(lines, at, parameters)
    return Docstring("\n".join(lines[:start]).strip(), parameters)


def _opens_section(lines: list[str], at: int) -> bool:
    return bool(_SPHINX_FIELD.match(lines[at])) or _read_heading(lines, at) in _PARAMETER_HEADINGS | _OTHER_HEADINGS


def _read_heading(lines: list[str], at: int) -> str:
    """Return the name of the section that begins here, lower-cased, or an empty text."""
    if _is_underlined(lines, at):
        return lines[at].strip().lower()
    google = _GOOGLE_HEADING.match(lines[at])
    return google.group(1).lower() if google else ""


def _is_underlined(lines: list[str], at: int) -> bool:
    return bool(lines[at].strip()) and at + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[at + 1]) is not None


def _read_section(lines: list[str], at: int, parameters: dict[str, str]) -> int:
    """Read the section that begins at line `at` into `parameters`; return the line where the next one may begin."""
    sphinx = _SPHINX_FIELD.match(lines[at])
    end = at + 1
    while end < len(lines) and not _opens_section(lines, end):
        end += 1
    body = lines[at + 1 : end]
    if sphinx:
        if sphinx.group(1) in ("param", "parameter", "arg", "argument", "key", "keyword") and sphinx.group(2):
            name = sphinx.group(2).split()[-1].lstrip("*")
            parameters[name] = _one_line([sphinx.group(3), *_take_indented(body)])
    elif _read_heading(lines, at) in _PARAMETER_HEADINGS:
        is_numpy = _is_underlined(lines, at)
        parameters.update(_read_numpy_entries(body[1:]) if is_numpy else _read_google_entries(body))
    return end


def _read_google_entries(body: list[str]) -> dict[str, str]:
    """Read `name (type): meaning`, all at one indent; deeper lines continue the meaning."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    indent = next((_indent(line) for line in body if line.strip()), 0)
    for line in body:
        if line.strip() and _indent(line) < max(indent, 1):
            break  # free text after the section
        entry = re.match(_GOOGLE_ENTRY, line.strip()) if _indent(line) == indent else None
        if entry:
            current = found.setdefault(entry.group(1), [])
            current.append(entry.group(2))
        elif current is not None:
            current.append(line)
    return {name: _one_line(text) for name, text in found.items()}


def _read_numpy_entries(body: list[str]) -> dict[str, str]:
    """Read `name : type` without indent, its meaning indented below; one entry may name several parameters."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in body:
        entry = re.match(_NUMPY_ENTRY, line) if line.strip() and not _indent(line) else None
        if entry:
            names = [name.strip().lstrip("*") for name in entry.group(1).split(",")]
            found.update({name: [] for name in names})
            continue
        for name in names:
            found[name].append(line)
    return {name: _one_line(text) for name, text in found.items()}


def _take_indented(lines: list[str]) -> list[str]:
    block: list[str] = []
    for line in lines:
        if line.strip() and not _indent(line):
            break
        block.append(line)
    return block


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
