"""Worked examples: made from any tool, fitting its schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import ToolDeclaration
from harborage.llm.local.decisions import simplify_schema
from harborage.llm.local.examples import MOST_EXAMPLES, make_example, make_examples
from harborage.tools.standard import standard_tools
from tests.kit.tables import each_row


def one(**properties: Any) -> dict[str, Any]:
    """An object of these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT = {"type": "string"}


@each_row(
    "tool, request_text, arguments",
    [
        (
            ToolDeclaration("read", "Read a text file.", one(path=TEXT)),
            "Read a text file: todo.md",
            {"path": "todo.md"},
        ),
        (
            ToolDeclaration("list", "List files.", one(path={**TEXT, "description": "the folder, or none"})),
            "List files: src",
            {"path": "src"},
        ),
        (
            ToolDeclaration(
                "clock", "Tell the time. In words.", one(zone={**TEXT, "description": "such as Asia/Tokyo"})
            ),
            "Tell the time: Asia/Tokyo",
            {"zone": "Asia/Tokyo"},
        ),
        (ToolDeclaration("dial", "Call, such as 112.", one(number=TEXT)), "Call: 112", {"number": "112"}),
        (ToolDeclaration("wait_a_while"), "Wait a while.", {}),
        (
            ToolDeclaration("mix", "Mix", one(n={"type": "integer", "minimum": 5}, on={"type": "boolean"})),
            "Mix: 5, true",
            {"n": 5, "on": True},
        ),
        (
            ToolDeclaration("pick", "Pick", one(how={"enum": ["fast", "slow"]}, of={"type": "array", "items": TEXT})),
            'Pick: fast, ["hello"]',
            {"how": "fast", "of": ["hello"]},
        ),
        (
            ToolDeclaration("book", "Book", one(on={**TEXT, "format": "date"}, at={**TEXT, "examples": ["9:15"]})),
            "Book: 2026-01-31, 9:15",
            {"on": "2026-01-31", "at": "9:15"},
        ),
        (
            ToolDeclaration("add", "Add", {**one(a=TEXT), "examples": [{"a": "given"}]}),
            "Add: given",
            {"a": "given"},
        ),
    ],
)
def test_an_example_shows_a_likely_call(tool: ToolDeclaration, request_text: str, arguments: dict[str, Any]) -> None:
    """The request is the description with the values; they come from the schema, its descriptions or its names."""
    asked, reply = make_example(tool)
    assert asked == request_text
    assert json.loads(reply) == {"name": tool.name, "arguments": arguments}


def test_examples_of_the_standard_tools_fit_their_schemas(tmp_path: Any) -> None:
    """What the model is shown is a call that the tool would take."""
    for descriptor in standard_tools(tmp_path):
        tool = descriptor.tool
        _, reply = make_example(ToolDeclaration(tool.name, tool.description, tool.args_schema))
        jsonschema_rs.validate(tool.args_schema, json.loads(reply)["arguments"])


_NODES = st.recursive(
    st.sampled_from([{}, TEXT, {"type": "integer", "maximum": 1}, {"type": "null"}, {"enum": ["a"]}, {"const": 3}]),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, inner)
        | st.builds(lambda arms: {"anyOf": arms}, st.lists(inner, min_size=1, max_size=2))
        | st.builds(lambda node: one(inner=node), inner)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["id", "url", "word", "x"]), _NODES, max_size=3), st.text(max_size=30))
def test_every_tool_has_an_example_that_fits(properties: dict[str, Any], description: str) -> None:
    """Whatever the arguments, the example's are allowed."""
    schema = one(**properties)
    asked, reply = make_example(ToolDeclaration("tool", description, schema))
    assert asked
    jsonschema_rs.validate(simplify_schema(schema), json.loads(reply)["arguments"])


def test_a_few_tools_have_examples_and_the_answer_comes_first() -> None:
    """There are few examples, and the greeting comes first: a small model repeats the last one."""
    tools = [ToolDeclaration(f"tool{number}") for number in range(20)]
    shown = make_examples(tools, "final_answer")
    assert [json.loads(reply)["name"] for _, reply in shown] == [
        "final_answer",
        *(tool.name for tool in tools[:MOST_EXAMPLES]),
    ]
    assert len(make_examples(tools)) == MOST_EXAMPLES
