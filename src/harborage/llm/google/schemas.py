"""JSON schemas as the Gemini API takes them: a part of the language, and nothing beyond it. Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["accepted"]

Json = dict[str, Any]

_KNOWN = frozenset(
    {
        "$anchor",
        "$defs",
        "$id",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    }
)
_OF_SCHEMAS = frozenset({"$defs", "properties"})
_NESTED = frozenset({"additionalProperties", "anyOf", "items", "oneOf", "prefixItems"})


def accepted(schema: Any) -> Any:
    """The schema in the words that the API knows; what it cannot say is left out, and checked after the call."""
    if isinstance(schema, list):
        return [accepted(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Json = {}
    for name, value in _plainly(schema).items():
        if name not in _KNOWN:
            continue
        if name in _OF_SCHEMAS and isinstance(value, dict):
            kept[name] = {key: accepted(inner) for key, inner in value.items()}
        else:
            kept[name] = accepted(value) if name in _NESTED else value
    return kept


def _plainly(schema: Json) -> Json:
    """The same schema without the words that another one can stand for."""
    plain = dict(schema)
    if "definitions" in plain:
        plain.setdefault("$defs", plain.pop("definitions"))
    if "const" in plain:
        plain.setdefault("enum", [plain.pop("const")])
    if isinstance(plain.get("$ref"), str):
        plain["$ref"] = plain["$ref"].replace("#/definitions/", "#/$defs/")
    members = plain.pop("allOf", None)
    for member in members if isinstance(members, list) else ():
        if isinstance(member, dict):
            plain = _joined(_plainly(member), plain)
    return plain


def _joined(first: Json, second: Json) -> Json:
    """Both schemas at once, as far as objects go: all the properties of either, all that either requires."""
    joined = {**first, **second}
    if "properties" in first and "properties" in second:
        joined["properties"] = {**first["properties"], **second["properties"]}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return joined
