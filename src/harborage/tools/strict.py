"""Find a field that a nested record does not have.

msgspec rejects unknown fields only in structs that forbid them; in dataclasses, typed dicts and other structs it drops
them. The schema that the model sees closes every object, so what it drops is looked for here, before decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import inspect as kinds

__all__ = ["Finder", "unknown_field_finder"]

Finder: TypeAlias = Callable[[Any, str], str | None]
"""Takes decoded JSON and its path; gives the path of the first unknown field, or None."""


def unknown_field_finder(info: kinds.Type) -> Finder | None:
    """A finder for values of this type; None when the decoder rejects unknown fields by itself, or there are none."""
    match info:
        case kinds.Metadata():
            return unknown_field_finder(info.type)
        case kinds.ListType() | kinds.VarTupleType() | kinds.SetType() | kinds.FrozenSetType():
            return _in_items(unknown_field_finder(info.item_type))
        case kinds.TupleType():
            return _in_row([unknown_field_finder(each) for each in info.item_types])
        case kinds.NamedTupleType():
            return _in_row([unknown_field_finder(each.type) for each in info.fields])
        case kinds.DictType():
            return _in_values(unknown_field_finder(info.value_type))
        case kinds.UnionType():
            return _in_union(info.types)
        case kinds.StructType() if info.array_like:
            return _in_row([unknown_field_finder(each.type) for each in info.fields])
        case kinds.StructType() | kinds.DataclassType() | kinds.TypedDictType():
            return _in_record(info)
        case _:
            return None


def _in_record(info: Any) -> Finder | None:
    fields = {each.encode_name: unknown_field_finder(each.type) for each in info.fields}
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


def _in_items(inner: Finder | None) -> Finder | None:
    if inner is None:
        return None

    def find(value: Any, path: str) -> str | None:
        return _first(inner(each, f"{path}[{at}]") for at, each in enumerate(value)) if _is_list(value) else None

    return find


def _in_row(inner: list[Finder | None]) -> Finder | None:
    if not any(inner):
        return None

    def find(value: Any, path: str) -> str | None:
        if not _is_list(value):
            return None
        pairs = enumerate(zip(inner, value, strict=False))
        return _first(each(item, f"{path}[{at}]") for at, (each, item) in pairs if each)

    return find


def _in_values(inner: Finder | None) -> Finder | None:
    if inner is None:
        return None

    def find(value: Any, path: str) -> str | None:
        return _first(inner(each, f"{path}.{key}") for key, each in value.items()) if isinstance(value, dict) else None

    return find


def _in_union(types: Iterable[kinds.Type]) -> Finder | None:
    """A union has at most one array part, and one object part or several tagged structs; that tells them apart."""
    parts = [part.type if isinstance(part, kinds.Metadata) else part for part in types]
    by_tag = {part.tag: unknown_field_finder(part) for part in parts if isinstance(part, kinds.StructType) and part.tag}
    tag_field = next((part.tag_field for part in parts if isinstance(part, kinds.StructType) and part.tag), None)
    others = [finder for part in parts if (finder := _untagged(part)) is not None]
    if not others and not any(by_tag.values()):
        return None

    def find(value: Any, path: str) -> str | None:
        if isinstance(value, dict) and tag_field is not None:
            tag = value.get(tag_field)
            inner = by_tag.get(tag) if isinstance(tag, (str, int)) else None
            return inner(value, path) if inner else None
        return _first(finder(value, path) for finder in others)

    return find


def _untagged(part: kinds.Type) -> Finder | None:
    return None if isinstance(part, kinds.StructType) and part.tag else unknown_field_finder(part)


def _first(found: Iterable[str | None]) -> str | None:
    return next((path for path in found if path), None)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
