"""JSON in and out: byte-exact where it must be, and the first offender named by its path."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import uuid
from collections import deque
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.codec import UnserializableError
from harborage.identity import Quadruple
from tests.kit.tables import each_row

NAN, INF = float("nan"), float("inf")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Point(msgspec.Struct, rename="pascal"):
    x_pos: Any = None
    a_pos: Any = None


@dataclasses.dataclass
class Line:
    start: Any
    end: Any = None


class Model(pydantic.BaseModel):
    when: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    value: float = 1


class Speaks:
    """An object that knows its own JSON form."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def to_json(self) -> Any:
        return self.form


class Dunder(Speaks):
    def __json__(self) -> Any:
        return ["dunder", self.form]


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Odd(enum.Enum):
    FINE = 1.5
    BROKEN = object()


class Text(str):
    __slots__ = ()


class Number(float):
    __slots__ = ()


class Whole(int):
    pass


def fails(value: Any, root: str = "value") -> UnserializableError:
    """The error that validation gives; encoding must agree on where."""
    with pytest.raises(UnserializableError) as caught:
        codec.validate_encodable(value, root)
    with pytest.raises(UnserializableError) as canonical:
        codec.encode_canonical(value, root)
    assert canonical.value.field == caught.value.field
    return caught.value


@given(json_values)
def test_plain_data_comes_back(value: Any) -> None:
    """Every encoder spells the same value, and decoding gives it back."""
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(codec.encode_canonical(value)) == value
    assert codec.decode(codec.encode_text(value)) == value
    assert codec.to_plain(value) == value
    codec.validate_encodable(value, "value")


@given(json_values)
def test_the_canonical_form_is_that_of_a_strict_reader(value: Any) -> None:
    """The standard library reads the same value from it, and it is as long as it says."""
    out = codec.encode_canonical(value)
    assert json.loads(out) == value
    assert codec.canonical_size(value) == len(out)
    assert not set(b"<>&") & set(out)
    assert "\u2028" not in out.decode()
    assert "\u2029" not in out.decode()


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_canonical_form_does_not_know_the_order_of_insertion(value: dict[str, int]) -> None:
    """Equal maps give equal bytes, sorted by key."""
    backwards = dict(reversed(value.items()))
    assert codec.encode_canonical(value) == codec.encode_canonical(backwards)
    assert list(codec.decode(codec.encode_canonical(value))) == sorted(value)
    assert codec.encode_text(value) == codec.encode_text(backwards)


def test_the_stored_form_is_compact_and_keeps_the_order() -> None:
    """No blanks, keys as they were put in, text as UTF-8."""
    assert codec.encode({"b": [1, 2.5, None], "a": "ü"}) == '{"b":[1,2.5,null],"a":"ü"}'.encode()


def test_the_canonical_form_escapes_what_html_and_javascript_trip_over() -> None:
    """In values and in keys; other text stays as it is, and backslashes are not confused."""
    assert codec.encode_canonical("<a>&\u2028\u2029ü") == b'"\\u003ca\\u003e\\u0026\\u2028\\u2029\xc3\xbc"'
    assert codec.encode_canonical({"<": "\\<"}) == b'{"\\u003c":"\\\\\\u003c"}'
    assert codec.decode(codec.encode_canonical({"<": "\\<"})) == {"<": "\\<"}


def test_text_for_people_is_not_escaped() -> None:
    """Sorted and compact, with `<`, `>` and `&` as they are."""
    assert codec.encode_text({"b": "<&>", "a": 1}) == '{"a":1,"b":"<&>"}'


def test_keys_are_sorted_at_every_depth_and_records_keep_theirs() -> None:
    """Maps have no order of their own, records have the one they were declared in."""
    assert codec.encode_canonical({"z": {"b": 1, "a": 2}, "y": Point(1, 2)}) == (
        b'{"y":{"XPos":1,"APos":2},"z":{"a":2,"b":1}}'
    )


@each_row(
    "value, wanted",
    [
        (Point(1, "x"), {"XPos": 1, "APos": "x"}),
        (Line(1), {"start": 1, "end": None}),
        (Model(), {"when": "2026-01-01T00:00:00Z", "value": 1}),
        (Speaks({"a": 1}), {"a": 1}),
        (Dunder(1), ["dunder", 1]),
        (Speaks(Speaks([None])), [None]),
        ((1, (2,)), [1, [2]]),
        ({1}, [1]),
        (Colour.RED, "red"),
        ({Colour.RED: Colour.BLUE}, {"red": "blue"}),
        (Odd.FINE, 1.5),
        (b"\x00\xff", "AP8="),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (date(2026, 1, 2), "2026-01-02"),
        (Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (types.MappingProxyType({"b": 1}), {"b": 1}),
        (Text("x"), "x"),
        (Number(1.5), 1.5),
        (Whole(3), 3),
        (2**80, 2**80),
        (True, True),
    ],
)
def test_more_than_plain_data_has_a_form(value: Any, wanted: Any) -> None:
    """Records, dataclasses, pydantic models, dates and objects with a form of their own, alone and inside others."""
    assert codec.to_plain(value) == wanted
    assert codec.to_plain({"deep": [value, None]}) == {"deep": [wanted, None]}
    codec.validate_encodable({"deep": [value, None]}, "value")


@each_row(
    "value, field",
    [
        (NAN, "value"),
        ({"a": NAN}, "value.a"),
        ({"a": [1, {"b": INF}]}, "value.a[1].b"),
        ([[None, -INF]], "value[0][1]"),
        ((1, NAN), "value[1]"),
        ({"p": Point(x_pos=[NAN])}, "value.p.XPos[0]"),
        (Point(a_pos=object()), "value.APos"),
        (Line(1, Line(object())), "value.end.start"),
        ([Model(value=NAN)], "value[0].value"),
        (Speaks({"in": NAN}), "value.in"),
        ({"a": object(), "b": object()}, "value.a"),
        ({"b": object(), "a": object()}, "value.b"),
        ({"a": 1, "b": {"c": {1, 2}, "d": deque()}}, "value.b.d"),
        (object(), "value"),
        ({"t": int}, "value.t"),
        ({"with.dot": [object()]}, "value.with.dot[0]"),
        ({"": object()}, "value."),
        ({1: "x"}, "value <non-string-map-key>"),
        ({"a": {(1, 2): "x"}}, "value.a <non-string-map-key>"),
        ({"a": [{None: 1}]}, "value.a[0] <non-string-map-key>"),
        ({"a": {"ok": object()}, "b": {1: 2}}, "value.a.ok"),
        (Number("nan"), "value"),
        ({"a": types.MappingProxyType({"b": object()})}, "value.a.b"),
        (["ok", "half \ud800"], "value[1]"),
        ({"a": {"half \ud800": 1}}, "value.a"),
        ({"a": Odd.BROKEN}, "value.a"),
    ],
    ids=lambda case: None if "0x" in repr(case) else repr(case)[:40],
)
def test_the_first_offender_is_named_by_its_path(value: Any, field: str) -> None:
    """Steps are `.key` and `[index]`, in document order; records are named as they are on the wire."""
    assert fails(value).field == field


def test_the_path_begins_with_the_callers_word() -> None:
    """The root is what the caller calls the value; the message says where and why."""
    error = fails({"a": NAN}, "Trajectory.steps[3]")
    assert (error.field, error.reason) == ("Trajectory.steps[3].a", "nan is not a JSON number")
    assert str(error) == "cannot serialise Trajectory.steps[3].a: nan is not a JSON number"
    assert str(UnserializableError("x")) == "cannot serialise x"


def test_a_cycle_is_named_where_it_closes() -> None:
    """A list, a map or a record that contains itself is refused instead of walked for ever."""
    loop: list[Any] = [1]
    loop.append(loop)
    assert fails({"a": loop}).field == "value.a[1] <cycle>"
    ring: dict[str, Any] = {}
    ring["next"] = {"back": [ring]}
    assert fails(ring).field == "value.next.back[0] <cycle>"
    point = Point()
    point.x_pos = point
    assert fails(point).field == "value.XPos <cycle>"


def test_the_same_value_twice_is_no_cycle() -> None:
    """Sharing is fine as long as nothing contains itself."""
    shared = {"x": [None]}
    value = [shared, shared, {"again": shared}]
    assert codec.to_plain(value) == [{"x": [None]}] * 2 + [{"again": {"x": [None]}}]
    codec.validate_encodable(value, "value")


def test_a_value_nested_without_end_is_refused() -> None:
    """Depth beyond what Python can walk is an error of ours, not a crash."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in str(fails(deep))
    with pytest.raises(UnserializableError, match="nested too deeply"):
        codec.encode(deep)


def test_the_stored_form_spells_other_keys_as_text() -> None:
    """Numbers and ids may be keys there, whether or not a null is near; in the canonical form only strings may."""
    key = uuid.UUID(int=1)
    assert codec.encode({1: 2, 1.5: None}) == b'{"1":2,"1.5":null}'
    assert codec.encode([{key: 1}, None]) == f'[{{"{key}":1}},null]'.encode()
    for encode in (codec.encode_canonical, codec.encode_text):
        for value in ({1: 2}, {1: None}):
            with pytest.raises(UnserializableError, match="key 1 is not a string"):
                encode(value)


def test_a_key_that_nothing_can_spell_is_refused_everywhere() -> None:
    """A tuple is no key; among several faults the first in document order is the one that is named."""
    with pytest.raises(UnserializableError) as caught:
        codec.encode({1: {"a": {(1, 2): 3}}, "b": object()})
    assert caught.value.field == "value.1.a <non-string-map-key>"
    with pytest.raises(UnserializableError) as caught:
        codec.encode({1: [object()]})
    assert caught.value.field == "value.1[0]"


@given(json_values, st.sampled_from([NAN, INF, -INF, -NAN]), st.booleans())
def test_no_infinity_and_no_nan_ever_becomes_null(value: Any, bad: float, is_large: bool) -> None:
    """Wherever it hides, next to whatever else, it is found: the encoder alone would write null."""
    holder = {"before": [value, None], "bad": {"deep": [value, bad]}, "after": 2**80 if is_large else value}
    for encode in (codec.encode, codec.encode_canonical, codec.encode_text, codec.to_plain):
        with pytest.raises(UnserializableError) as caught:
            encode(holder)
        assert caught.value.field == "value.bad.deep[1]"


@given(st.binary(), st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_finite_numbers_beside_a_null_are_fine(data: bytes, numbers: list[float]) -> None:
    """What looks like a NaN in binary data is none, and the largest floats are finite."""
    plain = codec.to_plain([None, data, b"\xcb\x7f\xf8", numbers, 1.7976931348623157e308])
    assert plain[3] == numbers
    assert all(math.isfinite(number) for number in plain[3])


def test_an_object_whose_own_form_fails_is_named() -> None:
    """What its method raises is the reason, and the error names the place."""

    class Broken:
        def to_json(self) -> Any:
            raise RuntimeError("no form today")

    with pytest.raises(UnserializableError, match=r"value\.a: no form today") as caught:
        codec.encode({"a": Broken()})
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_object_that_is_its_own_form_does_not_hang() -> None:
    """A form that leads back to the object ends in an error."""

    class Mirror:
        def to_json(self) -> Any:
            return self

    assert "cycle" in fails(Mirror()).field


def test_decoding_checks_the_shape() -> None:
    """A type is checked with a path, and text that is no JSON is refused."""
    assert codec.decode(b'{"XPos":1}', Point) == Point(1)
    assert codec.decode('{"a":1}') == {"a": 1}
    with pytest.raises(msgspec.ValidationError, match=r"\$\.RunID"):
        codec.decode(b'{"RunID":1}', Quadruple)
    with pytest.raises(msgspec.DecodeError):
        codec.decode(b"{")


def test_an_own_form_may_be_a_class_attribute_without_being_called_on_the_class() -> None:
    """A class is no value, even when its instances have a form."""
    for kind in (Model, Speaks):
        with pytest.raises(UnserializableError, match=r"value\.a"):
            codec.encode({"a": kind})
