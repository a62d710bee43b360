"""Writes `src/wire/types.ts`: the messages of every method and the payloads of every event, as the server has them.

`make console-types` runs it; a test fails when the file is stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from harborage.events import PAYLOADS
from harborage.protocol.errors import Code
from harborage.protocol.methods import ALL_METHODS
from harborage.protocol.openapi import Shapes, document
from harborage.server.families.table import ENDPOINTS

PLACE = Path(__file__).resolve().parent / "src" / "wire" / "types.ts"
_HEAD = """\
// Written by console/generate_types.py from the server's messages; a change by hand is lost.

"""
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_JSON = "export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };"


def types_text() -> str:
    """Return the file's text."""
    described = document(
        {name: Shapes(one.request, one.answer) for name, one in ENDPOINTS.items()},
        ALL_METHODS.values(),
        title="",
        version="",
    )
    messages: dict[str, Any] = described["components"]["schemas"]
    asked = _reachable((_request(item["post"]) for item in described["paths"].values() if "post" in item), messages)
    payloads, of_events = _events()
    structs = _structs([*(kind for one in ENDPOINTS.values() for kind in (one.request, one.answer)), *payloads])
    parts = [_JSON, _union("ErrorCode", [str(code) for code in Code])]
    parts += [_shape(name, schema, name in asked, structs.get(name)) for name, schema in sorted(messages.items())]
    parts += [
        _shape(name, schema, False, structs.get(name))
        for name, schema in sorted(of_events[1].items())
        if name not in messages
    ]
    names = ", ".join(f'"{name}"' for name in of_events[0])
    parts += [_methods(described["paths"]), _table("EventPayloads", of_events[0])]
    parts += [
        "export type EventType = keyof EventPayloads;",
        f"export const EVENT_TYPES: readonly EventType[] = [{names}];",
    ]
    return _HEAD + "\n\n".join(parts) + "\n"


def _events() -> tuple[list[type], tuple[dict[str, str], dict[str, Any]]]:
    """The payload types of every event, then the TypeScript of each event's payload and the shapes these name."""
    kinds = list(dict.fromkeys(kind for kinds in PAYLOADS.values() for kind in kinds))
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    text = dict(zip(kinds, map(_type, schemas), strict=True))
    named = {str(event): " | ".join(text[kind] for kind in kinds) or "Json" for event, kinds in PAYLOADS.items()}
    return kinds, (dict(sorted(named.items())), components)


def _structs(types: Iterable[type]) -> dict[str, type[msgspec.Struct]]:
    """Every struct that these types name, by its class name."""
    found: dict[str, type[msgspec.Struct]] = {}

    left: list[Any] = list(msgspec.inspect.multi_type_info(list(dict.fromkeys(types))))
    seen: dict[int, Any] = {}
    while left:
        info = left.pop()
        if not isinstance(info, msgspec.inspect.Type) or id(info) in seen:
            continue
        seen[id(info)] = info
        if isinstance(info, msgspec.inspect.StructType):
            found[info.cls.__name__] = info.cls
            left += [field.type for field in info.fields]
        left += [getattr(info, name, None) for name in ("item_type", "value_type")]
        left += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return found


def _request(operation: dict[str, Any]) -> Any:
    return operation["requestBody"]["content"]["application/json"]["schema"]


def _answer(operation: dict[str, Any]) -> Any:
    return operation["responses"]["200"]["content"]["application/json"]["schema"]


def _reachable(schemas: Iterable[Any], components: dict[str, Any]) -> set[str]:
    """The names of all shapes that these schemas lead to."""
    found: set[str] = set()
    left = [name for schema in schemas for name in _references(schema)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _references(components[name])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _shape(name: str, schema: dict[str, Any], is_asked: bool, struct: type[msgspec.Struct] | None) -> str:
    """One shape as TypeScript. A key with a default may be left out of a request; in an answer it is always there,
    unless the server leaves out what is at its default."""
    lines = [f"/** {' '.join(schema['description'].split())} */"] if "description" in schema else []
    if schema.get("type") != "object" or "properties" not in schema:
        return "\n".join([*lines, f"export type {_identifier(name)} = {_type(schema)};"])
    may_lack = is_asked or struct is None or struct.__struct_config__.omit_defaults
    lines.append(f"export interface {_identifier(name)} {{")
    required = set(schema.get("required", ()))
    for key, value in schema["properties"].items():
        mark = "?" if may_lack and key not in required else ""
        lines.append(f"  {_key(key)}{mark}: {_type(value)};")
    return "\n".join([*lines, "}"])


def _type(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            return _identifier(reference.rpartition("/")[2])
        case {"anyOf": list(options)}:
            return " | ".join(dict.fromkeys(map(_type, options)))
        case {"enum": list(values)}:
            return " | ".join(msgspec.json.encode(value).decode() for value in values)
        case {"const": value}:
            return msgspec.json.encode(value).decode()
        case {"type": "array", "prefixItems": list(items)}:
            return f"[{', '.join(map(_type, items))}]"
        case {"type": "array", "items": dict(item)}:
            inner = _type(item)
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case {"type": "array"}:
            return "Json[]"
        case {"type": "object", "additionalProperties": dict(value)}:
            return f"Record<string, {_type(value)}>"
        case {"type": "object"}:
            return "Record<string, Json>"
        case {"type": "string"}:
            return "string"
        case {"type": "integer" | "number"}:
            return "number"
        case {"type": "boolean"}:
            return "boolean"
        case {"type": "null"}:
            return "null"
    return "Json"


def _methods(paths: dict[str, Any]) -> str:
    lines = ["/** Each method: its path, what is sent and what is answered. */", "export interface Methods {"]
    constants = ["export const PATHS: { readonly [M in keyof Methods]: string } = {"]
    for path, item in sorted(paths.items()):
        if "post" in item:
            name = item["post"]["operationId"]
            lines.append(
                f'  "{name}": {{ request: {_type(_request(item["post"]))}; answer: {_type(_answer(item["post"]))} }};'
            )
            constants.append(f'  "{name}": "{path}",')
    return "\n".join([*lines, "}", "", *constants, "};"])


def _table(name: str, entries: dict[str, str]) -> str:
    return "\n".join([f"export interface {name} {{", *(f'  "{key}": {value};' for key, value in entries.items()), "}"])


def _union(name: str, values: list[str]) -> str:
    return f"export type {name} =\n  | " + "\n  | ".join(f'"{value}"' for value in values) + ";"


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _key(key: str) -> str:
    return key if _NAME.fullmatch(key) else f'"{key}"'


if __name__ == "__main__":
    PLACE.write_text(types_text(), "utf-8")
