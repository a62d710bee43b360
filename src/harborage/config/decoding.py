"""From nodes, or from texts of the environment, to typed values, with every finding on the way.

What is wrong in one place hides nothing in another: the wrong value is left at its default, and the walk goes on. Texts
are judged here by their form alone; whether a value makes sense is for the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from harborage.config.checks import near
from harborage.config.document import Document, Entry, ListNode, MappingNode, Mark, Node, Scalar, shown_key
from harborage.config.durations import parse_duration
from harborage.config.findings import Finding, parse_finding
from harborage.config.keys import Form, Named, Path, Shape, dotted, form_of, keys_of
from harborage.secrets import Secret

S = TypeVar("S", bound=msgspec.Struct)

_MOST_DIGITS: Final = 18
_INT: Final = re.compile(r"[-+]?(?:0|[1-9](?:_?[0-9])*)")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_BOOLS: Final[Mapping[str, bool]] = {
    word: value
    for value, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for one in words
    for word in (one, one.capitalize(), one.upper())
}
_WANTED: Final[Mapping[Shape, str]] = {
    Shape.BOOL: "true or false",
    Shape.INT: "a whole number",
    Shape.FLOAT: "a number",
    Shape.DURATION: "a duration such as 30s, 5m or 24h",
    Shape.TEXT: "a text",
    Shape.SECRET: "a text, or a reference such as env:NAME",
    Shape.LIST: "a list",
    Shape.MAP: "keys and values",
    Shape.STRUCT: "keys and values",
}


class NotReadableError(Exception):
    """A text has not the form that its key needs. `wanted` says which."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def read_text(text: str, form: Form) -> Any:
    """Return the value that a text spells, as environment variables and plain scalars do.

    Raises:
        NotReadableError: it has another form.
    """
    match form.shape:
        case Shape.TEXT:
            return text
        case Shape.SECRET:
            return Secret(text)
        case Shape.BOOL if text in _BOOLS:
            return _BOOLS[text]
        case Shape.INT if _INT.fullmatch(text) and len(text) <= _MOST_DIGITS:
            return int(text)
        case Shape.FLOAT if _FLOAT.fullmatch(text):
            return _finite(text)
        case Shape.DURATION if (value := parse_duration(text)) is not None:
            return value
        case shape:
            raise NotReadableError(_WANTED.get(shape, "another value"))


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotReadableError("a smaller number")
    return value


class Decoder:
    """Turns the nodes of one file into a struct. `marks` has the place of each key, `unread` are wrong ones."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.findings: list[Finding] = []
        self.marks: dict[Path, Mark] = {}
        self.unread: set[Path] = set()

    def decode(self, document: Document, struct: type[S]) -> S:
        """Return the struct that a document holds; what cannot be read is left at its default."""
        self.findings += document.findings
        if document.root is None or (isinstance(document.root, Scalar) and document.root.is_null):
            return struct()
        value = self._struct(document.root, struct, ())
        return struct() if value is None else value

    def _say(self, node: Node, reason: str, *, hint: str = "") -> None:
        mark = node.mark
        self.findings.append(parse_finding(self._file, mark.line, mark.column, reason, hint=hint))

    def _wrong(self, node: Node, path: Path, form: Form, wanted: str = "") -> None:
        """Say that a value has another form than its key needs."""
        hint = "write it without quotes" if isinstance(node, Scalar) and not node.is_plain else ""
        self.unread.add(path)
        self._say(node, f"{dotted(path) or 'the file'} must be {wanted or _WANTED[form.shape]}", hint=hint)

    def _value(self, node: Node, form: Form, path: Path) -> Any:
        """The value of a node; None when there is none, or it cannot be read, which was said."""
        self.marks[path] = node.mark
        if isinstance(node, Scalar) and node.is_null:
            return None
        match form.shape:
            case Shape.STRUCT:
                return self._struct(node, form.item, path)
            case Shape.LIST:
                return self._list(node, form, path)
            case Shape.MAP:
                return self._map(node, form, path)
            case Shape.ANY:
                return _plain(node)
            case _:
                return self._scalar(node, form, path)

    def _scalar(self, node: Node, form: Form, path: Path) -> Any:
        needs_plain = form.shape not in (Shape.TEXT, Shape.SECRET, Shape.DURATION)
        if not isinstance(node, Scalar) or (needs_plain and not node.is_plain):
            self._wrong(node, path, form)
            return None
        try:
            return read_text(node.text, form)
        except NotReadableError as error:
            self._wrong(node, path, form, error.wanted)
            return None

    def _list(self, node: Node, form: Form, path: Path) -> tuple[Any, ...] | None:
        if not isinstance(node, ListNode):
            self._wrong(node, path, form)
            return None
        inner = form_of(form.item)
        read = [self._value(one, inner, (*path, index)) for index, one in enumerate(node.items)]
        return tuple(_empty(inner) if one is None else one for one in read)

    def _map(self, node: Node, form: Form, path: Path) -> dict[str, Any] | None:
        if not isinstance(node, MappingNode):
            self._wrong(node, path, form)
            return None
        inner = form_of(form.item)
        made = {}
        for entry in node.entries:
            value = self._value(entry.value, inner, (*path, Named(entry.key.text)))
            made[entry.key.text] = _empty(inner) if value is None else value
        return made

    def _struct(self, node: Node, struct: type[S], path: Path) -> S | None:
        if not isinstance(node, MappingNode):
            self._wrong(node, path, form_of(struct))
            return None
        known = keys_of(struct)
        given: dict[str, Any] = {}
        for entry in node.entries:
            info = known.get(entry.key.text)
            if info is None:
                self._unknown(entry, [*known], path)
                continue
            at = (*path, info.name)
            value = self._value(entry.value, form_of(info.type), at)
            self.marks[at] = entry.key.mark
            if value is not None:
                given[info.name] = value
        return struct(**given)

    def _unknown(self, entry: Entry, known: list[str], path: Path) -> None:
        where = f" in {dotted(path)}" if path else ""
        name = shown_key(entry.key.text)
        hint = near(entry.key.text[:64], known)
        if not hint:
            hint = f"there are {', '.join(known)}" if known else "it has no keys"
        self._say(entry.key, f"there is no key {name}{where}", hint=hint)


def _empty(form: Form) -> Any:
    """What an entry without a value stands for."""
    match form.shape:
        case Shape.STRUCT:
            return form.item()
        case Shape.LIST:
            return ()
        case Shape.MAP:
            return {}
        case Shape.SECRET:
            return Secret()
        case Shape.ANY:
            return None
        case _:
            return ""


def _plain(node: Node) -> Any:
    """A node as Python's own values, for blocks whose keys are not ours."""
    match node:
        case MappingNode(entries=entries):
            return {entry.key.text: _plain(entry.value) for entry in entries}
        case ListNode(items=items):
            return [_plain(item) for item in items]
        case Scalar(text=text) if node.is_null:
            return None
        case Scalar(text=text, is_plain=True):
            for shape in (Shape.BOOL, Shape.INT, Shape.FLOAT):
                try:
                    return read_text(text, Form(shape))
                except NotReadableError:
                    continue
            return text
        case Scalar(text=text):
            return text
