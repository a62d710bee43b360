"""Records whose fields msgspec cannot read by itself: they are read field by field, and then made by their own class.

A record may be a dataclass, a TypedDict or an untagged struct. It is closed: fields that it does not have are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, NotRequired, Required, get_args, get_origin, get_type_hints

import msgspec
from typing_extensions import is_typeddict

from harborage.tools.arguments import decode_custom, to_invalid_args
from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.shapes import Describer, InvalidValueError, Shape, type_name

_WRAPPERS: Final = (Required, NotRequired)
_NONE_GIVEN: Final = msgspec.NODEFAULT


class Field(NamedTuple):
    """One field of a record. `shown` is its name in JSON; without a default and a factory it is required."""

    name: str
    shown: str
    type: Any
    default: Any = _NONE_GIVEN
    factory: Any = _NONE_GIVEN


def is_record(cls: Any) -> bool:
    """Whether a class is one whose fields can be read one by one."""
    if not isinstance(cls, type):
        return False
    if issubclass(cls, msgspec.Struct):
        config = cls.__struct_config__
        return config.tag is None and not config.array_like
    return hasattr(cls, "__dataclass_fields__") or is_typeddict(cls)


def fields_of(annotation: Any, place: str) -> list[Field] | None:
    """Return the fields of a record, with the type arguments of a generic one; None when a name is not resolved.

    Raises:
        UnsupportedTypeError: a field is an InitVar, which is no field of the value.
    """
    cls = get_origin(annotation) or annotation
    try:
        hints = get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 - msgspec resolves by its own rules, and names what it cannot
        return None
    for name, hint in hints.items():
        if type(hint).__name__ == "InitVar":
            raise UnsupportedTypeError(place, f"{type_name(cls)}.{name} is an InitVar; make it a field")
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    types = {name: _bind(_unwrap(hint), given) for name, hint in hints.items()}
    if issubclass(cls, msgspec.Struct):
        return [
            Field(each.name, each.encode_name, types[each.name], each.default, each.default_factory)
            for each in msgspec.structs.fields(cls)
        ]
    if is_typeddict(cls):
        return [
            Field(name, name, each) if name in cls.__required_keys__ else Field(name, name, each, msgspec.UNSET)
            for name, each in types.items()
        ]
    from dataclasses import MISSING, fields  # loaded already where there is such a class

    def given_or_none(default: Any) -> Any:
        return _NONE_GIVEN if default is MISSING else default

    return [
        Field(each.name, each.name, types[each.name], given_or_none(each.default), given_or_none(each.default_factory))
        for each in fields(cls)
        if each.init
    ]


def make_record(annotation: Any, fields: list[Field], place: str) -> type[Shape]:
    """Return the shape of a record with these fields.

    Raises:
        UnsupportedTypeError: one of their types cannot be read.
    """
    cls = get_origin(annotation) or annotation
    specs = [_spec(each) for each in fields]
    try:
        struct = msgspec.defstruct(
            cls.__name__,
            specs,
            rename={each.name: each.shown for each in fields},
            forbid_unknown_fields=True,
            kw_only=True,
        )
    except Exception as error:
        raise UnsupportedTypeError(place, f"{type_name(cls)} cannot be described: {error}") from error
    return type(cls.__name__, (_RecordShape,), {"cls": cls, "struct": struct})


class _RecordShape(Shape):
    cls: ClassVar[Any]
    struct: ClassVar[type[msgspec.Struct]]

    @classmethod
    def read(cls, value: Any) -> Any:
        if not is_typeddict(cls.cls) and isinstance(value, cls.cls):
            return value
        try:
            read = msgspec.convert(value, cls.struct, dec_hook=decode_custom)
        except (ValueError, TypeError) as error:
            invalid = to_invalid_args(error)
            raise InvalidValueError(invalid.reason, invalid.path) from error
        given = {name: getattr(read, name) for name in read.__struct_fields__}
        try:
            return cls.cls(**{name: each for name, each in given.items() if each is not msgspec.UNSET})
        except (ValueError, TypeError) as error:
            raise InvalidValueError(str(error), "$") from error

    @classmethod
    def describe(cls, describer: Describer, path: str, depth: int) -> dict[str, Any]:
        return describer.describe(cls.struct, path, depth)


def _spec(field: Field) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.default is msgspec.UNSET:
        return (field.name, field.type | msgspec.UnsetType, msgspec.UNSET)
    if field.factory is not _NONE_GIVEN:
        return (field.name, field.type, msgspec.field(default_factory=field.factory))
    if field.default is not _NONE_GIVEN:
        return (field.name, field.type, field.default)
    return (field.name, field.type)


def _unwrap(hint: Any) -> Any:
    while get_origin(hint) in _WRAPPERS:
        hint = get_args(hint)[0]
    return hint


def _bind(hint: Any, given: Mapping[Any, Any]) -> Any:
    """Return a field's type with the type arguments of its generic record."""
    if hint in given if _is_hashable(hint) else False:
        return given[hint]
    wanted = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) and not get_args(hint):
        return hint  # a generic class without its arguments
    if wanted and all(each in given for each in wanted):
        return hint[tuple(given[each] for each in wanted)]
    return hint


def _is_hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True
