"""The types of values: how a declared type is read, for the arguments and results of tools and for agents' outputs.

`readable` turns an annotation into one that msgspec reads as we want it. What msgspec cannot read, or would read
otherwise, gets a `Shape` in its place: unions of records or models, paths, and the records around them.
"""

from __future__ import annotations

import collections.abc as abc
import re
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec import inspect as kinds

from harborage.artifacts.media import Media
from harborage.tools.arguments import decode_value, make_unknown_field_finder
from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.records import fields_of, is_record, make_record
from harborage.tools.schema import read_type
from harborage.tools.shapes import Describer, InvalidValueError, Shape, is_model, type_name
from harborage.tools.unions import make_union

if TYPE_CHECKING:
    from pathlib import Path

MEDIA_FORMAT: Final = "artifact-id"
"""The format, in a schema, of an argument that is the id of an artifact."""

_ONE_PASS: Final = (
    abc.Iterator,
    abc.Generator,
    abc.AsyncIterator,
    abc.AsyncIterable,
    abc.AsyncGenerator,
    abc.Awaitable,
    abc.Coroutine,
)
_NOT_CONTAINERS: Final = (abc.Callable, type, Literal)
_LIMITS: Final = frozenset({"gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern"})


def readable(annotation: Any, place: str, *, needs_zone: bool = True) -> Any:
    """Return a type as msgspec reads it; `place` names it in errors. With `needs_zone` a datetime must have a zone.

    Raises:
        UnsupportedTypeError: it cannot be read as JSON.
    """
    return _Reading(needs_zone).read(annotation, place)


def make_reader(annotation: Any, place: str) -> Callable[[Any], Any]:
    """Return the function from plain JSON to the value of a type that `readable` returned; a value stays as it is.

    The function raises ToolInvalidArgsError for what does not fit, with the path.

    Raises:
        UnsupportedTypeError: the type cannot be read as JSON.
    """
    finder = make_unknown_field_finder(read_type(annotation, place))

    def read(value: Any) -> Any:
        return decode_value(annotation, finder, value)

    return read


class _PathShape(Shape):
    @classmethod
    def read(cls, value: Any) -> Path:
        from pathlib import Path, PurePath  # loaded already where a function names it

        if isinstance(value, PurePath):
            return Path(value)
        if not isinstance(value, str) or "\0" in value:
            raise InvalidValueError("Expected a path", "$")
        return Path(value)

    @classmethod
    def describe(cls, _describer: Describer, _path: str, _depth: int) -> dict[str, Any]:
        return {"type": "string", "format": "path"}


class _MediaArgument(Shape):
    """A picture, sound or file as an argument: the model gives the id of an artifact, the body loads it."""

    media: ClassVar[type[Media]] = Media

    @classmethod
    def read(cls, value: Any) -> Any:
        if isinstance(value, cls.media):
            return value
        if not isinstance(value, str) or not value:
            raise InvalidValueError("Expected the id of an artifact, as text", "$")
        return cls.media.kept(value)

    @classmethod
    def describe(cls, _describer: Describer, _path: str, _depth: int) -> dict[str, Any]:
        text = f"the id of an artifact that is listed ({cls.media.__name__})"
        return {"type": "string", "format": MEDIA_FORMAT, "description": text}


class _MediaResult(Shape):
    """A picture, sound or file as a result: it is recorded as the reference of an artifact."""

    media: ClassVar[type[Media]] = Media

    @classmethod
    def read(cls, value: Any) -> Any:
        if isinstance(value, cls.media):
            return value
        if not isinstance(value, dict) or not isinstance(value.get("artifact"), str):
            raise InvalidValueError(f"Expected `{cls.media.__name__}`, got `{type(value).__name__}`", "$")
        return cls.media.kept(value["artifact"], mime=value.get("mime", ""), name=value.get("name", ""))

    @classmethod
    def describe(cls, _describer: Describer, _path: str, _depth: int) -> dict[str, Any]:
        fields = {name: {"type": "string"} for name in ("artifact", "mime", "name")}
        return {"type": "object", "properties": fields, "required": ["artifact"]}


class _Reading:
    """One walk through an annotation; `_above` are the records around the place."""

    def __init__(self, needs_zone: bool) -> None:
        self._needs_zone = needs_zone
        self._above: list[Any] = []

    def read(self, annotation: Any, place: str) -> Any:
        if isinstance(annotation, TypeVar):
            raise UnsupportedTypeError(place, f"{annotation.__name__} is not bound to a type; name the type")
        if annotation is datetime and self._needs_zone:
            return Annotated[datetime, Meta(tz=True)]
        if _is_path(annotation):
            return _PathShape
        if isinstance(annotation, type) and issubclass(annotation, Media):
            of = _MediaArgument if self._needs_zone else _MediaResult
            return type(annotation.__name__, (of,), {"media": annotation})
        behind = getattr(annotation, "__supertype__", None) or _behind_alias(annotation)
        if behind is not None:
            return self._named(annotation, behind, place)
        origin = get_origin(annotation)
        if origin is Annotated:
            return self._annotated(annotation, place)
        if origin in (Union, UnionType):
            return self._union(annotation, place)
        if is_record(origin or annotation):
            return self._record(annotation, place)
        return self._container(annotation, origin or annotation, place)

    def _named(self, annotation: Any, behind: Any, place: str) -> Any:
        """Read the type behind a name; that of one which contains itself stays, and is refused with the schema."""
        if annotation in self._above:
            raise UnsupportedTypeError(
                place, f"{type_name(annotation)} contains itself; break the cycle, or take it as dict"
            )
        self._above.append(annotation)
        try:
            inner = self.read(behind, place)
        finally:
            self._above.pop()
        return annotation if inner is behind else inner

    def _container(self, annotation: Any, origin: Any, place: str) -> Any:
        if origin in _NOT_CONTAINERS:
            return annotation
        args = get_args(annotation)
        if origin in _ONE_PASS:
            item = type_name(args[0]) if args and not isinstance(args[0], list) else "…"
            raise UnsupportedTypeError(place, f"{origin.__name__} can be read only once; use list[{item}]")
        inside = f"{place}.*" if origin in (dict, abc.Mapping, abc.MutableMapping) else f"{place}[]"
        read = tuple(each if each is Ellipsis else self.read(each, inside) for each in args)
        if origin is abc.Iterable:
            return list[read[0]] if read else list  # type: ignore[valid-type]
        if all(new is old for new, old in zip(read, args, strict=True)):
            return annotation
        try:
            return origin[read]
        except TypeError:
            return annotation

    def _annotated(self, annotation: Any, place: str) -> Any:
        of, *notes = get_args(annotation)
        if of is datetime and any(isinstance(each, Meta) and each.tz is not None for each in notes):
            return annotation
        read = [_read_note(each, place) for each in notes]
        inner = self.read(of, place)
        if inner is of and all(new is old for new, old in zip(read, notes, strict=True)):
            return annotation
        return Annotated[(inner, *read)]

    def _record(self, annotation: Any, place: str) -> Any:
        if annotation in self._above:
            return annotation  # it contains itself, which the schema refuses
        fields = fields_of(annotation, place)
        if fields is None:
            return annotation
        self._above.append(annotation)
        try:
            read = [each._replace(type=self.read(each.type, f"{place}.{each.shown}")) for each in fields]
        finally:
            self._above.pop()
        if all(new.type is old.type for new, old in zip(read, fields, strict=True)):
            return annotation
        return make_record(annotation, read, place)

    def _union(self, annotation: Any, place: str) -> Any:
        given = [each for each in get_args(annotation) if each is not NoneType]
        is_optional = NoneType in get_args(annotation)
        read = [self.read(each, place) for each in given]
        if not _is_refused_by_msgspec(read):
            same = all(new is old for new, old in zip(read, given, strict=True))
            return annotation if same else _join([*read, *([None] if is_optional else [])])
        names = [type_name(each) for each in given]
        objects = [at for at, each in enumerate(read) if _is_object(each)]
        others = [at for at in range(len(read)) if at not in objects]
        members, shown = [read[at] for at in objects], [names[at] for at in objects]
        if others:
            members.append(_join([read[at] for at in others]))
            shown.append(" | ".join(names[at] for at in others))
        union = make_union(members, shown, place)
        return _join([union, None]) if is_optional else union


def _is_path(annotation: Any) -> bool:
    is_of_pathlib = getattr(annotation, "__module__", "").partition(".")[0] == "pathlib"
    return is_of_pathlib and getattr(annotation, "__name__", "") in ("Path", "PurePath")


def _join(members: list[Any]) -> Any:
    return reduce(or_, members)


def _behind_alias(annotation: Any) -> Any:
    """The type behind `type X = …`; None for anything else."""
    return annotation.__value__ if type(annotation).__name__ == "TypeAliasType" else None


def _is_object(annotation: Any) -> bool:
    """Whether a member of a union is one that only our rule tells from others."""
    if get_origin(annotation) is Annotated:
        return _is_object(get_args(annotation)[0])
    cls = get_origin(annotation) or annotation
    is_shape = isinstance(cls, type) and issubclass(cls, (Shape, msgspec.Struct))
    return is_shape or is_model(cls) or is_record(cls)


def _is_refused_by_msgspec(members: list[Any]) -> bool:
    if len(members) < 2 or not any(map(_is_object, members)):
        return False
    try:
        kinds.type_info(_join(members))
    except TypeError:
        return True
    return False


def _read_note(note: Any, place: str) -> Any:
    """Return what msgspec reads of an annotation's note: a text as the description, limits of pydantic as its own.

    Raises:
        UnsupportedTypeError: the note limits the value in a way that only a model can check.
    """
    if isinstance(note, str):
        return Meta(description=note)
    documentation = getattr(note, "documentation", None)
    if isinstance(documentation, str):
        return Meta(description=documentation)
    package = type(note).__module__.partition(".")[0]
    if package not in ("pydantic", "annotated_types"):
        return note
    if type(note).__name__ != "FieldInfo":
        return Meta(**_read_limits(note, place))
    if not note.is_required():
        raise UnsupportedTypeError(place, "write the default behind the parameter, not in Field(…)")
    if note.alias:
        raise UnsupportedTypeError(place, "Field(alias=…) works in a model; name the parameter so")
    limits: dict[str, Any] = {}
    for each in note.metadata:
        limits.update(_read_limits(each, place))
    texts = {name: getattr(note, name) for name in ("title", "description", "examples")}
    return Meta(**limits, **{name: each for name, each in texts.items() if each})


def _read_limits(note: Any, place: str) -> dict[str, Any]:
    names = getattr(note, "__dict__", None) or dict.fromkeys(getattr(note, "__dataclass_fields__", ()))
    limits = {name: getattr(note, name) for name in names if getattr(note, name) is not None and name != "strict"}
    unknown = sorted(limits.keys() - _LIMITS)
    if unknown or not names:
        what = unknown[0] if unknown else type(note).__name__
        raise UnsupportedTypeError(place, f"{type(note).__name__}: {what} is checked in models only; use one")
    if isinstance(limits.get("pattern"), re.Pattern):
        limits["pattern"] = limits["pattern"].pattern
    return limits
