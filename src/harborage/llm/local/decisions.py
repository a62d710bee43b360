"""The decision of a turn with tools: the schema that the model is held to, and its reply read back. Pure.

A decision is a call of one visible tool or a final answer. The schema of each tool is cut down to what llama.cpp can
turn into a grammar, and everything that could go on for ever gets an end; the tool validates the rest itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from harborage import codec

if TYPE_CHECKING:
    from harborage.llm.client import ToolDeclaration


class Call(msgspec.Struct, frozen=True):
    """A call of one tool; `args` is a JSON object."""

    name: str
    args: bytes


class Answer(msgspec.Struct, frozen=True):
    """The final answer."""

    text: str


class CutOff(msgspec.Struct, frozen=True):
    """No decision: the reply ended in the middle. `text` is what there is of an answer."""

    text: str = ""


Decision: TypeAlias = Call | Answer | CutOff


def write_call(name: str, args: bytes) -> str:
    """Return a call as the model is to write it; arguments that are no JSON object become none."""
    try:
        arguments = codec.decode(args or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = {}
    return _written(name, arguments if isinstance(arguments, dict) else {})


def write_answer(name: str, text: str) -> str:
    """Return an answer as the model is to write it."""
    return _written(name, {TEXT: text})


def _written(name: str, arguments: object) -> str:
    # With a blank after each colon and comma, as models write JSON by themselves.
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def read_decision(reply: str, *, tools: Collection[str], answer: str, is_object: bool = False) -> Decision:
    """Return the decision in `reply`. With `is_object` the answer is an object, and its JSON the text. Never: fails."""
    try:
        found = json.loads(reply)
    except (ValueError, RecursionError):
        stream = AnswerStream(answer)
        return CutOff("" if is_object else stream.feed(reply))
    if not isinstance(found, dict):
        return CutOff()
    name, arguments = found.get("name"), found.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return CutOff()
    if name == answer:
        if is_object:
            return Answer(json.dumps(arguments, ensure_ascii=False))
        text = arguments.get(TEXT)
        return Answer(_whole(text)) if isinstance(text, str) else CutOff()
    return Call(name, json.dumps(arguments).encode()) if name in tools else CutOff()


_BLANK: Final = r"\s*"


class AnswerStream:
    """The text of an answer, out of the pieces of the JSON that holds it.

    Whatever the pieces are, what `feed` returns for them is in sum the text: an escape or a pair of surrogates that is
    not whole yet waits for its end.
    """

    __slots__ = ("_head", "_is_over", "_opening", "_rest", "_wrong")

    def __init__(self, answer: str) -> None:
        name = re.escape(json.dumps(answer))
        parts = (r"\{", '"name"', ":", name, ",", '"arguments"', ":", r"\{", f'"{TEXT}"', ":", '"')
        self._opening = re.compile(_BLANK + _BLANK.join(parts))
        # A reply that names something else is a call, and has nothing to show.
        self._wrong = re.compile(_BLANK + _BLANK.join((r"\{", '"name"', ":", rf"(?!{name})" + r'"[^"]*"')))
        self._head: str | None = ""
        self._rest = ""
        self._is_over = False

    def feed(self, delta: str) -> str:
        """Return what `delta` adds to the text; empty for nothing."""
        if self._is_over or not delta:
            return ""
        if self._head is not None:
            self._head += delta
            begun = self._opening.match(self._head)
            if begun is None:
                self._is_over = self._wrong.match(self._head) is not None
                return ""
            delta, self._head = self._head[begun.end() :], None
        return self._take(self._rest + delta)

    def _take(self, raw: str) -> str:
        """Return the text of `raw` up to its end or to a character that is not whole yet."""
        at = 0
        while at < len(raw) and raw[at] != '"':
            step = _unit_length(raw, at)
            if not step:
                break
            at += step
        self._is_over = at < len(raw) and raw[at] == '"'
        self._rest = raw[at:]
        return _unescaped(raw[:at])


def _unit_length(raw: str, at: int) -> int:
    """Return the length of the escape or character at `at`; 0 when it is not whole yet."""
    if raw[at] != "\\":
        return 1
    if at + 1 >= len(raw):
        return 0
    if raw[at + 1] != "u":
        return 2
    if at + 6 > len(raw):
        return 0
    if not _is_high(raw[at + 2 : at + 6]):
        return 6
    following = raw[at + 6 : at + 12]
    if len(following) == 6 or not "\\u".startswith(following[:2]):
        return 12 if following.startswith("\\u") and _is_low(following[2:]) else 6
    return 0


def _is_high(digits: str) -> bool:
    return digits[:1] in "dD" and digits[1:2] in "89abAB"


def _is_low(digits: str) -> bool:
    return digits[:1] in "dD" and digits[1:2] in "cdefCDEF"


def _unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    try:
        return _whole(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return raw


def _whole(text: str) -> str:
    """Return `text` without halves of a surrogate pair, which no encoding takes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ── The schema of a turn ────────────────────────────────────────────────────────────────────────────────────────────

ANSWER: Final = "final_answer"
"""The name of the final answer, unless a tool has it."""

TEXT: Final = "text"
"""The one argument of a final answer."""

_MOST_DEPTH: Final = 6
_LONGEST_TEXT: Final = 2_000
_USUAL_TEXT: Final = 240
_MOST_ITEMS: Final = 16
_CLOSED: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})


def offered_tools(tools: Sequence[ToolDeclaration]) -> list[ToolDeclaration]:
    """Return the tools that the model may choose from: all with a name of their own but the planner's controls.

    Controls, whose names begin with an underscore, are offered only when there is nothing else.
    """
    named = {tool.name: tool for tool in reversed(tools) if tool.name}
    kept = [tool for tool in tools if named.get(tool.name) is tool]
    return [tool for tool in kept if not tool.name.startswith("_")] or kept


def answer_name(tools: Iterable[ToolDeclaration]) -> str:
    """Return a name for the final answer that no tool has."""
    taken = {tool.name for tool in tools}
    name = ANSWER
    while name in taken:
        name += "_"
    return name


def decision_schema(
    tools: Sequence[ToolDeclaration], *, answer: str = "", answer_schema: Mapping[str, Any] | None = None, longest: int
) -> dict[str, Any]:
    """Return a schema of `{"name": …, "arguments": …}`: an arm for each tool, and one for an answer that has a name.

    `longest` bounds the text of the answer, in characters; `answer_schema` replaces that text by an object of its own.
    """
    arms = [_arm(tool.name, simplify_schema(tool.schema)) for tool in tools]
    if answer:
        text = {"type": "string", "minLength": 1, "maxLength": longest}
        arguments = {"type": "object", "properties": {TEXT: text}, "required": [TEXT], "additionalProperties": False}
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


def simplify_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's schema as the grammar takes it: that of an object, without references, with an end to all of it.

    All that it allows has the shape of `schema`, as far as types, properties, bounds and alternatives express it.
    Never: fails, whatever the schema is.
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
    """Return any of the arms; one that allows everything replaces the others."""
    if not arms or not all(arms):
        return {}
    return arms[0] if len(arms) == 1 else {"anyOf": arms}


def _merged(node: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return an `allOf` as one schema: properties and requirements of all parts, other words of the last one."""
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
    """Return the target of a reference inside the schema; None for one that leads elsewhere."""
    if not ref.startswith("#"):
        return None
    node: Any = root
    for part in ref[1:].strip("/").split("/"):
        if not part:
            continue
        name = part.replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, Mapping) else None
    return node
