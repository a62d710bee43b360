"""The types of values that tools take and give: read as declared, with their schema, or refused with the fix."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, Optional, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from pydantic import Field

from harborage import codec
from harborage.identity import Quadruple
from harborage.tools import CallContext, ToolDescriptor, ToolInvalidArgsError, UnsupportedTypeError, tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio
CALL = CallContext(Quadruple())
T = TypeVar("T")
Kilometres = NewType("Kilometres", int)
WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


class Colour(enum.StrEnum):
    """Closed words."""

    RED = "red"


@dataclass
class Answer:
    """One side of a union."""

    text: str


@dataclass
class Refusal:
    """The other side."""

    reason: str
    code: int = 0


@dataclass
class Yes:
    """A side with a tag."""

    text: str
    kind: Literal["yes"] = "yes"


@dataclass
class No:
    """The other side with a tag."""

    text: str
    kind: Literal["no"] = "no"


class Card(pydantic.BaseModel):
    """A model."""

    number: str
    holder: str = Field("", alias="heldBy")


class Cash(pydantic.BaseModel):
    """Another model."""

    coins: list[int]


class Cheque(TypedDict):
    """A typed dict."""

    bank: str
    memo: NotRequired[str]


class Voucher(TypedDict):
    """Another typed dict."""

    until: str


class Point(msgspec.Struct):
    """A struct without a tag."""

    at: datetime


@dataclass(frozen=True)
class Order:
    """A record with parts that only our own rules read."""

    pays: Card | Cash | Cheque
    when: datetime
    file: Path = Path("a.txt")
    amount: Annotated[int, Field(gt=0)] = 1
    notes: list[Answer | Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.amount > 100:
            raise ValueError("amount must be at most 100")


@dataclass
class Page(Generic[T]):
    """A generic record."""

    items: list[T]


@dataclass
class Twin:
    """A record with the fields of Answer."""

    text: str


@dataclass
class Secretive:
    """A record with a parameter that is no field."""

    a: int
    b: InitVar[int] = 0


@dataclass
class Tree:
    """A record that contains itself beside a part of ours."""

    children: list[Tree]
    when: datetime


def taking(annotation: Any) -> ToolDescriptor:
    """A tool with one argument `x` of a type, which gives it back."""

    def f(x: Any) -> Any:
        """Give it back."""
        return x

    f.__annotations__ = {"x": annotation}
    return tool(f)


def giving(annotation: Any, value: Any = None) -> ToolDescriptor:
    """A tool that declares to return a type."""

    def f() -> Any:
        """Give it."""
        return value

    f.__annotations__ = {"return": annotation}
    return tool(f)


async def read(annotation: Any, plain: Any) -> Any:
    """What the function gets for an argument."""
    args = plain if isinstance(plain, bytes) else codec.encode({"x": plain})
    return (await taking(annotation).body(args, CALL)).value


@each_row(
    "annotation, plain, value",
    [
        (int, b'{"x":1.0}', 1),
        (int, b'{"x":1e2}', 100),
        (list[int], b'{"x":[1.0,2]}', [1, 2]),
        (float, 1.0, 1.0),
        (Any, 1.0, 1.0),
        (Decimal, b'{"x":0.10}', Decimal("0.10")),
        (Decimal, "0.10", Decimal("0.10")),
        (bytes, "aGk=", b"hi"),
        (datetime, "2026-01-02T03:04:00Z", WHEN),
        (timedelta, "PT60S", timedelta(minutes=1)),
        (uuid.UUID, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
        (Path, "a/b", Path("a/b")),
        (Path | None, None, None),
        (list[Path], ["a"], [Path("a")]),
        (Path | int, 3, 3),
        (Colour, "red", Colour.RED),
        (Optional[int], None, None),  # noqa: UP045
        (int | str, "a", "a"),
        (Iterable[int], [1, 2], [1, 2]),
        (Iterable, [1, "a"], [1, "a"]),
        (set[int], [1, 2], {1, 2}),
        (Kilometres, 4, 4),
        (Answer | Refusal, {"text": "a"}, Answer("a")),
        (Answer | Refusal, {"reason": "b", "code": 1.0}, Refusal("b", 1)),
        (Answer | Refusal | None, None, None),
        (list[Answer | Refusal], [{"text": "a"}, {"reason": "b"}], [Answer("a"), Refusal("b")]),
        (dict[str, Answer | Refusal], {"k": {"reason": "b"}}, {"k": Refusal("b")}),
        (list[Answer] | Answer | Refusal, [{"text": "a"}], [Answer("a")]),
        (Yes | No, {"text": "a", "kind": "no"}, No("a")),
        (Card | Cash, {"coins": [1]}, Cash(coins=[1])),
        (Card | Cash, {"number": "1", "heldBy": "Jo"}, Card(number="1", heldBy="Jo")),
        (Card | Answer, {"text": "a"}, Answer("a")),
        (Card | int, 3, 3),
        (Cheque | Voucher, {"bank": "b"}, {"bank": "b"}),
        (Cheque | Card | Answer, {"bank": "b", "memo": "m"}, {"bank": "b", "memo": "m"}),
        (Point | Answer, {"at": "2026-01-02T03:04:00Z"}, Point(WHEN)),
        (Page[int], {"items": [1]}, Page([1])),
        (Page[Answer | Refusal], {"items": [{"text": "a"}]}, Page([Answer("a")])),
        (Annotated[int, Field(gt=0)], 1, 1),
    ],
)
async def test_an_argument_arrives_as_declared(annotation: Any, plain: Any, value: Any) -> None:
    """Plain JSON becomes the declared value, whatever union it is of and however deep it lies."""
    found = await read(annotation, plain)
    assert found == value
    assert type(found) is type(value)


@each_row(
    "annotation, plain, says",
    [
        (int, 1.5, "Expected `int`, got `float` - at `$.x`"),
        (int, "1", "Expected `int`, got `str` - at `$.x`"),
        (int, True, "Expected `int`, got `bool` - at `$.x`"),
        (datetime, "2026-01-02T03:04:00", "the time has no zone; add a zone, for example Z - at `$.x`"),
        (list[datetime], ["2026-01-02T03:04:00"], "the time has no zone; add a zone, for example Z - at `$.x[0]`"),
        (Point, {"at": "2026-01-02T03:04:00"}, "the time has no zone; add a zone, for example Z - at `$.x.at`"),
        (Path, 3, "Expected a path - at `$.x`"),
        (Path, "a\0b", "Expected a path - at `$.x`"),
        (Annotated[int, Field(gt=0)], 0, "Expected `int` >= 1 - at `$.x`"),
        (Annotated[str, Field(min_length=2)], "a", "Expected `str` of length >= 2 - at `$.x`"),
        (Answer | Refusal, {"text": 1}, "Expected `str`, got `int` - at `$.text`"),
        (Answer | Refusal, {"text": "a", "reason": "b"}, "Object contains unknown field"),
        (Yes | No, {"text": "a"}, "Object missing required field `kind` - at `$.x.kind`"),
        (Yes | No, {"text": 1, "kind": "no"}, "Expected `str`, got `int` - at `$.x.text`"),
        (Card | Cash, {"number": 1, "coins": "x"}, "valid"),
        (Card | Cash, {"number": "1", "coins": [1]}, "it fits Card and Cash alike"),
    ],
)
async def test_what_does_not_fit_is_refused_with_place_and_reason(annotation: Any, plain: Any, says: str) -> None:
    """The model reads what to change, and where."""
    with pytest.raises(ToolInvalidArgsError) as caught:
        await read(annotation, plain)
    assert says in str(caught.value)


async def test_a_record_of_parts_of_ours_is_read_by_its_own_class() -> None:
    """Its defaults, its checks and the places of what is wrong are as for any other dataclass."""
    plain = {"pays": {"bank": "b"}, "when": "2026-01-02T03:04:00Z", "notes": [{"reason": "r"}]}
    assert await read(Order, plain) == Order({"bank": "b"}, WHEN, notes=[Refusal("r")])
    wrong = [
        ({**plain, "amount": 101}, "amount must be at most 100 - at `$.x`"),
        ({**plain, "amount": 0}, "Expected `int` >= 1 - at `$.x.amount`"),
        ({**plain, "notes": [{"reason": 1, "code": 1}]}, "Expected `str`, got `int` - at `$.reason`"),
        ({**plain, "more": 1}, "Object contains unknown field `more` - at `$.x.more`"),
    ]
    for given, says in wrong:
        with pytest.raises(ToolInvalidArgsError) as caught:
            await read(list[Order] if isinstance(given, list) else Order, given)
        assert says in str(caught.value)


@each_row(
    "annotation, schema",
    [
        (Path, {"type": "string", "format": "path"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (frozenset[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (Annotated[int, Field(gt=0, le=9, description="How many.")],
         {"type": "integer", "exclusiveMinimum": 0, "maximum": 9, "description": "How many."}),
        (Annotated[str, Field(pattern="^a", max_length=3)], {"type": "string", "pattern": "^a", "maxLength": 3}),
        (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
        (Answer | Refusal, {"anyOf": [
            {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
             "additionalProperties": False},
            {"type": "object", "properties": {"reason": {"type": "string"}, "code": {"type": "integer", "default": 0}},
             "required": ["reason"], "additionalProperties": False},
        ]}),
    ],
)  # fmt: skip
def test_a_type_has_its_schema(annotation: Any, schema: dict[str, Any]) -> None:
    """What the model sees says what is read."""
    assert taking(annotation).tool.args_schema["properties"]["x"] == schema


def test_the_field_that_tells_two_records_apart_is_required() -> None:
    """A Literal field with a default could be left out, and then both would fit."""
    yes, no = taking(Yes | No).tool.args_schema["properties"]["x"]["anyOf"]
    assert yes["required"] == no["required"] == ["kind", "text"]
    assert yes["properties"]["kind"]["enum"] == ["yes"]


@each_row(
    "annotation, says",
    [
        (Answer | Twin, 'f.x: Answer | Twin: the same fields; add kind: Literal["answer"] to each'),
        (list[Answer | Twin], 'f.x[]: Answer | Twin: the same fields; add kind: Literal["answer"] to each'),
        (Path | str, "f.x: Path | str: both are written as string; keep one of them"),
        (Iterator[int], "f.x: Iterator can be read only once; use list[int]"),
        (Generator[int, None, None], "f.x: Generator can be read only once; use list[int]"),
        (T, "f.x: T is not bound to a type; name the type"),
        (list[T], "f.x[]: T is not bound to a type; name the type"),
        (Secretive, "f.x: Secretive.b is an InitVar; make it a field"),
        (Callable[[int], int], "f.x: Callable has no JSON form; use a dataclass or a model"),
        (complex, "f.x: complex has no JSON form; use a dataclass or a model"),
        (dict[int, str], "f.x: JSON objects have string keys; use dict[str, …] or a list of pairs"),
        (Annotated[Decimal, Field(decimal_places=2)], "decimal_places is checked in models only; use one"),
        (Annotated[int, pydantic.AfterValidator(abs)], "func is checked in models only; use one"),
        (Annotated[int, Field(3)], "f.x: write the default behind the parameter, not in Field(…)"),
        (Annotated[int, Field(alias="y")], "f.x: Field(alias=…) works in a model; name the parameter so"),
    ],
)
def test_a_type_is_refused_with_the_fix(annotation: Any, says: str) -> None:
    """What has no JSON form, or could not be told apart, is refused when the tool is made."""
    with pytest.raises(UnsupportedTypeError) as caught:
        taking(annotation)
    assert says in str(caught.value)


def test_a_record_that_contains_itself_is_refused_beside_parts_of_ours() -> None:
    """The walk through a type ends, and the cycle is named."""
    with pytest.raises(UnsupportedTypeError, match="Tree contains itself; break the cycle, or take it as dict"):
        taking(Tree)


def test_a_field_as_the_default_of_a_parameter_is_refused() -> None:
    """It would otherwise be the value that the function gets."""

    def f(x: int = Field(gt=0)) -> int:
        return x

    with pytest.raises(UnsupportedTypeError, match=r"f\.x: a Field is no default; write x: Annotated"):
        tool(f)


@each_row(
    "annotation, value, plain",
    [
        (Order, Order(Card(number="1", heldBy="Jo"), WHEN), None),
        (Card, Card(number="1", heldBy="Jo"), {"number": "1", "heldBy": "Jo"}),
        (list[Card | Answer], [Card(number="1"), Answer("a")], None),
        (Decimal, Decimal("1.10"), "1.10"),
        (bytes, b"hi", "aGk="),
        (Path, Path("a/b"), "a/b"),
        (set[str], {"b"}, ["b"]),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (datetime, datetime(2026, 1, 2), "2026-01-02T00:00:00"),
        (Answer | Refusal, Refusal("b"), {"reason": "b", "code": 0}),
        (Yes | No, No("b"), {"text": "b", "kind": "no"}),
        (Colour, Colour.RED, "red"),
        (Cheque | Voucher, {"until": "x"}, {"until": "x"}),
        (None, None, None),
    ],
)
async def test_a_recorded_result_has_its_declared_type_again(annotation: Any, value: Any, plain: Any) -> None:
    """A result is checked as it is, recorded as plain JSON, and read back as declared."""
    made = giving(annotation, value)
    result = (await made.body(b"{}", CALL)).value
    if made.validate_result is not None:
        made.validate_result(result)
    recorded = codec.to_plain(result)
    assert plain is None or recorded == plain
    again = made.read_result(recorded)
    assert again == value
    assert type(again) is type(value)


def test_a_result_that_declares_nothing_is_what_was_recorded() -> None:
    """Nothing is known of its type."""
    assert giving(Any).read_result({"a": 1}) == {"a": 1}


def test_a_recorded_result_of_another_time_is_refused_with_its_place() -> None:
    """The type has changed since it was recorded."""
    with pytest.raises(ToolInvalidArgsError, match=r"unknown field `reason` - at `\$\.reason`"):
        giving(Answer).read_result({"reason": "b"})


@each_row("annotation, value", [(int, "1"), (Answer | Refusal, Twin("a")), (list[Path], [3]), (Order, {"amount": 1})])
def test_a_result_of_another_type_is_refused(annotation: Any, value: Any) -> None:
    """What a tool declares to return is held to it."""
    check = giving(annotation).validate_result
    assert check is not None
    with pytest.raises(ToolInvalidArgsError):
        check(value)
