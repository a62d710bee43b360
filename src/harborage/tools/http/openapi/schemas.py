"""JSON Schemas of what a document describes: of 3.0 and 3.1, closed in themselves, with references where they recur."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.artifacts.media import size_text
from harborage.tools.http.errors import DocumentError
from harborage.tools.naming import to_identifier
from harborage.tools.text import clean_text

if TYPE_CHECKING:
    from harborage.tools.http.openapi.document import Document, Node
    from harborage.tools.sources import ToolLimits

_DROPPED: Final = frozenset(
    {"discriminator", "example", "examples", "externalDocs", "xml", "$schema", "$id", "$anchor", "$defs", "definitions"}
)
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SCHEMAS: Final = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else", "unevaluatedProperties"}
)
_MOST_TEXT: Final = 1024
_MOST_PARTS: Final = 20_000  # what a file of a few lines may stand for, where it names its own parts again and again


class Schemas:
    """The schemas of one operation. `definitions` are those that they refer to, for the root's `$defs`.

    What only comes back in answers (`readOnly`) is left out.
    """

    def __init__(self, document: Document, limits: ToolLimits) -> None:
        self._document = document
        self._limits = limits
        self._names: dict[tuple[object, str], str] = {}
        self._left = _MOST_PARTS
        self.definitions: dict[str, Any] = {}

    def convert(self, node: Node, depth: int = 1) -> dict[str, Any]:
        """Return a node as a JSON Schema.

        Raises:
            DocumentError: it nests too deeply, or a reference leads nowhere.
        """
        self._left -= 1
        if self._left < 0:
            raise self._refusal(f"its schema has more than {_MOST_PARTS:,} parts")
        if depth > self._limits.schema_levels:
            raise self._refusal(f"its schema nests deeper than {self._limits.schema_levels} levels")
        value = node.value
        if value is True or value is None:
            return {}
        if value is False:
            return {"not": {}}
        if not isinstance(value, Mapping):
            raise self._refusal("a schema of it is none")
        if isinstance(value.get("$ref"), str):
            return self._reference(node, depth)
        found = {name: self._part(name, node.get(name), depth) for name in value if self._keeps(str(name))}
        return self._as_31(self._writable(node, found))

    def checked(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of all arguments with its definitions.

        Raises:
            DocumentError: it is too large.
        """
        whole = {**schema, "$defs": self.definitions} if self.definitions else schema
        size = len(msgspec.json.encode(whole))
        if size > self._limits.schema_bytes:
            raise self._refusal(f"its schema has {size_text(size)}; at most {size_text(self._limits.schema_bytes)}")
        return whole

    def _refusal(self, why: str) -> DocumentError:
        return DocumentError("document", self._document.name, message=why)

    def _keeps(self, name: str) -> bool:
        return name not in _DROPPED and not name.startswith("x-")

    def _reference(self, node: Node, depth: int) -> dict[str, Any]:
        target = self._document.resolve(node)
        key = (target.file, target.place)
        name = self._names.get(key)
        if name is None:
            wanted = to_identifier(target.place.rpartition("/")[2]) or "Schema"
            name = wanted
            while name in self.definitions:
                name = f"{wanted}_{len(self.definitions)}"
            self._names[key] = name
            self.definitions[name] = {}  # taken, while it may refer to itself
            self.definitions[name] = self.convert(target, depth + 1)
        beside = {
            one: self._part(one, node.get(one), depth)
            for one in node.value
            if one != "$ref" and (not self._document.is_30 or one == "nullable") and self._keeps(str(one))
        }
        reference = {"$ref": f"#/$defs/{name}"}
        if beside.pop("nullable", None) is True:
            return {"anyOf": [reference, {"type": "null"}]}
        return {**beside, **reference}

    def _part(self, name: str, node: Node, depth: int) -> Any:
        if name in _LISTS:
            return [self.convert(one, depth + 1) for one in node.each()]
        if name in _MAPS:
            return {key: self.convert(one, depth + 1) for key, one in node.items()}
        if name in _SCHEMAS and not isinstance(node.value, bool):
            return self.convert(node, depth + 1)
        if name in ("description", "title") and isinstance(node.value, str):
            return clean_text(node.value, _MOST_TEXT)
        return node.value

    def _writable(self, node: Node, found: dict[str, Any]) -> dict[str, Any]:
        """The schema without the properties that a caller cannot set."""
        hidden = {
            name
            for name, one in node.get("properties").items()
            if isinstance(one.value, Mapping) and one.value.get("readOnly") is True
        }
        if hidden:
            found["properties"] = {name: one for name, one in found["properties"].items() if name not in hidden}
        if "required" in found:
            listed = found["required"] if isinstance(found["required"], list) else []
            needed = [name for name in listed if isinstance(name, str) and name not in hidden]
            found = {name: one for name, one in found.items() if name != "required"}
            if needed:
                found["required"] = needed
        return found

    def _as_31(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema in the words of JSON Schema 2020-12, whatever version of OpenAPI it was written in."""
        schema.pop("readOnly", None)
        schema.pop("writeOnly", None)
        for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and limit in schema:
                schema[exclusive] = schema.pop(limit)
        if "type" in schema and schema["type"] is None:
            schema["type"] = "null"  # YAML reads `type: null` so
        if schema.get("type") == "file":
            schema["type"] = "string"
        if schema.get("enum") is not None and not isinstance(schema["enum"], list):
            schema.pop("enum")
        if schema.pop("nullable", False) is True:
            schema = _nullable(schema)
        return schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str):
        enum = {"enum": [*schema["enum"], None]} if "enum" in schema and None not in schema["enum"] else {}
        return {**schema, "type": [kind, "null"], **enum}
    if kind is None and schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema
