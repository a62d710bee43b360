"""A JSON schema as a provider insists on it: every object closed, or none of them. Pure; the input stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from harborage import codec
from harborage.llm.errors import InvalidConfigError, InvalidJSONSchemaError
from harborage.llm.profile import SchemaSanitising

__all__ = ["sanitised"]

Schema: TypeAlias = dict[str, Any]

_BY_NAME: Final = ("properties", "definitions", "$defs")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("additionalProperties", "items", "not")


def sanitised(schema: bytes, policy: SchemaSanitising | str) -> bytes:
    """`schema` with `policy` applied to every schema inside it; without a policy the same bytes.

    `openai_strict` closes each node of the type `object` and marks it as strict, where the node does not say otherwise
    itself; `permissive` takes both marks away everywhere.

    Raises:
        InvalidConfigError: the policy is unknown.
        InvalidJSONSchemaError: the schema is no JSON.
    """
    if policy == SchemaSanitising.UNSET:
        return schema
    treat = _TREATMENTS.get(policy)
    if treat is None:
        raise InvalidConfigError(f"llm: schema_sanitising is {policy!r}; use one of {', '.join(_TREATMENTS)}")
    try:
        decoded = codec.decode(schema)
        _walk(decoded, treat)
        return codec.encode(decoded, "schema")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidJSONSchemaError(f"llm: the JSON schema of the answer cannot be read: {error}") from error


def _walk(node: Any, treat: Callable[[Schema], None]) -> None:
    """Apply `treat` to a schema and to those inside it. The tree was just decoded, so it may be changed in place."""
    if not isinstance(node, dict):
        return  # `true` and `false` are schemas too, and have nothing to treat
    for inner in _schemas_inside(node):
        _walk(inner, treat)
    treat(node)


def _schemas_inside(node: Schema) -> list[Any]:
    found = [node[key] for key in _SINGLE if key in node]
    for key in _BY_NAME:
        named = node.get(key)
        if isinstance(named, dict):
            found += named.values()
    for key in _LISTS:
        listed = node.get(key)
        if isinstance(listed, list):
            found += listed
    # `items` was once allowed to be a list, one schema a position.
    return [schema for one in found for schema in (one if isinstance(one, list) else (one,))]


def _close(node: Schema) -> None:
    if node.get("type") == "object":
        node.setdefault("additionalProperties", False)
        node.setdefault("strict", True)


def _open(node: Schema) -> None:
    node.pop("additionalProperties", None)
    node.pop("strict", None)


_TREATMENTS: Final[dict[str, Callable[[Schema], None]]] = {
    SchemaSanitising.OPENAI_STRICT: _close,
    SchemaSanitising.PERMISSIVE: _open,
}
