"""What is sent for a call: the address, the headers and the body, of an operation and its arguments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, assert_never
from urllib.parse import quote, urlencode

import msgspec

from harborage import codec
from harborage.tools.errors import ToolInvalidArgsError
from harborage.tools.http.operation import Argument, Body, BodyKind, Operation, Place, Style
from harborage.tools.http.templates import fill, fill_json

_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")
_BETWEEN: Final = {Style.COMMA: ",", Style.SPACE: " ", Style.PIPE: "|"}


class FilePart(msgspec.Struct, frozen=True):
    """A file of a form, or a whole body, that is an artifact."""

    field: str
    artifact: str


class Prepared(msgspec.Struct, frozen=True):
    """What is sent. `url` has its query; `files` are to be read, and stand beside `fields` or are the body."""

    method: str
    url: str
    headers: dict[str, str] = {}
    content: bytes | None = None
    fields: tuple[tuple[str, str], ...] = ()
    files: tuple[FilePart, ...] = ()
    body: Body | None = None


def prepare(operation: Operation, args: Mapping[str, Any], base: str = "") -> Prepared:
    """Return what is sent for a call with these arguments. `base` takes the place of the operation's own.

    Raises:
        ToolInvalidArgsError: an argument is missing, or cannot stand where it goes.
    """
    given = {one.name: one for one in operation.arguments if args.get(one.name) is not None or _is_null(one, args)}
    _check_required(operation, given)
    by_place: dict[Place, list[tuple[Argument, Any]]] = {place: [] for place in Place}
    for name, one in given.items():
        by_place[one.place].append((one, args[name]))
    pairs = [pair for one, value in by_place[Place.QUERY] for pair in query_pairs(one.key, value, one.style)]
    pairs += [(name, fill(text, args)) for name, text in operation.query.items()]
    url = (base or operation.base) + _path(operation, by_place[Place.PATH], args)
    if pairs:
        url += ("&" if "?" in url else "?") + urlencode(pairs, quote_via=quote)
    headers = {name: _header(name, fill(text, args)) for name, text in operation.headers.items()}
    headers |= {one.key: _header(one.name, _joined(value, ",")) for one, value in by_place[Place.HEADER]}
    prepared = Prepared(operation.method, url, headers)
    return _with_body(operation, prepared, by_place[Place.BODY], args)


def _is_null(one: Argument, args: Mapping[str, Any]) -> bool:
    """Whether an argument of a body is null and means it."""
    return one.place is Place.BODY and one.name in args


def _check_required(operation: Operation, given: Mapping[str, Argument]) -> None:
    for one in operation.arguments:
        if one.required and one.name not in given:
            raise ToolInvalidArgsError(f'"{one.name}" is a required property', f"$.{one.name}")


def _path(operation: Operation, given: Iterable[tuple[Argument, Any]], args: Mapping[str, Any]) -> str:
    """The path with its arguments, each quoted whole: none of them can lead to another path."""
    values = {one.key: _segment(one.name, _joined(value, ",")) for one, value in given}
    path = fill(operation.path, args, quoted=True)
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), path)


def _segment(name: str, text: str) -> str:
    if not text:
        raise ToolInvalidArgsError("an argument of the path is not empty", f"$.{name}")
    # A dot is never quoted by itself, and one or two of them alone are a step to another folder.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def _header(name: str, text: str) -> str:
    if not text.isprintable():
        raise ToolInvalidArgsError("a header has no control characters", f"$.{name}")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return quote(text)
    return text.strip()


def query_pairs(key: str, value: Any, style: Style) -> Iterator[tuple[str, str]]:
    """Yield what a value is in a query."""
    if style is Style.JSON:
        yield key, codec.encode(value).decode()
    elif isinstance(value, Mapping):
        yield from _object_pairs(key, value, style)
    elif isinstance(value, list | tuple):
        if style in (Style.EXPLODED, Style.DEEP):
            yield from ((key, _text(one)) for one in value)
        else:
            yield key, _joined(value, _BETWEEN[style])
    else:
        yield key, _text(value)


def _object_pairs(key: str, value: Mapping[str, Any], style: Style) -> Iterator[tuple[str, str]]:
    if style is Style.DEEP:
        for name, one in value.items():
            yield from query_pairs(f"{key}[{name}]", one, style)
    elif style is Style.EXPLODED:
        for name, one in value.items():
            yield name, _text(one)
    else:
        yield key, _joined(value, _BETWEEN.get(style, ","))


def _joined(value: Any, between: str) -> str:
    if isinstance(value, Mapping):
        return between.join(_text(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return between.join(map(_text, value))
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return "" if value is None else codec.encode(value).decode()


def _with_body(
    operation: Operation, prepared: Prepared, given: list[tuple[Argument, Any]], args: Mapping[str, Any]
) -> Prepared:
    if operation.template is not None:
        content = fill_json(operation.template, args).encode()
        media = "application/json" if operation.template.lstrip()[:1] in ("{", "[") else "text/plain; charset=utf-8"
        body = Body(BodyKind.BYTES, media)
        return msgspec.structs.replace(prepared, content=content, body=body)
    body_of = operation.body
    if body_of is None or not given:
        return prepared
    value: Any = {one.key: one_value for one, one_value in given} if body_of.spread else given[0][1]
    return _encoded(prepared, body_of, value, given[0][0].name)


def _encoded(prepared: Prepared, body: Body, value: Any, name: str) -> Prepared:
    replace = msgspec.structs.replace
    match body.kind:
        case BodyKind.JSON:
            return replace(prepared, content=codec.encode(value), body=body)
        case BodyKind.FORM:
            pairs = [pair for key, one in _fields(value, name) for pair in query_pairs(key, one, Style.EXPLODED)]
            return replace(prepared, content=urlencode(pairs).encode(), body=body)
        case BodyKind.MULTIPART:
            fields = tuple((key, _text(one)) for key, one in _fields(value, name) if key not in body.files)
            files = tuple(
                FilePart(key, str(one))
                for key, given in _fields(value, name)
                if key in body.files
                for one in (given if isinstance(given, list) else [given])
            )
            return replace(prepared, fields=fields, files=files, body=body)
        case BodyKind.TEXT:
            return replace(prepared, content=_text(value).encode(), body=body)
        case BodyKind.BYTES:
            return replace(prepared, files=(FilePart("", str(value)),), body=body)
        case _ as unreachable:
            assert_never(unreachable)


def _fields(value: Any, name: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise ToolInvalidArgsError("a form is an object", f"$.{name}")
    return value.items()
