"""JSON in and out: one encoder, one byte-exact canonical form, one walker that names the first offender.

msgspec is fast but reports an unencodable value without its place and writes NaN as null. Both gaps are closed here:
the walker runs as a pre-flight where the contract asks for one, and otherwise only after a failure.
"""

from __future__ import annotations

import enum
import math
import os
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from harborage.errors import HarborageError

T = TypeVar("T")

_OPAQUE = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, uuid.UUID, msgspec.Raw)
_UNSAFE = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


class UnserializableError(HarborageError):
    """A value cannot become JSON. `field` is the path of the first offender, `reason` says why."""

    def __init__(self, field: str, reason: str = "") -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"cannot serialise {field}" + (f": {reason}" if reason else ""))


def _own_conversion(value: Any) -> Any:
    """What a foreign object says of itself: pydantic's `model_dump`, `__json__` or `to_json`, or what it extends."""
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        # A model of pydantic is read by its aliases, so it is written by them; others know no such option.
        return dump(mode="json", by_alias=True) if hasattr(value, "model_fields_set") else dump(mode="json")
    for name in ("__json__", "to_json"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    for kind, plain in _EXTENDED:
        if isinstance(value, kind):
            return plain(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# Kinds whose subclasses msgspec refuses (numpy's float64 is a float, a read-only view is a mapping).
_EXTENDED: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (Mapping, dict),
    (os.PathLike, os.fspath),
)

_encoder = msgspec.json.Encoder(enc_hook=_own_conversion)
_packer = msgspec.msgpack.Encoder(enc_hook=_own_conversion)
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_sorted_encoder = msgspec.json.Encoder(enc_hook=_own_conversion, order="deterministic")


def encode(value: Any, root: str = "value") -> bytes:
    """Compact UTF-8 JSON of `value`: the form that is stored and measured.

    Keys that are numbers, dates or UUIDs are spelled as strings.

    Raises:
        UnserializableError: something inside has no JSON form, or is NaN or infinite; `field` is its path below `root`.
    """
    try:
        out = _encoder.encode(value)
    except Exception as error:
        _validate(value, root, any_key=True)
        raise UnserializableError(root, str(error)) from error
    # `in` takes its left side for a number first, and raises and drops an error for one that is none.
    if out.rfind(b"null") >= 0:
        _refuse_nan(value, root, any_key=True)
    return out


def encode_canonical(value: Any, root: str = "value") -> bytes:
    """The byte-exact form: compact, map keys sorted, records in declared order, `<`, `>`, `&`, U+2028, U+2029 escaped.

    Raises:
        UnserializableError: as for `encode`, and for every key that is not a string.
    """
    out = _sorted(value, root)
    # Asking for single byte values costs a tenth of asking for byte strings, and most text has none of them.
    if 0x3C in out or 0x3E in out or 0x26 in out or not out.isascii():
        for raw, escaped in _UNSAFE.items():
            out = out.replace(raw, escaped)
    return out


def encode_text(value: Any, root: str = "value") -> str:
    """Compact JSON with sorted map keys as text, nothing escaped beyond JSON's own needs: for prompts and previews.

    Raises:
        UnserializableError: as for `encode_canonical`.
    """
    return _sorted(value, root).decode()


def canonical_size(value: Any, root: str = "value") -> int:
    """How many bytes the canonical form takes."""
    return len(encode_canonical(value, root))


def decode(data: bytes | str, type: Callable[..., T] | Any = Any) -> Any:
    """The value that `data` spells, checked against `type` when one is given.

    Raises:
        msgspec.DecodeError: malformed JSON, or JSON of another shape (`msgspec.ValidationError`, which names the path).
    """
    return msgspec.json.decode(data, type=type)


def to_plain(value: Any, root: str = "value") -> Any:
    """`value` as plain JSON data (dicts, lists, strings, numbers): what a reader of the stored form would get.

    Raises:
        UnserializableError: as for `encode`.
    """
    return msgspec.json.decode(encode(value, root))


def validate_encodable(value: Any, root: str) -> None:
    """Accept a value that JSON can hold; the walk is in document order, so the first offender is the one named.

    Raises:
        UnserializableError: `field` is `root` plus `.key` and `[index]` steps; a key that is not a string adds
            ` <non-string-map-key>`, a value that contains itself adds ` <cycle>`.
    """
    _validate(value, root, any_key=False)


def _sorted(value: Any, root: str) -> bytes:
    try:
        out = _sorted_encoder.encode(value)
    except Exception as error:
        _validate(value, root, any_key=False)
        raise UnserializableError(root, str(error)) from error
    # `in` takes its left side for a number first, and raises and drops an error for one that is none.
    if out.rfind(b"null") >= 0:
        _refuse_nan(value, root, any_key=False)
    return out


def _refuse_nan(value: Any, root: str, *, any_key: bool) -> None:
    """msgspec writes NaN and infinities as null, so only output that holds a null can hide one."""
    if _may_hold_nan(value):
        _validate(value, root, any_key=any_key)


def _may_hold_nan(value: Any) -> bool:
    """Whether a walk must look for NaN and infinities. MessagePack keeps them, and packing costs far less than a walk.

    A float is packed as 0xCB and eight bytes; the exponent of those that are not finite is all ones. Text cannot spell
    these bytes, and in binary data they cost no more than the walk.
    """
    try:
        return _NOT_FINITE.search(_packer.encode(value)) is not None
    except (OverflowError, RecursionError, TypeError, ValueError):
        return True  # JSON can hold what MessagePack cannot, such as large integers


def _validate(value: Any, root: str, *, any_key: bool) -> None:
    try:
        _walk(value, root, set(), any_key)
    except RecursionError as error:
        raise UnserializableError(root, "nested too deeply") from error


def _walk(value: Any, path: str, above: set[int], any_key: bool) -> None:
    if value is None or isinstance(value, (int, _OPAQUE)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnserializableError(path, f"{value} is not a JSON number")
        return
    if isinstance(value, (str, enum.Enum)):
        _check_leaf(value, path)
        return
    if id(value) in above:
        raise UnserializableError(f"{path} <cycle>", "the value contains itself")
    above.add(id(value))
    for step, inner in _children(value, path, any_key):
        _walk(inner, path + step, above, any_key)
    above.discard(id(value))


def _check_leaf(value: Any, path: str) -> None:
    """Half a surrogate pair is text that UTF-8 cannot spell; an enum may stand for anything."""
    if isinstance(value, str) and value.isascii():
        return
    try:
        _encoder.encode(value)
    except Exception as error:
        raise UnserializableError(path, str(error)) from error


def _children(value: Any, path: str, any_key: bool) -> list[tuple[str, Any]]:
    if isinstance(value, (dict, Mapping)):
        for key in value:
            _check_key(key, path, any_key)
        return [(f".{key}", inner) for key, inner in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", inner) for index, inner in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        return [
            (f".{wire}", getattr(value, name))
            for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        ]
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields  # loaded already where there is such a value

        return [(f".{field.name}", getattr(value, field.name)) for field in fields(value)]
    return [("", _converted(value, path))]


def _check_key(key: Any, path: str, any_key: bool) -> None:
    if isinstance(key, str):
        _check_leaf(key, path)
        return
    try:
        if any_key:
            _encoder.encode({key: 0})
            return
    except Exception as error:
        raise UnserializableError(f"{path} <non-string-map-key>", str(error)) from error
    raise UnserializableError(f"{path} <non-string-map-key>", f"key {key!r} is not a string")


def _converted(value: Any, path: str) -> Any:
    try:
        return _own_conversion(value)
    except Exception as error:
        raise UnserializableError(path, str(error)) from error
