"""Turn argument bytes into typed values and say exactly what is wrong with them.

One generated struct decodes, checks and fills in defaults in a single pass. msgspec rejects unknown fields only in
structs that forbid them, while the schema that the model sees closes every object: unknown fields of nested records are
found here before decoding. Every failure is a ToolInvalidArgsError that names the path; no text here repeats a value
that was passed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect as kinds

from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError, json_path
from harborage.tools.shapes import InvalidValueError, Shape, is_model

Finder: TypeAlias = Callable[[Any, str], str | None]
"""Takes decoded JSON and its path; returns the path of the first unknown field, or None."""


def make_unknown_field_finder(info: kinds.Type) -> Finder | None:
    """Return a finder for values of this type; None when the decoder itself rejects unknown fields."""
    match info:
        case kinds.Metadata():
            return make_unknown_field_finder(info.type)
        case kinds.ListType() | kinds.VarTupleType() | kinds.SetType() | kinds.FrozenSetType():
            return _find_in_items(make_unknown_field_finder(info.item_type))
        case kinds.TupleType():
            return _find_in_row([make_unknown_field_finder(each) for each in info.item_types])
        case kinds.NamedTupleType():
            return _find_in_row([make_unknown_field_finder(each.type) for each in info.fields])
        case kinds.DictType():
            return _find_in_values(make_unknown_field_finder(info.value_type))
        case kinds.UnionType():
            return _find_in_union(info.types)
        case kinds.StructType() if info.array_like:
            return _find_in_row([make_unknown_field_finder(each.type) for each in info.fields])
        case kinds.StructType() | kinds.DataclassType() | kinds.TypedDictType():
            return _find_in_record(info)
        case _:
            return None


def _find_in_record(info: Any) -> Finder | None:
    fields = {each.encode_name: make_unknown_field_finder(each.type) for each in info.fields}
    if getattr(info, "tag_field", None) is not None:
        fields.setdefault(info.tag_field, None)
    if getattr(info, "forbid_unknown_fields", False) and not any(fields.values()):
        return None

    def find(value: Any, path: str) -> str | None:
        if not isinstance(value, dict):
            return None
        for key, each in value.items():
            if key not in fields:
                return f"{path}.{key}"
            inner = fields[key]
            found = inner(each, f"{path}.{key}") if inner else None
            if found:
                return found
        return None

    return find


def _find_in_items(inner: Finder | None) -> Finder | None:
    if inner is None:
        return None

    def find(value: Any, path: str) -> str | None:
        return _first(inner(each, f"{path}[{at}]") for at, each in enumerate(value)) if _is_list(value) else None

    return find


def _find_in_row(inner: list[Finder | None]) -> Finder | None:
    if not any(inner):
        return None

    def find(value: Any, path: str) -> str | None:
        if not _is_list(value):
            return None
        pairs = enumerate(zip(inner, value, strict=False))
        return _first(each(item, f"{path}[{at}]") for at, (each, item) in pairs if each)

    return find


def _find_in_values(inner: Finder | None) -> Finder | None:
    if inner is None:
        return None

    def find(value: Any, path: str) -> str | None:
        return _first(inner(each, f"{path}.{key}") for key, each in value.items()) if isinstance(value, dict) else None

    return find


def _find_in_union(types: Iterable[kinds.Type]) -> Finder | None:
    """A union has at most one array part, and one object part or several tagged structs, so its part is known."""
    parts = [part.type if isinstance(part, kinds.Metadata) else part for part in types]
    by_tag = {
        part.tag: make_unknown_field_finder(part) for part in parts if isinstance(part, kinds.StructType) and part.tag
    }
    tag_field = next((part.tag_field for part in parts if isinstance(part, kinds.StructType) and part.tag), None)
    others = [finder for part in parts if (finder := _find_in_untagged(part)) is not None]
    if not others and not any(by_tag.values()):
        return None

    def find(value: Any, path: str) -> str | None:
        if isinstance(value, dict) and tag_field is not None:
            tag = value.get(tag_field)
            inner = by_tag.get(tag) if isinstance(tag, (str, int)) else None
            return inner(value, path) if inner else None
        return _first(finder(value, path) for finder in others)

    return find


def _find_in_untagged(part: kinds.Type) -> Finder | None:
    return None if isinstance(part, kinds.StructType) and part.tag else make_unknown_field_finder(part)


def _first(found: Iterable[str | None]) -> str | None:
    return next((path for path in found if path), None)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


REQUIRED: Any = msgspec.NODEFAULT
"""In place of a default: the argument is required."""

# As texts: `re` compiles them for the first refusal and keeps them.
_PLACE = r"(?s)^(?P<reason>.*?) - at `(?P<path>.+)`$"
_NAMED_FIELD = r"(?s)^Object (?:missing required|contains unknown) field `(?P<field>.+)`$"
_STRING_OR_FLOAT = rb'"(?:[^"\\]|\\.)*"|(-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))'
_MOST_DIGITS = 308
_NO_ZONE = "Expected `datetime` with a timezone component"
_QUOTED_VALUE = r"(?s)^(Invalid (?:enum )?value)\b.*"


class Argument(msgspec.Struct, frozen=True):
    """One argument of a tool."""

    name: str
    type: Any
    default: Any = REQUIRED


def make_argument_decoder(
    name: str, arguments: Sequence[Argument], *, find_unknown: Finder | None = None, accepts_null: bool = False
) -> Callable[[bytes], msgspec.Struct]:
    """Return a function from argument bytes to a struct with one field per argument; empty bytes mean `{}`.

    With `accepts_null`, `null` means `{}`, too. `find_unknown` finds fields that nested records do not have.

    Raises:
        UnsupportedTypeError: msgspec cannot decode one of the types.
    """
    fields = [_make_field(each) for each in arguments]
    try:
        struct = msgspec.defstruct(f"{name}_arguments", fields, forbid_unknown_fields=True, kw_only=True, gc=False)
        decoder = msgspec.json.Decoder(struct, dec_hook=decode_custom)
    except Exception as error:
        raise UnsupportedTypeError(name, f"the arguments cannot be decoded: {error}") from error
    decode_typed = decoder.decode

    def decode(args: bytes) -> msgspec.Struct:
        try:
            if find_unknown is not None:
                _refuse_unknown(args, find_unknown)
            return decode_typed(args)
        except (ValueError, RecursionError) as error:
            stripped = args.strip()
            if stripped == b"" or (accepts_null and stripped == b"null"):
                return decode(b"{}")
            spelled = _spell_whole_numbers(args)
            if spelled != args:
                return decode(spelled)
            raise to_invalid_args(error) from error

    return decode


def _spell_whole_numbers(args: bytes) -> bytes:
    """Return JSON with whole numbers such as 1.0 and 1e2 spelled as integers: msgspec takes only those for an int.

    Only what was refused once is spelled again, so that a float or a Decimal is otherwise taken as it is written.
    """
    return re.sub(_STRING_OR_FLOAT, _spell_whole_number, args)


def _spell_whole_number(token: re.Match[bytes]) -> bytes:
    if token.group(1) is None:
        return token.group()
    number = Decimal(token.group().decode())
    is_whole = number.adjusted() < _MOST_DIGITS and number == number.to_integral_value()
    return str(int(number)).encode() if is_whole else token.group()


def _make_field(argument: Argument) -> tuple[str, Any] | tuple[str, Any, Any]:
    if argument.default is REQUIRED:
        return (argument.name, argument.type)
    default = argument.default
    if isinstance(default, (list, dict, set, bytearray)):
        default = msgspec.field(default_factory=lambda: copy.deepcopy(argument.default))
    return (argument.name, argument.type, default)


def _refuse_unknown(args: bytes, find_unknown: Finder) -> None:
    path = find_unknown(msgspec.json.decode(args or b"{}"), "$")
    if path is not None:
        field = path.rpartition(".")[2]
        raise InvalidValueError(f"Object contains unknown field `{field}`", path)


def make_result_checker(annotation: Any) -> Callable[[Any], None]:
    """Return a function that raises ToolInvalidArgsError for a value that does not fit `annotation`."""

    def check(value: Any) -> None:
        try:
            msgspec.convert(value, annotation, dec_hook=decode_custom)
        except (ValueError, TypeError, RecursionError) as error:
            raise to_invalid_args(error) from error

    return check


def decode_value(annotation: Any, find_unknown: Finder | None, value: Any) -> Any:
    """Return the value of type `annotation` that plain JSON means; `find_unknown` finds fields that no record has.

    Raises:
        ToolInvalidArgsError: it does not fit, with the path.
    """
    try:
        if find_unknown is not None and (path := find_unknown(value, "$")) is not None:
            raise InvalidValueError(f"Object contains unknown field `{path.rpartition('.')[2]}`", path)
        if is_model(annotation):
            return decode_custom(annotation, value)
        return msgspec.convert(value, annotation, dec_hook=decode_custom)
    except (ValueError, TypeError, RecursionError) as error:
        spelled = _with_whole_numbers(value)
        if spelled is not value:
            return decode_value(annotation, find_unknown, spelled)
        raise to_invalid_args(error) from error


def _with_whole_numbers(value: Any) -> Any:
    """Return plain JSON with its whole floats as integers; the very value where there are none."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        read = {key: _with_whole_numbers(each) for key, each in value.items()}
        return value if all(read[key] is each for key, each in value.items()) else read
    if isinstance(value, list):
        items = [_with_whole_numbers(each) for each in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def to_invalid_args(error: Exception) -> ToolInvalidArgsError:
    """Convert a decoding error into one that names the path."""
    if isinstance(error, InvalidValueError):
        return ToolInvalidArgsError(error.reason, error.path)
    if isinstance(error, UnicodeDecodeError):
        return ToolInvalidArgsError("JSON is not valid UTF-8")
    if isinstance(error, RecursionError):
        return ToolInvalidArgsError("JSON is nested too deeply")
    placed = re.match(_PLACE, str(error))
    reason, path = (placed["reason"], placed["path"]) if placed else (str(error), "$")
    inner = error.__cause__
    if isinstance(inner, InvalidValueError):
        return ToolInvalidArgsError(inner.reason, path + inner.path.removeprefix("$"))
    if reason == _NO_ZONE:
        return ToolInvalidArgsError("the time has no zone; add a zone, for example Z", path)
    named = re.match(_NAMED_FIELD, reason)
    return ToolInvalidArgsError(re.sub(_QUOTED_VALUE, r"\1", reason), f"{path}.{named['field']}" if named else path)


def decode_custom(cls: Any, value: Any) -> Any:
    """Decode a shape by its rule and a model by its own validation; the schema lets no other class through."""
    if issubclass(cls, Shape):
        return cls.read(value)
    if isinstance(value, cls):
        return value
    try:
        return cls.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise _to_model_error(error) from error


def _to_model_error(error: ValueError) -> InvalidValueError:
    """Return the first error of a model, without the value."""
    listed = getattr(error, "errors", None)
    found = listed() if callable(listed) else []
    if not found:
        return InvalidValueError(f"{type(error).__name__}: the model refused the value", "$")
    return InvalidValueError(str(found[0]["msg"]), json_path(found[0]["loc"]))
