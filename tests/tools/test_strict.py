"""Unknown fields of nested records, which the decoder alone would drop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec

from harborage.tools.schema import type_info
from harborage.tools.strict import unknown_field_finder
from tests.kit.tables import each_row


@dataclass
class Open:
    """A dataclass, whose decoder drops what it does not know."""

    x: Any = None


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """A struct that forbids unknown fields by itself."""

    x: int = 0


class Holder(msgspec.Struct, forbid_unknown_fields=True):
    """A closed struct around an open one."""

    inner: Open


class Loose(TypedDict):
    """A typed dict."""

    x: int


class Pair(NamedTuple):
    """A named tuple with an open part."""

    a: int
    b: Open


class Row(msgspec.Struct, array_like=True):
    """A struct that travels as an array, with an open part."""

    a: Open


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
        (Open, BAD, "$.z"),
        (Open, {"x": {"z": 1}}, None),
        (Loose, BAD, "$.z"),
        (Holder, {"inner": BAD}, "$.inner.z"),
        (list[Open], [{}, BAD], "$[1].z"),
        (tuple[Open, ...], [BAD], "$[0].z"),
        (tuple[int, Open], [1, BAD], "$[1].z"),
        (tuple[int, Open], [1], None),
        (Pair, [1, BAD], "$[1].z"),
        (Row, [BAD], "$[0].z"),
        (dict[str, Open], {"k": BAD}, "$.k.z"),
        (dict[str, list[Open]], {"k": [BAD]}, "$.k[0].z"),
        (Open | None, BAD, "$.z"),
        (Open | None, None, None),
        (Annotated[Open, msgspec.Meta(title="T")] | None, BAD, "$.z"),
        (list[Open] | Open, [BAD], "$[0].z"),
        (list[Open] | Open, BAD, "$.z"),
        (Cat | Dog, {"type": "cat", "z": 1}, "$.z"),
        (Cat | Dog, {"type": "cat", "x": 1}, None),
        (Cat | Dog, {"type": "dog", "z": 1}, None),
        (Cat | Dog, {"type": ["cat"], "z": 1}, None),
        (list[Open] | Cat | Dog, [BAD], "$[0].z"),
        (Open, "no record", None),
        (list[Open], {"z": 1}, None),
        (tuple[int, Open], {"z": 1}, None),
        (dict[str, Open], [BAD], None),
    ],
)
def test_an_unknown_field_is_found_at_its_place(annotation: Any, value: Any, path: str | None) -> None:
    """The first field that a record does not have is named; a value of another shape is the decoder's business."""
    finder = unknown_field_finder(type_info(annotation, "t"))
    assert finder is not None
    assert finder(value, "$") == path


@each_row("annotation", [int, Any, Closed, list[Closed], dict[str, int], tuple[int, str], int | None, Dog, list[Any]])
def test_nothing_is_looked_for_where_nothing_is_dropped(annotation: Any) -> None:
    """Types without records, and records that forbid unknown fields by themselves, need no second look."""
    assert unknown_field_finder(type_info(annotation, "t")) is None
