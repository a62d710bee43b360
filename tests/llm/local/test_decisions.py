"""The schema of a turn with tools, and the decision that is read back from the reply."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harborage import codec
from harborage.llm import ToolDeclaration
from harborage.llm.local.decisions import (
    Answer,
    AnswerStream,
    Call,
    CutOff,
    answer_name,
    decision_schema,
    offered_tools,
    read_decision,
    simplify_schema,
    write_answer,
    write_call,
)
from tests.kit.tables import each_row

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.text(min_size=1, max_size=8), st.dictionaries(TEXTS, TEXTS | st.integers() | st.none(), max_size=3))
def test_a_written_call_is_read_back(name: str, args: dict[str, object]) -> None:
    """A call in the history is written as the model is to write it, and is read back as the same call."""
    reply = write_call(name, json.dumps(args).encode())
    decision = read_decision(reply, tools={name}, answer="")
    assert decision == Call(name, json.dumps(args).encode())


@given(TEXTS)
def test_a_written_answer_is_read_back(text: str) -> None:
    """An earlier answer in the history means the answer it was."""
    assert read_decision(write_answer("final_answer", text), tools=(), answer="final_answer") == Answer(text)


@each_row("args", [b"", b"[1]", b"{broken", b"\xff", b"7"])
def test_arguments_that_are_no_object_are_written_as_none(args: bytes) -> None:
    """A malformed call of another model does not break the conversation."""
    assert json.loads(write_call("x", args))["arguments"] == {}


@each_row(
    "reply",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"name": 1, "arguments": {}}',
        '{"name": "find", "arguments": []}',
        '{"name": "hidden", "arguments": {}}',
        '{"name": "find", "arguments": {"text": "wor',
        '{"name": "final_answer", "arguments": {"other": "x"}}',
        '{"name": "final_answer", "arguments": {"text": 3}}',
        "[" * 100_000,
    ],
)
def test_what_decides_nothing_is_cut_off(reply: str) -> None:
    """A reply that is no decision, names a tool that is not visible, or ends in a call, is none, and never raises."""
    assert read_decision(reply, tools={"find"}, answer="final_answer") == CutOff()


def test_an_answer_that_was_cut_off_keeps_its_words() -> None:
    """What there is of an answer is not thrown away."""
    reply = '{"name": "final_answer", "arguments": {"text": "It is 4\\u20'
    assert read_decision(reply, tools=(), answer="final_answer") == CutOff("It is 4")


def test_an_answer_may_be_an_object() -> None:
    """Where the caller asked for a schema, the object is the answer."""
    reply = '{"name": "final_answer", "arguments": {"n": 1, "ö": "x"}}'
    assert read_decision(reply, tools=(), answer="final_answer", is_object=True) == Answer('{"n": 1, "ö": "x"}')


@st.composite
def _pieces(draw: st.DrawFn) -> tuple[str, list[str]]:
    """An answer, and its JSON cut anywhere."""
    text = draw(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n😀é\x00'), max_size=30))
    written = json.dumps({"name": "final_answer", "arguments": {"text": text}}, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        written = written.replace(": ", " :\n ", 2)
    cuts = sorted(draw(st.lists(st.integers(0, len(written)), max_size=12)))
    edges = [0, *cuts, len(written)]
    return text, [written[begin:end] for begin, end in itertools.pairwise(edges)]


@given(_pieces())
def test_the_words_of_an_answer_stream_whatever_the_pieces(cut: tuple[str, list[str]]) -> None:
    """The deltas that are shown are in sum the text, escapes and surrogate pairs included, and each is well-formed."""
    text, pieces = cut
    stream = AnswerStream("final_answer")
    shown = [stream.feed(piece) for piece in pieces]
    assert "".join(shown) == text
    for delta in shown:
        delta.encode()


@given(_pieces(), st.sampled_from(["find", "final_answers", "final"]))
def test_a_call_shows_nothing(cut: tuple[str, list[str]], name: str) -> None:
    """The JSON of a call is not for reading, even where it has a text."""
    stream = AnswerStream("final_answer")
    pieces = json.dumps({"name": name, "arguments": {"text": cut[0]}})
    assert all(stream.feed(piece) == "" for piece in (*pieces, '"arguments": {"text": "x"}'))


def test_words_are_shown_as_soon_as_they_come() -> None:
    """An answer does not wait for its end."""
    stream = AnswerStream("final_answer")
    assert stream.feed('{"name": "final_answer", "arguments": {"text": "It') == "It"
    assert stream.feed(" is") == " is"


@each_row(
    "written, text",
    [(r"\ud83d\ude00", "😀"), (r"\ud83dx", "�x"), (r"\ude00", "�"), (r"\ud83d\n", "�\n"), (r"a\/b", "a/b")],
)
def test_halves_of_a_pair_are_replaced(written: str, text: str) -> None:
    """Text that no encoding would take never leaves, streamed or whole."""
    reply = f'{{"name": "final_answer", "arguments": {{"text": "{written}"}}}}'
    stream = AnswerStream("final_answer")
    assert "".join(map(stream.feed, reply)) == text
    assert read_decision(reply, tools=(), answer="final_answer") == Answer(text)


NAMES = st.sampled_from(["path", "text", "count", "when", "to", "id", "kind", "größe"])
SCHEMAS_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | SCHEMAS_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCHEMAS_TEXTS, inner, max_size=3),
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
        st.none() | st.booleans() | st.integers(-3, 9) | _WORDS | SCHEMAS_TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYWORDS | NAMES, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)
"""Schemas of any sense or none."""

_SCALARS = st.one_of(
    st.builds(lambda text: {"type": "string", "description": text}, SCHEMAS_TEXTS),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, *[st.integers(0, 9)] * 2
    ),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, *[st.integers(0, 9)] * 2),
    st.sampled_from([{"type": "number"}, {"type": "boolean"}, {"type": ["string", "null"]}, {"const": "fixed"}]),
    st.builds(lambda values: {"enum": values}, st.lists(SCHEMAS_TEXTS, min_size=1, max_size=3, unique=True)),
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
    st.builds(
        ToolDeclaration, st.sampled_from(["find", "read", "send", "final_answer", "_await"]), SCHEMAS_TEXTS, SCHEMAS
    ),
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
    visible = offered_tools(tools)
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
    simple = simplify_schema(junk)
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
    assert simplify_schema(schema) == simple


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
    assert simplify_schema(schema)["properties"]["x"] == simple


def test_all_parts_of_an_all_of_count() -> None:
    """Properties and requirements of every part are asked for together."""
    parts = [
        {"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"properties": {"b": {"type": "null"}}, "required": ["b"]},
    ]
    simple = simplify_schema({"type": "object", "allOf": parts})
    assert simple["required"] == ["a", "b"]
    assert set(simple["properties"]) == {"a", "b"}


def test_a_schema_that_holds_itself_ends() -> None:
    """A recursive schema is followed a few levels deep."""
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    simple = simplify_schema(node)
    depth = 0
    while simple.get("properties"):
        simple, depth = simple["properties"]["next"], depth + 1
    assert 1 <= depth <= 7


def test_names_come_first_and_arms_follow_the_tools() -> None:
    """Each arm is an object with its name before its arguments; one arm alone needs no alternatives."""
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
    assert offered_tools([ToolDeclaration("_spawn_task"), first, second, ToolDeclaration("")]) == [first]
    assert offered_tools([ToolDeclaration("_spawn_task")]) == [ToolDeclaration("_spawn_task")]
