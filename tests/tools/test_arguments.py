"""Argument bytes become typed values, or errors that name the place."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, Union, get_args, get_origin

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harborage.identity import Quadruple
from harborage.tools import CallContext, ToolDescriptor, ToolInvalidArgsError, UnsupportedTypeError, tool
from harborage.tools.arguments import (
    REQUIRED,
    Argument,
    make_argument_decoder,
    make_result_checker,
    make_unknown_field_finder,
    to_invalid_args,
)
from harborage.tools.schema import read_type
from tests.kit.tables import each_row


@dataclass
class Open:
    """A record whose decoder would drop unknown fields."""

    a: int
    b: list[str] | None = None


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """A record that refuses them."""

    a: bool
    inner: Open | None = None


LEAVES: list[Any] = [int, float, str, bool, Any, Literal["a", "b"], Open, Closed]
CALL = CallContext(Quadruple())
KEYS = st.sampled_from(["a", "b", "inner", "x0", "x1", "zz"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    # JSON Schema calls 1.0 an integer and the decoder does not: whole floats are outside the agreement.
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer())
    | st.sampled_from(["a", "b", ""])
    | st.text(max_size=4)
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Types built from other types."""
    return st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        inner.map(lambda t: tuple[t, ...]),
        st.tuples(inner, inner).map(lambda ts: tuple[ts]),
        inner.filter(lambda t: t is not Any).map(lambda t: Union[t, None]),  # noqa: UP007
    )


TYPES = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=4)


def tool_of(parameters: dict[str, Any]) -> ToolDescriptor:
    """A tool that takes these parameters, all of them required unless optional."""

    async def taker(**given: Any) -> Any:
        return given

    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([inspect.Parameter(name, keyword) for name in parameters])
    taker.__signature__ = signature  # type: ignore[attr-defined]
    taker.__annotations__ = dict(parameters)
    return tool(taker)


def value_for(annotation: Any) -> st.SearchStrategy[Any]:
    """JSON that fits a type, mostly."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(value_for, args))
    if origin is list or (origin is tuple and args[-1] is Ellipsis):
        return st.lists(value_for(args[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(value_for, args)).map(list)
    if origin is dict:
        return st.dictionaries(KEYS, value_for(args[1]), max_size=3)
    open_record = st.fixed_dictionaries({"a": st.integers(-9, 9)}, optional={"b": st.lists(st.just("s")), "zz": JSON})
    closed_record = st.fixed_dictionaries({"a": st.booleans()}, optional={"inner": open_record})
    plain = {int: st.integers(-9, 9), float: st.floats(0.1, 0.9), str: st.text(max_size=3), bool: st.booleans()}
    return {Open: open_record, Closed: closed_record, Any: JSON, type(None): st.none(), **plain}[annotation]


@st.composite
def calls(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """Parameters, and arguments that may or may not fit them."""
    parameters = draw(st.dictionaries(st.sampled_from(["x0", "x1", "x2"]), TYPES, max_size=3))
    fitting = st.fixed_dictionaries({name: value_for(each) | JSON for name, each in parameters.items()})
    return parameters, draw(fitting | JSON | st.tuples(fitting, JSON).map(_merged))


def _merged(pair: tuple[dict[str, Any], Any]) -> Any:
    fitting, extra = pair
    return {**fitting, **extra} if isinstance(extra, dict) else extra


def is_exactly(value: Any, annotation: Any) -> bool:
    """Whether a value is of the declared type through and through."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if origin is Literal:
        return value in args
    if origin in (Union, types.UnionType):
        return any(is_exactly(value, each) for each in args)
    if origin is list:
        return type(value) is list and all(is_exactly(each, args[0]) for each in value)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        kinds = args[:1] * len(value) if args[-1] is Ellipsis else args
        return len(kinds) == len(value) and all(map(is_exactly, value, kinds))
    if origin is dict:
        return type(value) is dict and all(type(k) is str and is_exactly(v, args[1]) for k, v in value.items())
    if type(value) is not annotation:
        return False
    return all(is_exactly(getattr(value, name), kind) for name, kind in _fields_of(annotation))


def _fields_of(annotation: Any) -> list[tuple[str, Any]]:
    if is_dataclass(annotation):
        return [(each.name, {"a": int, "b": list[str] | None}[each.name]) for each in fields(annotation)]
    return [("a", bool), ("inner", Open | None)] if annotation is Closed else []


def without_nulls(value: Any) -> Any:
    """A value without the null members of objects, which mean the same as leaving an optional member out."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def decoded(descriptor: ToolDescriptor, args: bytes) -> dict[str, Any] | None:
    """What the function was given, or None when the arguments were refused with a path."""
    call = descriptor.body(args, CALL)
    try:
        call.__await__().send(None)
    except StopIteration as done:
        given: dict[str, Any] = done.value.value
        return given
    except ToolInvalidArgsError as error:
        if not (error.path.startswith("$") and error.path in str(error)):
            raise AssertionError(f"{error!r} names no path") from error
        return None
    raise AssertionError("the tool waited for something")


@settings(max_examples=150, deadline=None)
@given(calls())
def test_arguments_arrive_exactly_as_declared_or_are_refused_with_a_path(call: tuple[dict[str, Any], Any]) -> None:
    """Whatever JSON comes, the function gets its declared types through and through, or nothing."""
    parameters, args = call
    given = decoded(tool_of(parameters), msgspec.json.encode(args))
    if given is not None:
        assert set(given) == set(parameters)
        assert all(is_exactly(given[name], kind) for name, kind in parameters.items())


@settings(max_examples=150, deadline=None)
@given(calls())
def test_the_schema_and_the_decoder_agree(call: tuple[dict[str, Any], Any]) -> None:
    """What the schema admits is decoded, and what is decoded the schema admits, null members being left out."""
    parameters, args = call
    descriptor = tool_of(parameters)
    schema = jsonschema_rs.validator_for(descriptor.tool.args_schema)
    is_decoded = decoded(descriptor, msgspec.json.encode(args)) is not None
    if schema.is_valid(args):
        assert is_decoded
    if is_decoded and not any(_needs_null(kind) for kind in parameters.values()):
        assert schema.is_valid(without_nulls(args))


def _needs_null(annotation: Any) -> bool:
    """Whether null is a value of its own somewhere inside, so that leaving members out changes the value."""
    if get_origin(annotation) in (dict, list, tuple):
        return any(each is Any or type(None) in get_args(each) or _needs_null(each) for each in get_args(annotation))
    return annotation is Any or any(_needs_null(each) for each in get_args(annotation) if each is not type(None))


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_crash_the_decoder(args: bytes) -> None:
    """Bytes that are no JSON are refused like any other bad arguments."""
    given = decoded(tool_of({"x": int | None}), args)
    assert given is None or type(given["x"]) in {int, type(None)}


def test_a_type_that_only_the_decoder_refuses_is_named() -> None:
    """The decoder's own refusal is an UnsupportedTypeError, too."""
    with pytest.raises(UnsupportedTypeError, match="cannot be decoded"):
        make_argument_decoder("f", [Argument("x", int | str | list[int] | tuple[int, ...], REQUIRED)])


class Own:
    """A class of somebody's own that brings schema and validation, though it is no pydantic model."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "string", "pattern": "^a"}

    @classmethod
    def model_validate_json(cls, data: bytes) -> Own:
        text = msgspec.json.decode(data, type=str)
        if not text.startswith("a"):
            raise ValueError("does not begin with a: hunter2")
        return cls(text)


@pytest.mark.anyio
async def test_any_class_with_the_two_methods_is_a_model() -> None:
    """Its schema is used and its validation decides; its own words are not repeated, they may quote the value."""

    @tool
    async def descriptor(x: Own) -> str:
        return x.text

    assert descriptor.tool.args_schema["properties"]["x"] == {"type": "string", "pattern": "^a"}
    assert (await descriptor.body(b'{"x":"abc"}', CALL)).value == "abc"
    with pytest.raises(ToolInvalidArgsError) as caught:
        await descriptor.body(b'{"x":"b"}', CALL)
    assert caught.value.path == "$.x"
    assert "hunter2" not in str(caught.value)


@each_row(
    "error, reason, path",
    [
        (ValueError("odd"), "odd", "$"),
        (ValueError("Expected `int`, got `str` - at `$.a[0]`"), "Expected `int`, got `str`", "$.a[0]"),
        (ValueError("Object missing required field `x` - at `$.a`"), "Object missing required field `x`", "$.a.x"),
        (ValueError("Invalid enum value 'hunter2' - at `$.a`"), "Invalid enum value", "$.a"),
        (RecursionError(), "JSON is nested too deeply", "$"),
    ],
)
def test_a_decoders_complaint_is_taken_apart(error: Exception, reason: str, path: str) -> None:
    """The path leaves the text and becomes an attribute; a field that is named is part of it."""
    invalid = to_invalid_args(error)
    assert (invalid.reason, invalid.path) == (reason, path)


def test_a_result_that_contains_itself_is_refused() -> None:
    """A cycle ends in an error, not in a crash."""
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ToolInvalidArgsError):
        make_result_checker(list[list[list[int]]])(cycle)


@dataclass
class OpenRecord:
    """A dataclass, whose decoder drops what it does not know."""

    x: Any = None


class ClosedRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A struct that forbids unknown fields by itself."""

    x: int = 0


class Holder(msgspec.Struct, forbid_unknown_fields=True):
    """A closed struct around an open one."""

    inner: OpenRecord


class Loose(TypedDict):
    """A typed dict."""

    x: int


class Pair(NamedTuple):
    """A named tuple with an open part."""

    a: int
    b: OpenRecord


class Row(msgspec.Struct, array_like=True):
    """A struct that travels as an array, with an open part."""

    a: OpenRecord


class Cat(msgspec.Struct, tag="cat"):
    """One side of a tagged union."""

    x: int = 0


class Dog(msgspec.Struct, tag="dog", forbid_unknown_fields=True):
    """The other side, which is closed."""

    y: int = 0


BAD = {"x": 1, "z": 2}


@each_row(
    "annotation, value, path",
    [
        (OpenRecord, BAD, "$.z"),
        (OpenRecord, {"x": {"z": 1}}, None),
        (Loose, BAD, "$.z"),
        (Holder, {"inner": BAD}, "$.inner.z"),
        (list[OpenRecord], [{}, BAD], "$[1].z"),
        (tuple[OpenRecord, ...], [BAD], "$[0].z"),
        (tuple[int, OpenRecord], [1, BAD], "$[1].z"),
        (tuple[int, OpenRecord], [1], None),
        (Pair, [1, BAD], "$[1].z"),
        (Row, [BAD], "$[0].z"),
        (dict[str, OpenRecord], {"k": BAD}, "$.k.z"),
        (dict[str, list[OpenRecord]], {"k": [BAD]}, "$.k[0].z"),
        (OpenRecord | None, BAD, "$.z"),
        (OpenRecord | None, None, None),
        (Annotated[OpenRecord, msgspec.Meta(title="T")] | None, BAD, "$.z"),
        (list[OpenRecord] | OpenRecord, [BAD], "$[0].z"),
        (list[OpenRecord] | OpenRecord, BAD, "$.z"),
        (Cat | Dog, {"type": "cat", "z": 1}, "$.z"),
        (Cat | Dog, {"type": "cat", "x": 1}, None),
        (Cat | Dog, {"type": "dog", "z": 1}, None),
        (Cat | Dog, {"type": ["cat"], "z": 1}, None),
        (list[OpenRecord] | Cat | Dog, [BAD], "$[0].z"),
        (OpenRecord, "no record", None),
        (list[OpenRecord], {"z": 1}, None),
        (tuple[int, OpenRecord], {"z": 1}, None),
        (dict[str, OpenRecord], [BAD], None),
    ],
)
def test_an_unknown_field_is_found_at_its_place(annotation: Any, value: Any, path: str | None) -> None:
    """The first field that a record does not have is named; a value of another shape is the decoder's business."""
    finder = make_unknown_field_finder(read_type(annotation, "t"))
    assert finder is not None
    assert finder(value, "$") == path


@each_row(
    "annotation",
    [int, Any, ClosedRecord, list[ClosedRecord], dict[str, int], tuple[int, str], int | None, Dog, list[Any]],
)
def test_nothing_is_looked_for_where_nothing_is_dropped(annotation: Any) -> None:
    """Types without records, and records that forbid unknown fields by themselves, need no second look."""
    assert make_unknown_field_finder(read_type(annotation, "t")) is None
