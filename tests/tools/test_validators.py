"""Checks against schemas that other people wrote."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from harborage.tools import CallContext, Tool, ToolInvalidArgsError, ToolResult, UnsupportedTypeError, describe_tool
from harborage.tools.validators import schema_validator
from tests.kit.tables import each_row

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "xs": {"type": "array", "items": {"type": "string"}}},
    "required": ["n"],
    "additionalProperties": False,
}


async def nothing(args: bytes, call: CallContext) -> ToolResult:
    """A body that does nothing."""
    return ToolResult()


@each_row(
    "value, path",
    [
        ({"n": "hunter2"}, "$.n"),
        ({"n": 1, "xs": ["a", {"pw": "hunter2"}]}, "$.xs[1]"),
        ({}, "$.n"),
        ({"n": 1, "zzz": "hunter2"}, "$.zzz"),
        ("hunter2", "$"),
        (None, "$"),
    ],
)
def test_a_refusal_names_the_path_and_hides_the_value(value: Any, path: str) -> None:
    """The error says where and what was expected, never what was passed."""
    with pytest.raises(ToolInvalidArgsError) as caught:
        schema_validator(SCHEMA)(value)
    assert caught.value.path == path
    assert "hunter2" not in str(caught.value)


def test_what_fits_is_accepted() -> None:
    """A value that fits passes in silence."""
    schema_validator(SCHEMA)({"n": 1, "xs": ["a"]})


@each_row("value", [{1, 2}, object(), {1: 2}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    """A Python value that JSON cannot hold is an invalid value, not a crash."""
    with pytest.raises(ToolInvalidArgsError):
        schema_validator({"type": "string"})(value)


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "http://example.invalid/schema.json"}])
def test_an_unusable_schema_is_refused_at_once(schema: dict[str, Any]) -> None:
    """A broken schema, or one that would have to be fetched, fails when the tool is described."""
    with pytest.raises(UnsupportedTypeError) as caught:
        describe_tool(Tool("remote", args_schema=schema), nothing)
    assert caught.value.path == "remote args_schema"


def test_a_described_tool_checks_both_sides() -> None:
    """Arguments are checked as bytes, results as plain data; empty bytes stand for an empty object."""
    descriptor = describe_tool(Tool("remote", args_schema=SCHEMA, out_schema={"type": "string"}), nothing)
    assert descriptor.validate_args is not None
    assert descriptor.validate_result is not None
    assert not descriptor.body_validates
    descriptor.validate_args(b'{"n":1}')
    descriptor.validate_result("text")
    for bad in (b"", b"null", b"{", b'{"n":"x"}', b"\xff", b"[" * 100_000):
        with pytest.raises(ToolInvalidArgsError):
            descriptor.validate_args(bad)
    for value in (1, object()):
        with pytest.raises(ToolInvalidArgsError):
            descriptor.validate_result(value)


def test_no_schema_means_no_check() -> None:
    """A tool without schemas takes and gives anything."""
    descriptor = describe_tool(Tool("remote"), nothing)
    assert descriptor.validate_args is None
    assert descriptor.validate_result is None
    open_object = describe_tool(Tool("remote", args_schema={"type": "object"}), nothing)
    assert open_object.validate_args is not None
    open_object.validate_args(b"")


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls do not compile the schema again."""
    descriptor = describe_tool(Tool("remote", args_schema=SCHEMA), nothing)
    assert descriptor.validate_args is not None
    monkeypatch.setattr(sys.modules["jsonschema_rs"], "validator_for", None)
    descriptor.validate_args(b'{"n":1}')
