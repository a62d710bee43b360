"""Unions that msgspec refuses, such as two dataclasses, two models or both: one rule for arguments, results, outputs.

A value is of the one member that it fits. That there is such a member is decided when the type is read: members whose
values could be taken for one another need a `Literal` field that tells them apart, which is then required.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from harborage.tools.arguments import decode_value, make_unknown_field_finder
from harborage.tools.errors import ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.schema import SchemaBuilder, read_type
from harborage.tools.shapes import Describer, InvalidValueError, Shape

_OBJECT: Final = "object"


class Member(msgspec.Struct, frozen=True):
    """One member of a union. `tags` are the names of the fields that it must have to be told apart."""

    annotation: Any
    name: str
    read: Callable[[Any], Any]
    schema: dict[str, Any]
    tags: frozenset[str] = frozenset()

    @property
    def fields(self) -> dict[str, Any]:
        """The schemas of its fields by name."""
        found: dict[str, Any] = self.schema.get("properties", {})
        return found

    def may_be(self, value: Any) -> bool:
        """Whether no `Literal` field of a value says that it is something else."""
        if not isinstance(value, dict):
            return True
        known = ((value[name], _words(each)) for name, each in self.fields.items() if name in value)
        return all(words is None or given in words for given, words in known)


def make_union(annotations: Sequence[Any], names: Sequence[str], place: str) -> type[Shape]:
    """Return the shape of a union of these members.

    Raises:
        UnsupportedTypeError: two of them cannot be told apart, or one has no JSON form.
    """
    members = [_make_member(each, name, place) for each, name in zip(annotations, names, strict=True)]
    for at, each in enumerate(members):
        for before in range(at):
            tags = _tags_between(members[before], each, place)
            members[before] = _with_tags(members[before], tags)
            each = members[at] = _with_tags(each, tags)
    return type(" | ".join(names), (_UnionShape,), {"members": tuple(members)})


class _UnionShape(Shape):
    members: ClassVar[tuple[Member, ...]]

    @classmethod
    def read(cls, value: Any) -> Any:
        fitting: list[tuple[Member, Any]] = []
        refused: list[tuple[Member, ToolInvalidArgsError]] = []
        for each in cls.members:
            try:
                fitting.append((each, _read_member(each, value)))
            except ToolInvalidArgsError as error:
                refused.append((each, error))
        if not fitting:
            raise _refusal(refused, value)
        return _choose(fitting, value)

    @classmethod
    def describe(cls, describer: Describer, path: str, depth: int) -> dict[str, Any]:
        return {"anyOf": [_require(describer.describe(each.annotation, path, depth), each) for each in cls.members]}


def _read_member(member: Member, value: Any) -> Any:
    missing = next((name for name in sorted(member.tags) if isinstance(value, dict) and name not in value), None)
    if missing is not None:
        raise ToolInvalidArgsError(f"Object missing required field `{missing}`", f"$.{missing}")
    return member.read(value)


def _choose(fitting: list[tuple[Member, Any]], value: Any) -> Any:
    """Return the value of the one member; of several that drop what they do not know, the one that drops the least."""
    if len(fitting) == 1 or not isinstance(value, dict):
        return fitting[0][1]
    dropped = [len(value.keys() - each.fields.keys()) for each, _ in fitting]
    least = [read for (_, read), count in zip(fitting, dropped, strict=True) if count == min(dropped)]
    if len(least) > 1:
        names = " and ".join(each.name for each, _ in fitting)
        raise InvalidValueError(f"it fits {names} alike; give the fields of one of them", "$")
    return least[0]


def _refusal(refused: list[tuple[Member, ToolInvalidArgsError]], value: Any) -> InvalidValueError:
    """Return why no member fits: the reason of the one that was meant, or those of all."""
    meant = [error for each, error in refused if each.may_be(value)] or [error for _, error in refused]
    reasons = dict.fromkeys(str(error) for error in meant)
    if len(reasons) == 1:
        return InvalidValueError(meant[0].reason, meant[0].path)
    return InvalidValueError("; or ".join(reasons), "$")


def _make_member(annotation: Any, name: str, place: str) -> Member:
    info = read_type(annotation, place)
    builder, finder = SchemaBuilder(), make_unknown_field_finder(info)
    schema = _resolve(builder.schema(info, place), builder.definitions)

    def read(value: Any) -> Any:
        return decode_value(annotation, finder, value)

    return Member(annotation, name, read, schema)


def _resolve(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the definitions that its fields refer to in their places."""

    def look_up(each: Any) -> Any:
        name = str(each.get("$ref", "")).removeprefix("#/$defs/") if isinstance(each, dict) else ""
        return definitions.get(name, each)

    found: dict[str, Any] = look_up(schema)
    if "properties" not in found:
        return found
    return {**found, "properties": {name: look_up(each) for name, each in found["properties"].items()}}


def _with_tags(member: Member, tags: frozenset[str]) -> Member:
    return msgspec.structs.replace(member, tags=member.tags | tags) if tags else member


def _require(schema: dict[str, Any], member: Member) -> dict[str, Any]:
    return {**schema, "required": sorted({*schema.get("required", ()), *member.tags})} if member.tags else schema


def _tags_between(one: Member, other: Member, place: str) -> frozenset[str]:
    """Return the fields that two members must have to be told apart; none when they differ without.

    Raises:
        UnsupportedTypeError: nothing tells them apart.
    """
    alternatives = [(a, b) for a in _alternatives(one.schema) for b in _alternatives(other.schema)]
    alike = [(a, b) for a, b in alternatives if _types(a) & _types(b)]
    if not alike:
        return frozenset()
    shown = f"{one.name} | {other.name}"
    if any(not (_is_record(a) and _is_record(b)) for a, b in alike):
        kinds = ", ".join(sorted({kind for a, b in alike for kind in _types(a) & _types(b)}))
        raise UnsupportedTypeError(place, f"{shown}: both are written as {kinds}; keep one of them")
    if all(_differ_in_fields(a, b) for a, b in alike):
        return frozenset()
    tags = frozenset(
        name for name in one.fields.keys() & other.fields.keys() if _are_apart(one.fields[name], other.fields[name])
    )
    if not tags:
        raise UnsupportedTypeError(place, f'{shown}: the same fields; add kind: Literal["{one.name.lower()}"] to each')
    return tags


def _differ_in_fields(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether no object has the fields of both: one needs what the other lacks, or both need it in other forms."""
    needed = {*one.get("required", ()), *other.get("required", ())}
    ours, theirs = one.get("properties", {}), other.get("properties", {})
    if needed - (ours.keys() & theirs.keys()):
        return True
    return any(_have_no_type_in_common(ours[name], theirs[name]) for name in needed) or any(
        _are_apart(ours[name], theirs[name]) for name in needed
    )


def _have_no_type_in_common(one: Any, other: Any) -> bool:
    pairs = [(a, b) for a in _alternatives(one) for b in _alternatives(other)]
    return not any(_types(a) & _types(b) for a, b in pairs)


def _are_apart(one: Any, other: Any) -> bool:
    """Whether two fields have words of their own."""
    ours, theirs = _words(one), _words(other)
    return ours is not None and theirs is not None and not any(each in theirs for each in ours)


def _words(schema: Any) -> list[Any] | None:
    """Return the values that a field may have; None when it is no `Literal`, enum or tag."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def _alternatives(schema: Any) -> list[dict[str, Any]]:
    if not isinstance(schema, dict):
        return [{}]
    inner = schema.get("anyOf") or schema.get("oneOf")
    return [each for part in inner for each in _alternatives(part)] if inner else [schema]


_ANY_TYPE: Final = frozenset({"array", "boolean", "null", "number", _OBJECT, "string"})
_TYPE_OF: Final[dict[type, str]] = {bool: "boolean", int: "number", float: "number", str: "string"}


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema admits; a whole number is a number."""
    named = schema.get("type")
    if named is None:
        words = _words(schema)
        return _ANY_TYPE if words is None else frozenset(_TYPE_OF.get(type(each), "null") for each in words)
    several = named if isinstance(named, list) else [named]
    return frozenset("number" if each == "integer" else each for each in several)


def _is_record(schema: dict[str, Any]) -> bool:
    return schema.get("type") == _OBJECT and "properties" in schema
