"""JSON Schemas of Python types, and validation against foreign ones."""

from __future__ import annotations

import asyncio
import enum
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta

from harborage.tools import CallContext, Tool, ToolInvalidArgsError, ToolResult, UnsupportedTypeError, describe_tool
from harborage.tools.schema import MAX_DEPTH, SchemaBuilder, read_type, schema_validator
from tests.kit.tables import each_row


class Colour(enum.Enum):
    """Closed words."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """Closed numbers."""

    LOW = 1
    HIGH = 9


@dataclass
class Point:
    """A record with a default."""

    y: int
    x: int
    label: str | None = None
    tags: list[str] = field(default_factory=list)
    kind: str = "dot"


@dataclass
class Doubt:
    """A record with a field that must be given and may be null."""

    maybe: int | None


class Renamed(msgspec.Struct, rename="camel"):
    """A struct whose wire names differ."""

    first_name: str


class Cat(msgspec.Struct, tag="cat"):
    """One side of a tagged union."""

    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    """The other side."""

    name: str


class Row(msgspec.Struct, array_like=True):
    """A struct that travels as an array."""

    a: int
    b: str = ""


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: str = ""


class Loose(TypedDict, total=False):
    """A typed dict with an optional key."""

    a: int


class Node(msgspec.Struct):
    """A type that contains itself."""

    children: list[Node]


class Ping(msgspec.Struct):
    """A type that contains itself by way of another."""

    pong: Pong | None


class Pong(msgspec.Struct):
    """The other."""

    ping: Ping | None


class Address(pydantic.BaseModel):
    """A model inside a model."""

    street: str


class Person(pydantic.BaseModel):
    """A model with its own schema."""

    name: str = pydantic.Field(min_length=2, description="Full name")
    address: Address


Kilometres = NewType("Kilometres", int)
POINT = {
    "type": "object",
    "properties": {
        "y": {"type": "integer"},
        "x": {"type": "integer"},
        "label": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "kind": {"type": "string", "default": "dot"},
    },
    "additionalProperties": False,
    "required": ["x", "y"],
}


def schema_of(annotation: Any) -> dict[str, Any]:
    """The schema of a type, without definitions."""
    return SchemaBuilder().schema(read_type(annotation, "t"), "t")


@each_row(
    "annotation, schema",
    [
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array", "items": {}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, int], {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (
            dict[Literal["a", "b"], int],
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "propertyNames": {"type": "string", "enum": ["a", "b"]},
            },
        ),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (time, {"type": "string", "format": "time"}),
        (timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (Any, {}),
        (object, {}),
        (msgspec.Raw, {}),
        (Kilometres, {"type": "integer"}),
        (Colour, {"type": "string", "enum": ["blue", "red"]}),
        (Level, {"type": "integer", "enum": [1, 9]}),
        (Literal["b", "a"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": [1, "a"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Annotated[int, Meta(ge=1, lt=9, multiple_of=2)],
         {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2}),
        (Annotated[float, Meta(gt=0, le=1)], {"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        (Annotated[str, Meta(min_length=1, max_length=3, pattern="^a")],
         {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"}),
        (Annotated[list[int], Meta(max_length=3)], {"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
        (Annotated[dict[str, int], Meta(min_length=1)],
         {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}),
        (Annotated[int, Meta(title="T", description="d", examples=[1])],
         {"type": "integer", "title": "T", "description": "d", "examples": [1]}),
        (Point, POINT),
        (Doubt, {
            "type": "object",
            "properties": {"maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            "additionalProperties": False,
            "required": ["maybe"],
        }),
        (Loose, {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}),
        (Renamed, {
            "type": "object",
            "properties": {"firstName": {"type": "string"}},
            "additionalProperties": False,
            "required": ["firstName"],
        }),
        (Row, {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1}),
        (Pair, {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "items": False,
            "minItems": 1,
            "maxItems": 2,
        }),
    ],
)  # fmt: skip
def test_a_type_has_its_schema(annotation: Any, schema: dict[str, Any]) -> None:
    """Each type is written as the table says: inlined, objects closed, required names sorted."""
    assert schema_of(annotation) == schema


def test_a_tagged_union_asks_for_the_tag() -> None:
    """Inside a union each struct's tag is a required constant; alone it may be left out."""
    cat, dog = schema_of(Cat | Dog)["anyOf"]
    assert cat["properties"]["type"] == {"const": "cat"}
    assert (cat["required"], dog["required"]) == (["type"], ["name", "type"])
    assert "required" not in schema_of(Cat)


def test_the_same_type_twice_is_no_cycle() -> None:
    """Two fields of one type are written out twice."""
    assert schema_of(tuple[Doubt, Doubt])["minItems"] == 2
    assert schema_of(dict[str, Point])["additionalProperties"] == POINT


def test_a_model_brings_its_own_schema() -> None:
    """A model's schema is taken as it is; what it refers to moves to the root under a name of its own."""
    builder = SchemaBuilder()
    schema = builder.schema(read_type(dict[str, Person], "t"), "t")
    person = schema["additionalProperties"]
    assert person["properties"]["name"]["minLength"] == 2
    assert person["properties"]["address"] == {"$ref": "#/$defs/Person.Address"}
    assert builder.definitions["Person.Address"]["required"] == ["street"]
    assert "$defs" not in person


def test_two_models_do_not_share_definitions() -> None:
    """Definitions of the same name from two models stay apart."""

    def other() -> type[pydantic.BaseModel]:
        class Address(pydantic.BaseModel):
            zip_code: str

        class Person(pydantic.BaseModel):
            address: Address

        return Person

    builder = SchemaBuilder()
    first = builder.schema(read_type(Person, "t"), "t")["properties"]["address"]["$ref"]
    second = builder.schema(read_type(other(), "t"), "t")["properties"]["address"]["$ref"]
    assert {"#/$defs/" + name for name in builder.definitions} == {first, second}
    assert len(builder.definitions) == 2


@each_row(
    "annotation",
    [
        Callable[[int], int],
        asyncio.Queue,
        asyncio.Queue[int],
        AsyncIterator[int],
        complex,
        msgspec.msgpack.Ext,
        list[Callable[[], None]],
        dict[int, str],
        dict[str, asyncio.Event],
        str | bytes | complex,
        type,
    ],
)
def test_what_json_cannot_carry_is_refused(annotation: Any) -> None:
    """Callables, channels, generators and keys that are no strings have no schema."""
    with pytest.raises(UnsupportedTypeError) as caught:
        schema_of(annotation)
    assert caught.value.path.startswith("t")


@each_row("annotation", [Node, Ping, list[Node]])
def test_a_type_that_contains_itself_is_refused(annotation: Any) -> None:
    """A cycle has no inlined schema."""
    with pytest.raises(UnsupportedTypeError, match="contains itself"):
        schema_of(annotation)


def test_types_nest_32_deep_and_no_deeper() -> None:
    """The 32nd level is written, the 33rd refused."""
    annotation: Any = int
    for _ in range(MAX_DEPTH - 1):
        annotation = list[annotation]
    assert schema_of(annotation)["type"] == "array"
    with pytest.raises(UnsupportedTypeError, match="32"):
        schema_of(list[annotation])


def test_a_default_that_json_cannot_say_is_left_out() -> None:
    """The model is not told of a default that has no JSON form."""

    class Odd(msgspec.Struct):
        at: Any = float("nan")
        of: Any = b"x"

    assert schema_of(Odd)["properties"] == {"at": {}, "of": {"default": "eA=="}}


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
