"""The schema of a turn: whatever the tools, every reply that it allows is a legal decision."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harborage import codec
from harborage.llm import ToolDeclaration
from harborage.llm.local.decisions import Answer, Call, read_decision
from harborage.llm.local.schemas import answer_name, decision_schema, offered, simplified
from tests.kit.tables import each_row

NAMES = st.sampled_from(["path", "text", "count", "when", "to", "id", "kind", "größe"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

_KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "minItems",
     "maxItems", "minLength", "maxLength", "minimum", "additionalProperties", "examples", "description", "format"]
)  # fmt: skip
_WORDS = st.sampled_from(["object", "array", "string", "integer", "null", "#", "#/properties", "#/$defs/a", "path"])
JUNK = st.dictionaries(
    _KEYWORDS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 9) | _WORDS | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYWORDS | NAMES, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)
"""Schemas of any sense or none."""

_SCALARS = st.one_of(
    st.builds(lambda text: {"type": "string", "description": text}, TEXTS),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, *[st.integers(0, 9)] * 2
    ),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, *[st.integers(0, 9)] * 2),
    st.sampled_from([{"type": "number"}, {"type": "boolean"}, {"type": ["string", "null"]}, {"const": "fixed"}]),
    st.builds(lambda values: {"enum": values}, st.lists(TEXTS, min_size=1, max_size=3, unique=True)),
)


@st.composite
def _object(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(NAMES, inner, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_NODES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3))
        | st.builds(lambda arms: {"anyOf": arms}, st.lists(inner, min_size=1, max_size=2))
        | _object(inner)
    ),
    max_leaves=4,
)
SCHEMAS = _object(_NODES)
"""Schemas as tools have them: an object of typed properties."""


def written(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """The values that a schema of the simple kind allows."""
    if not schema or "anyOf" in schema:
        return st.one_of([written(arm) for arm in schema["anyOf"]]) if schema else JSON
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return _typed(schema)


def _typed(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    match schema["type"]:
        case "string":
            most = min(schema["maxLength"], schema["minLength"] + 9)
            return st.text(st.characters(exclude_categories=["Cs"]), min_size=schema["minLength"], max_size=most)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "array":
            most = min(schema["maxItems"], schema["minItems"] + 2)
            return st.lists(written(schema["items"]), min_size=schema["minItems"], max_size=most)
        case "object":
            return _members(schema)
        case kind:
            return {"number": st.floats(-9, 9), "boolean": st.booleans(), "null": st.none()}[kind]


def _members(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    members = {name: written(inner) for name, inner in schema.get("properties", {}).items()}
    if not members:
        return st.just({}) if schema.get("additionalProperties") is False else st.dictionaries(NAMES, JSON, max_size=2)
    required = {name: members[name] for name in schema["required"]}
    return st.fixed_dictionaries(required, optional={name: members[name] for name in members if name not in required})


TOOLS = st.lists(
    st.builds(ToolDeclaration, st.sampled_from(["find", "read", "send", "final_answer", "_await"]), TEXTS, SCHEMAS),
    min_size=1,
    max_size=3,
)
SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@SLOW
@given(st.data(), TOOLS)
def test_every_reply_that_fits_is_a_legal_decision(data: st.DataObject, tools: list[ToolDeclaration]) -> None:
    """A reply that the schema allows is a call of a visible tool that its own schema accepts, or an answer."""
    visible = offered(tools)
    answer = answer_name(visible)
    schema = decision_schema(visible, answer=answer, longest=40)
    reply = data.draw(written(schema))
    jsonschema_rs.validate(schema, reply)
    names = {tool.name: tool for tool in visible}
    match read_decision(codec.encode_text(reply), tools=names, answer=answer):
        case Call(name, args):
            jsonschema_rs.validate(names[name].schema, codec.decode(args))
        case Answer(text):
            assert text == reply["arguments"]["text"]
        case other:
            pytest.fail(f"{reply} means {other}")


@SLOW
@given(JUNK)
def test_no_schema_is_too_strange(junk: dict[str, Any]) -> None:
    """Whatever a tool says of its arguments, the result is a valid schema of objects and nothing is raised."""
    simple = simplified(junk)
    jsonschema_rs.validator_for(simple)
    assert not jsonschema_rs.is_valid(simple, "text")
    assert not jsonschema_rs.is_valid(simple, 1)


@each_row(
    "schema, simple",
    [
        ({}, {"type": "object", "properties": {}, "additionalProperties": False}),
        ({"type": "object", "properties": {}}, {"type": "object", "properties": {}, "additionalProperties": False}),
        ({"type": "object"}, {"type": "object", "additionalProperties": True}),
        ({"type": "string"}, {"type": "object"}),
        ({"type": "array", "items": {}}, {"type": "object"}),
    ],
)
def test_arguments_are_an_object(schema: dict[str, Any], simple: dict[str, Any]) -> None:
    """Arguments are an object: closed when nothing is declared, open when the tool says so or makes no sense."""
    assert simplified(schema) == simple


@each_row(
    "node, simple",
    [
        ({"type": "string"}, {"type": "string", "minLength": 0, "maxLength": 240}),
        ({"type": "string", "pattern": "^a", "format": "x"}, {"type": "string", "minLength": 0, "maxLength": 240}),
        ({"type": "string", "maxLength": 9_999}, {"type": "string", "minLength": 0, "maxLength": 2_000}),
        ({"type": "string", "minLength": 300}, {"type": "string", "minLength": 300, "maxLength": 300}),
        ({"type": "integer", "minimum": 1, "maximum": 2.5}, {"type": "integer", "minimum": 1}),
        ({"type": "array"}, {"type": "array", "items": {}, "minItems": 0, "maxItems": 16}),
        ({"type": "array", "maxItems": 2}, {"type": "array", "items": {}, "minItems": 0, "maxItems": 2}),
        ({"enum": [1, "a"], "type": "string"}, {"enum": [1, "a"]}),
        ({"const": None}, {"const": None}),
        ({"type": ["boolean", "null"]}, {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
        ({"oneOf": [{"type": "boolean"}, {}]}, {}),
        ({"$ref": "#/$defs/flag"}, {"type": "boolean"}),
        ({"$ref": "https://example.org/x"}, {}),
        ({"allOf": [{"$ref": "#/$defs/flag"}]}, {"type": "boolean"}),
        ({"type": "wrong"}, {}),
        (True, {}),
    ],
)
def test_a_property_is_cut_down_to_what_a_grammar_can_hold(node: Any, simple: dict[str, Any]) -> None:
    """Types, bounds, constants and alternatives stay, everything gets an end, and what is unknown allows anything."""
    schema = {"type": "object", "properties": {"x": node}, "$defs": {"flag": {"type": "boolean"}}}
    assert simplified(schema)["properties"]["x"] == simple


def test_all_parts_of_an_all_of_count() -> None:
    """Properties and requirements of every part are asked for together."""
    parts = [
        {"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"properties": {"b": {"type": "null"}}, "required": ["b"]},
    ]
    simple = simplified({"type": "object", "allOf": parts})
    assert simple["required"] == ["a", "b"]
    assert set(simple["properties"]) == {"a", "b"}


def test_a_schema_that_holds_itself_ends() -> None:
    """A recursive schema is followed a few levels deep."""
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    simple = simplified(node)
    depth = 0
    while simple.get("properties"):
        simple, depth = simple["properties"]["next"], depth + 1
    assert 1 <= depth <= 7


def test_names_come_first_and_arms_follow_the_tools() -> None:
    """Each arm is an object with its name before its arguments; one arm alone stands by itself."""
    tools = [ToolDeclaration("a"), ToolDeclaration("b")]
    schema = decision_schema(tools, answer="final_answer", longest=9)
    assert [arm["properties"]["name"]["const"] for arm in schema["anyOf"]] == ["a", "b", "final_answer"]
    assert all(list(arm["properties"]) == ["name", "arguments"] for arm in schema["anyOf"])
    assert decision_schema(tools[:1], longest=9) == schema["anyOf"][0]


def test_an_answer_may_have_a_schema_of_its_own() -> None:
    """The answer's arguments are then what the caller asked for."""
    own = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = decision_schema([], answer="final_answer", answer_schema=own, longest=9)
    assert schema["properties"]["arguments"] == own


def test_the_answer_never_takes_the_name_of_a_tool() -> None:
    """A tool called like the answer keeps its name."""
    assert answer_name([ToolDeclaration("x")]) == "final_answer"
    assert answer_name([ToolDeclaration("final_answer"), ToolDeclaration("final_answer_")]) == "final_answer__"


def test_controls_of_the_planner_are_left_out() -> None:
    """Names with an underscore in front are offered only when there are no others; the first of a name counts."""
    first, second = ToolDeclaration("a", "first"), ToolDeclaration("a", "second")
    assert offered([ToolDeclaration("_spawn_task"), first, second, ToolDeclaration("")]) == [first]
    assert offered([ToolDeclaration("_spawn_task")]) == [ToolDeclaration("_spawn_task")]
