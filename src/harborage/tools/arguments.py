"""Turn argument bytes into typed values and say exactly what is wrong with them.

One generated struct decodes, checks and fills in defaults in a single pass. Every failure becomes a
ToolInvalidArgsError that names the path; no text here repeats a value that was passed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError

if TYPE_CHECKING:
    from harborage.tools.strict import Finder

__all__ = ["REQUIRED", "Argument", "argument_decoder", "invalid_args", "result_checker"]

REQUIRED: Any = msgspec.NODEFAULT
"""Stands where a default would: the argument must be given."""

_PLACE = re.compile(r"^(?P<reason>.*?) - at `(?P<path>.+)`$", re.DOTALL)
_NAMED_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<field>.+)`$", re.DOTALL)
_QUOTED_VALUE = re.compile(r"^(Invalid (?:enum )?value)\b.*", re.DOTALL)


class Argument(msgspec.Struct, frozen=True):
    """One parameter of a tool as its arguments carry it."""

    name: str
    type: Any
    default: Any = REQUIRED


class _ModelError(ValueError):
    """A model refused its part of the arguments; `path` is the place below that part."""

    def __init__(self, reason: str, path: str) -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason)


def argument_decoder(
    name: str, arguments: Sequence[Argument], *, find_unknown: Finder | None = None, accepts_null: bool = False
) -> Callable[[bytes], msgspec.Struct]:
    """A function from argument bytes to a struct with one field per argument; empty bytes stand for `{}`.

    `accepts_null` lets `null` stand for `{}`, too. `find_unknown` looks for fields that nested records do not have.

    Raises:
        UnsupportedTypeError: msgspec cannot decode one of the types.
    """
    fields = [_field(each) for each in arguments]
    try:
        struct = msgspec.defstruct(f"{name}_arguments", fields, forbid_unknown_fields=True, kw_only=True, gc=False)
        decoder = msgspec.json.Decoder(struct, dec_hook=_model_from)
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
            raise invalid_args(error) from error

    return decode


def _field(argument: Argument) -> tuple[str, Any] | tuple[str, Any, Any]:
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
        raise _ModelError(f"Object contains unknown field `{field}`", path)


def result_checker(annotation: Any) -> Callable[[Any], None]:
    """A function that accepts what fits `annotation` and raises ToolInvalidArgsError for anything else."""

    def check(value: Any) -> None:
        try:
            msgspec.convert(value, annotation, dec_hook=_model_from)
        except (ValueError, TypeError, RecursionError) as error:
            raise invalid_args(error) from error

    return check


def invalid_args(error: Exception) -> ToolInvalidArgsError:
    """What `error` says about arguments or a result, with its path."""
    if isinstance(error, _ModelError):
        return ToolInvalidArgsError(error.reason, error.path)
    if isinstance(error, UnicodeDecodeError):
        return ToolInvalidArgsError("JSON is not valid UTF-8")
    if isinstance(error, RecursionError):
        return ToolInvalidArgsError("JSON is nested too deeply")
    placed = _PLACE.match(str(error))
    reason, path = (placed["reason"], placed["path"]) if placed else (str(error), "$")
    inner = error.__cause__
    if isinstance(inner, _ModelError):
        return ToolInvalidArgsError(inner.reason, path + inner.path.removeprefix("$"))
    named = _NAMED_FIELD.match(reason)
    return ToolInvalidArgsError(_QUOTED_VALUE.sub(r"\1", reason), f"{path}.{named['field']}" if named else path)


def _model_from(cls: Any, value: Any) -> Any:
    """A model instance from decoded JSON, by the model's own validation; no other class gets past the schema."""
    if isinstance(value, cls):
        return value
    try:
        return cls.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise _from_model(error) from error


def _from_model(error: ValueError) -> _ModelError:
    """The first complaint of a model, without the value it complains about."""
    listed = getattr(error, "errors", None)
    found = listed() if callable(listed) else []
    if not found:
        return _ModelError(f"{type(error).__name__}: the model refused the value", "$")
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found[0]["loc"])
    return _ModelError(str(found[0]["msg"]), f"${steps}")
