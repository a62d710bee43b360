"""The one JSON schema that a turn with tools is held to: a call of one visible tool, or a final answer. Pure.

A tool's own schema is cut down to what llama.cpp can turn into a grammar, and everything that could go on for ever is
given an end. What the grammar does not hold a model to, the tool's own validation still does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from harborage.llm.client import ToolDeclaration

ANSWER: Final = "final_answer"
"""What the model calls to answer, unless a tool has this name."""

TEXT: Final = "text"
"""The one argument of a final answer."""

_MOST_DEPTH: Final = 6
_LONGEST_TEXT: Final = 2_000
_USUAL_TEXT: Final = 240
_MOST_ITEMS: Final = 16
_CLOSED: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})


def offered(tools: Sequence[ToolDeclaration]) -> list[ToolDeclaration]:
    """The tools that the model may choose from: all that have a name of their own, the planner's controls left out.

    Controls, whose names begin with an underscore, are offered only when there is nothing else.
    """
    named = {tool.name: tool for tool in reversed(tools) if tool.name}
    kept = [tool for tool in tools if named.get(tool.name) is tool]
    return [tool for tool in kept if not tool.name.startswith("_")] or kept


def answer_name(tools: Iterable[ToolDeclaration]) -> str:
    """What stands for the final answer: a name that no tool has."""
    taken = {tool.name for tool in tools}
    name = ANSWER
    while name in taken:
        name += "_"
    return name


def decision_schema(
    tools: Sequence[ToolDeclaration], *, answer: str = "", answer_schema: Mapping[str, Any] | None = None, longest: int
) -> dict[str, Any]:
    """One object, `{"name": …, "arguments": …}`: an arm for each tool, and one for the answer when it has a name.

    `longest` bounds the text of the answer, in characters; `answer_schema` replaces that text by an object of its own.
    """
    arms = [_arm(tool.name, simplified(tool.schema)) for tool in tools]
    if answer:
        said = {"type": "string", "minLength": 1, "maxLength": longest}
        arguments = {"type": "object", "properties": {TEXT: said}, "required": [TEXT], "additionalProperties": False}
        arms.append(_arm(answer, arguments if answer_schema is None else dict(answer_schema)))
    return arms[0] if len(arms) == 1 else {"anyOf": arms}


def _arm(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    # The name comes first: once it is written, the grammar knows which arguments may follow.
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def simplified(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema as the grammar can have it: always that of an object, without references, without an open end.

    Everything that the result allows has the shape that `schema` asks for, as far as that can be said with types,
    properties, bounds and alternatives. Never: fails, whatever the schema is.
    """
    node = _simple(schema, schema, 0)
    if node.get("type") == "object" or _are_objects(node.get("anyOf")):
        return node
    return dict(_CLOSED) if not schema else {"type": "object"}


def _are_objects(arms: Any) -> bool:
    return isinstance(arms, list) and bool(arms) and all(arm.get("type") == "object" for arm in arms)


def _simple(node: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if not isinstance(node, Mapping) or depth > _MOST_DEPTH:
        return {}
    if isinstance(node.get("$ref"), str):
        return _simple(_target(node["$ref"], root), root, depth + 1)
    if "const" in node:
        return {"const": node["const"]}
    if isinstance(node.get("enum"), list) and node["enum"]:
        return {"enum": list(node["enum"])}
    if isinstance(node.get("allOf"), list):
        return _simple(_merged(node, root), root, depth + 1)
    for several in ("anyOf", "oneOf"):
        if isinstance(node.get(several), list) and node[several]:
            return _alternatives([_simple(arm, root, depth + 1) for arm in node[several]])
    kind = node.get("type", "object" if "properties" in node else None)
    if isinstance(kind, list):
        kinds = [one for one in kind if isinstance(one, str) and one in _TYPES]
        return _alternatives([_simple({**node, "type": one}, root, depth) for one in kinds])
    return _typed(kind, node, root, depth)


def _typed(kind: Any, node: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    match kind:
        case "object":
            return _object(node, root, depth)
        case "array":
            return _array(node, root, depth)
        case "string":
            return _string(node)
        case "integer":
            bounds = {key: node[key] for key in ("minimum", "maximum") if type(node.get(key)) is int}
            return {"type": kind, **bounds}
        case "number" | "boolean" | "null":
            return {"type": kind}
        case _:
            return {}


def _object(node: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = node.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        extra = node.get("additionalProperties", depth > 0 or "properties" not in node)
        if extra is False:
            return dict(_CLOSED)
        return {"type": "object", "additionalProperties": _simple(extra, root, depth + 1) or True}
    required = [name for name in _names(node.get("required")) if name in properties]
    return {
        "type": "object",
        "properties": {name: _simple(one, root, depth + 1) for name, one in properties.items()},
        "required": required,
        "additionalProperties": False,
    }


def _array(node: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    fewest, most = _count(node.get("minItems"), 0), _count(node.get("maxItems"), _MOST_ITEMS)
    fewest = min(fewest, _MOST_ITEMS)
    return {
        "type": "array",
        "items": _simple(node.get("items"), root, depth + 1),
        "minItems": fewest,
        "maxItems": max(fewest, min(most, _MOST_ITEMS)),
    }


def _string(node: Mapping[str, Any]) -> dict[str, Any]:
    fewest = min(_count(node.get("minLength"), 0), _LONGEST_TEXT)
    most = min(_count(node.get("maxLength"), max(_USUAL_TEXT, fewest)), _LONGEST_TEXT)
    return {"type": "string", "minLength": fewest, "maxLength": max(fewest, most)}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _count(value: Any, otherwise: int) -> int:
    return value if type(value) is int and value >= 0 else otherwise


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list | tuple) else []


def _alternatives(arms: list[dict[str, Any]]) -> dict[str, Any]:
    """Any of the arms; one that allows everything swallows the others."""
    if not arms or not all(arms):
        return {}
    return arms[0] if len(arms) == 1 else {"anyOf": arms}


def _merged(node: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """All parts of an `allOf` as one schema: properties and requirements of all of them, otherwise the last word."""
    merged: dict[str, Any] = {key: value for key, value in node.items() if key != "allOf"}
    properties = _mapping(merged.get("properties"))
    required = _names(merged.get("required"))
    for part in node["allOf"]:
        found = _target(part["$ref"], root) if isinstance(part, Mapping) and isinstance(part.get("$ref"), str) else part
        if not isinstance(found, Mapping):
            continue
        merged.update({key: value for key, value in found.items() if key != "$defs"})
        properties.update(_mapping(found.get("properties")))
        required += _names(found.get("required"))
    if properties:
        merged["properties"] = properties
    if required:
        merged["required"] = list(dict.fromkeys(required))
    merged.pop("$ref", None)
    return merged


def _target(ref: str, root: Mapping[str, Any]) -> Any:
    """What a reference inside the schema points at; nothing for one that leads elsewhere."""
    if not ref.startswith("#"):
        return None
    node: Any = root
    for part in ref[1:].strip("/").split("/"):
        if not part:
            continue
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node
