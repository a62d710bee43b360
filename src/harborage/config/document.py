"""A YAML text as nodes that know their line and column, whatever it holds.

Parsed event by event and never deeper, larger or longer than the limits below, so that no text can exhaust the process:
aliases count with all that they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from harborage.config.findings import Finding, parse_finding

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 50_000
_MOST_FINDINGS: Final = 100
_MERGE: Final = "<<"
_QUOTED: Final = re.compile(r"'([^']*)'")
_HARMLESS: Final = re.compile(r"\\?.?|<[a-z ]+>")
_CORE_TAG: Final = "tag:yaml.org,2002:"


class Mark(msgspec.Struct, frozen=True):
    """A place in the text; both count from 1."""

    line: int
    column: int


class Scalar(msgspec.Struct, frozen=True):
    """A single value. `is_plain` is true without quotes: only then it can be a number, a boolean or nothing."""

    mark: Mark
    text: str
    is_plain: bool = True

    @property
    def is_null(self) -> bool:
        """Whether it stands for nothing, so that the default counts."""
        return self.is_plain and self.text in {"", "~", "null", "Null", "NULL"}


class Entry(msgspec.Struct, frozen=True):
    """One entry of a mapping."""

    key: Scalar
    value: Node


class MappingNode(msgspec.Struct, frozen=True):
    """Keys and their values, in the order of the text."""

    mark: Mark
    entries: tuple[Entry, ...]

    def get(self, name: str) -> Entry | None:
        """Return the entry of a key; None if there is none."""
        return next((one for one in self.entries if one.key.text == name), None)


class ListNode(msgspec.Struct, frozen=True):
    """Several values."""

    mark: Mark
    items: tuple[Node, ...]


Node: TypeAlias = Scalar | MappingNode | ListNode


class _UnusableError(Exception):
    """The text cannot be read on."""

    def __init__(self, mark: Mark, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.mark = mark
        self.reason = reason
        self.hint = hint


class Document(msgspec.Struct, frozen=True):
    """A text as nodes; `root` is None when it is empty or cannot be read. `findings` say what is wrong with it."""

    root: Node | None
    findings: tuple[Finding, ...] = ()


def read_document(data: bytes, file: str) -> Document:
    """Return the nodes of a YAML text, and what is wrong with it; never raises for what it holds."""
    builder = _Builder(file)
    try:
        return Document(builder.read(_decode(data)), tuple(builder.findings))
    except _UnusableError as error:
        found = parse_finding(file, error.mark.line, error.mark.column, error.reason, hint=error.hint)
        return Document(None, (*builder.findings, found))


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _UnusableError(Mark(1, 1), f"the file has more than {MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        mark = Mark(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise _UnusableError(mark, "this is not UTF-8", "save the file as UTF-8") from None


class _Open:
    """A collection whose end was not read yet."""

    def __init__(self, mark: Mark, anchor: str | None, *, is_mapping: bool) -> None:
        self.mark = mark
        self.anchor = anchor
        self.is_mapping = is_mapping
        self.nodes: list[Node] = []
        self.size = 1


class _Builder:
    """Builds nodes from the events of the parser."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.findings: list[Finding] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._count = 0

    def read(self, text: str) -> Node | None:
        """Return the one document of a text."""
        root: Node | None = None
        documents = 0
        for event in _events(text):
            kind = type(event).__name__
            if kind == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    raise _UnusableError(_mark(event.start_mark), "a second document begins", "one file, one document")
                continue
            done = self._take(event, kind)
            root = done if done is not None else root
        return root

    def _take(self, event: Any, kind: str) -> Node | None:
        """Take one event; returns the whole once it is read."""
        tag = getattr(event, "tag", None)
        if tag is not None and not tag.startswith(_CORE_TAG) and tag != "!":
            raise _UnusableError(_mark(event.start_mark), "tags mean nothing here", "quote a text that begins with !")
        match kind:
            case "ScalarEvent":
                node: Node = Scalar(_mark(event.start_mark), event.value, event.implicit[0] and event.style is None)
                return self._finish(node, event.anchor, 1)
            case "AliasEvent":
                return self._finish(*self._aliased(event))
            case "MappingStartEvent" | "SequenceStartEvent":
                self._begin(event, is_mapping=kind == "MappingStartEvent")
                return None
            case "MappingEndEvent" | "SequenceEndEvent":
                done = self._stack.pop()
                return self._finish(self._close(done), done.anchor, done.size)
            case _:
                return None

    def _begin(self, event: Any, *, is_mapping: bool) -> None:
        mark = _mark(event.start_mark)
        if len(self._stack) >= MAX_DEPTH:
            raise _UnusableError(mark, f"this is nested more than {MAX_DEPTH} levels deep")
        if event.anchor:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(mark, event.anchor, is_mapping=is_mapping))

    def _aliased(self, event: Any) -> tuple[Node, None, int]:
        mark, name = _mark(event.start_mark), event.anchor
        if name not in self._anchors:
            # Not named: a password may begin with an asterisk.
            raise _UnusableError(mark, "this alias has no anchor before it", "quote a text that begins with *")
        known = self._anchors[name]
        if known is None:
            raise _UnusableError(mark, "this alias stands in what it stands for")
        return known[0], None, known[1]

    def _finish(self, node: Node, anchor: str | None, size: int) -> Node | None:
        """Put a whole node where it belongs; returns it when it is the outermost."""
        self._count += 1
        if anchor:
            self._anchors[anchor] = (node, size)
        if not self._stack:
            return node
        outer = self._stack[-1]
        outer.size += size
        outer.nodes.append(node)
        if max(outer.size, self._count) > MAX_NODES:
            raise _UnusableError(node.mark, f"there are more than {MAX_NODES:,} values, aliases included")
        return None

    def _close(self, done: _Open) -> Node:
        if not done.is_mapping:
            return ListNode(done.mark, tuple(done.nodes))
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in zip(done.nodes[::2], done.nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                self._say(key.mark, "a key must be a text")
            elif key.text == _MERGE and key.is_plain:
                for entry in self._merged(value):
                    merged.setdefault(entry.key.text, entry)
            elif key.text in own:
                first = own[key.text].key.mark
                self._say(
                    key.mark, f"the key {shown_key(key.text)} is set twice", f"it is set in line {first.line}, too"
                )
            else:
                own[key.text] = Entry(key, value)
        return MappingNode(done.mark, tuple({**merged, **own}.values()))

    def _merged(self, value: Node) -> Iterator[Entry]:
        for one in value.items if isinstance(value, ListNode) else (value,):
            if isinstance(one, MappingNode):
                yield from one.entries
            else:
                self._say(one.mark, "<< takes a mapping, or a list of them")

    def _say(self, mark: Mark, reason: str, hint: str = "") -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(parse_finding(self._file, mark.line, mark.column, reason, hint=hint))


def _events(text: str) -> Iterator[Any]:
    """The events of PyYAML's parser; each of its errors becomes one of ours, without a piece of the text."""
    import yaml  # type: ignore[import-untyped] # most commands read no file

    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Mark(1, 1) if mark is None else _mark(mark)
        raise _UnusableError(where, _problem(error)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        where = Mark(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise _UnusableError(where, "there is a control character that YAML does not allow") from None
    except (ValueError, OverflowError, IndexError, AttributeError, TypeError):
        raise _UnusableError(Mark(1, 1), "this is no YAML: an escape or a directive in it cannot be read") from None


def _problem(error: Any) -> str:
    """What the parser says, without the words of the text that it quotes: they may be a secret."""
    said = " ".join((error.problem or "this is no YAML").split())
    context = " ".join((error.context or "").split())
    return _QUOTED.sub(_harmless, f"{context}: {said}" if context else said)


def _harmless(quoted: re.Match[str]) -> str:
    return quoted[0] if _HARMLESS.fullmatch(quoted[1]) else "'…'"


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def shown_key(text: str) -> str:
    """A key as a text shows it: without control characters, and not longer than a name is."""
    clean = "".join(one if one.isprintable() else "?" for one in text)
    return clean if len(clean) <= 60 else f"{clean[:60]}…"
