"""The bounds of a control's payload."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.runtime.loop.payload import body_for
from harborage.runtime.steering import (
    MAX_PAYLOAD_DEPTH,
    MAX_PAYLOAD_KEYS,
    MAX_PAYLOAD_LIST_ITEMS,
    MAX_PAYLOAD_STRING_LEN,
    MAX_PAYLOAD_TOTAL_BYTES,
    PayloadInvalidError,
    SteeringError,
    UnsupportedPayloadValueError,
    validate_payload,
)
from tests.kit.tables import each_row


def nested(levels: int, leaf: Any = 1) -> dict[str, Any]:
    """A dict of `levels` levels."""
    value: dict[str, Any] = {"x": leaf}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


def sized(total: int) -> dict[str, Any]:
    """A payload whose canonical JSON takes exactly `total` bytes, within all other bounds."""
    value: dict[str, Any] = {"x": ["a" * 4096] * 3}
    missing = total - len(json.dumps(value, separators=(",", ":")))
    value["y" * (missing - len(',"":1'))] = 1
    assert len(json.dumps(value, separators=(",", ":"))) == total
    return value


def test_the_bounds_are_these() -> None:
    """The published constants."""
    assert (
        MAX_PAYLOAD_DEPTH,
        MAX_PAYLOAD_KEYS,
        MAX_PAYLOAD_LIST_ITEMS,
        MAX_PAYLOAD_STRING_LEN,
        MAX_PAYLOAD_TOTAL_BYTES,
    ) == (6, 64, 50, 4096, 16384)


@each_row(
    "payload",
    [
        pytest.param(None, id="none"),
        pytest.param({}, id="empty"),
        pytest.param({"a": None, "b": True, "c": 1, "d": 1.5, "e": "x", "f": [], "g": {}}, id="every kind"),
        pytest.param(nested(6), id="six levels"),
        pytest.param({"x": [[[[[1]]]]]}, id="six levels of lists"),
        pytest.param({str(n): n for n in range(64)}, id="64 keys"),
        pytest.param({"a": {str(n): n for n in range(64)}, "b": {str(n): n for n in range(64)}}, id="64 keys twice"),
        pytest.param({"x": list(range(50))}, id="50 items"),
        pytest.param({"x": "a" * 4096}, id="4096 characters"),
        pytest.param({"x": "é" * 4096}, id="4096 characters of two bytes"),
        pytest.param({"k" * 5000: 1}, id="a long key"),
        pytest.param(sized(16384), id="16384 bytes"),
        pytest.param({"x": 2**70}, id="a large number"),
    ],
)
def test_a_payload_within_its_bounds_is_accepted(payload: dict[str, Any] | None) -> None:
    """Every bound is inclusive, and a payload is left exactly as it was."""
    before = copy.deepcopy(payload)
    validate_payload(payload)
    assert payload == before


@each_row(
    "payload, bound, limit, actual",
    [
        pytest.param(nested(7), "depth", 6, 7, id="seven levels"),
        pytest.param(nested(6, leaf=[]), "depth", 6, 7, id="an empty list at level seven"),
        pytest.param(nested(6, leaf={}), "depth", 6, 7, id="an empty dict at level seven"),
        pytest.param({str(n): n for n in range(65)}, "keys", 64, 65, id="65 keys"),
        pytest.param({"x": [{str(n): n for n in range(65)}]}, "keys", 64, 65, id="65 keys inside"),
        pytest.param({"x": list(range(51))}, "items", 50, 51, id="51 items"),
        pytest.param({"x": [[0] * 51]}, "items", 50, 51, id="51 items inside"),
        pytest.param({"x": "a" * 4097}, "string", 4096, 4097, id="4097 characters"),
        pytest.param({"x": ["a" * 4097]}, "string", 4096, 4097, id="4097 characters inside"),
        pytest.param(sized(16385), "total", 16384, 16385, id="16385 bytes"),
    ],
)
def test_one_step_past_a_bound_is_refused(payload: dict[str, Any], bound: str, limit: int, actual: int) -> None:
    """The error names the bound that is broken and its numbers, and the payload is left as it was."""
    before = copy.deepcopy(payload)
    with pytest.raises(PayloadInvalidError) as caught:
        validate_payload(payload)
    assert (caught.value.bound, caught.value.limit, caught.value.actual) == (bound, limit, actual)
    assert str(limit) in str(caught.value)
    assert payload == before


@each_row("mark", ["<", ">", "&", "\u2028", "\u2029"])
def test_escaped_characters_count_six_bytes(mark: str) -> None:
    """The total is that of the canonical form, in which these five are written as `\\uXXXX`."""
    room = MAX_PAYLOAD_TOTAL_BYTES - len('{"x":""}')
    validate_payload({"x": mark * (room // 6)})
    with pytest.raises(PayloadInvalidError) as caught:
        validate_payload({"x": mark * (room // 6 + 1)})
    assert caught.value.bound == "total"


def test_the_total_is_checked_before_the_structure() -> None:
    """A payload that is too large and too deep is too large."""
    with pytest.raises(PayloadInvalidError) as caught:
        validate_payload(nested(9, leaf="a" * 20000))
    assert caught.value.bound == "total"


class Custom:
    """A value without a JSON form."""


class Convertible:
    """Something that JSON could hold, which a control still may not."""

    def to_json(self) -> str:
        return "x"


def cyclic() -> dict[str, Any]:
    """A dict that contains itself."""
    value: dict[str, Any] = {}
    value["x"] = [value]
    return value


@each_row(
    "payload",
    [
        pytest.param({"x": {1, 2}}, id="set"),
        pytest.param({"x": b"raw"}, id="bytes"),
        pytest.param({"x": (1, 2)}, id="tuple"),
        pytest.param({"x": Custom()}, id="object"),
        pytest.param({"x": Convertible()}, id="object with a JSON form"),
        pytest.param({"x": 1j}, id="complex"),
        pytest.param({"x": print}, id="function"),
        pytest.param({"x": float("nan")}, id="nan"),
        pytest.param({"x": float("inf")}, id="infinity"),
        pytest.param({"x": {1: "a"}}, id="a key that is a number"),
        pytest.param({None: 1}, id="a key that is None"),
        pytest.param({"x": "\ud800"}, id="half a character"),
        pytest.param(cyclic(), id="itself"),
        pytest.param([], id="a list for a payload"),
        pytest.param("text", id="a string for a payload"),
    ],
)
def test_what_json_does_not_have_is_refused(payload: Any) -> None:
    """Only JSON's own kinds are accepted; nothing is converted."""
    with pytest.raises(UnsupportedPayloadValueError):
        validate_payload(payload)


def test_data_too_deep_to_encode_is_too_deep() -> None:
    """Nesting beyond the encoder's own stack is refused as a breach of the depth, not as a crash."""
    with pytest.raises(PayloadInvalidError) as caught:
        validate_payload(nested(20_000))
    assert caught.value.bound == "depth"


def test_errors_never_quote_the_payload() -> None:
    """Neither keys nor values of the caller are repeated in a message."""
    for payload in ({"s3cret": "s3cret" * 1000}, {"s3cret": {"s3cret"}}, {"s3cret": {1: "s3cret"}}):
        with pytest.raises(SteeringError) as caught:
            validate_payload(payload)  # type: ignore[arg-type]
        assert "s3cret" not in str(caught.value)


# A second, slow opinion: every breach in document order, by name; the first one decides.


def breaches(value: Any, containers: int = 0) -> Iterator[str]:
    """What a reader with the rules in hand would find wrong, in order."""
    if isinstance(value, dict | list):
        if containers + 1 > 6:
            yield "depth"
        if isinstance(value, dict) and len(value) > 64:
            yield "keys"
        if isinstance(value, list) and len(value) > 50:
            yield "items"
        inner = value.items() if isinstance(value, dict) else ((None, one) for one in value)
        for _, one in inner:
            yield from breaches(one, containers + 1)
    elif isinstance(value, str):
        if len(value) > 4096:
            yield "string"
    elif type(value) not in (bool, int, float, type(None)):
        yield "unsupported"


def escaped_size(payload: Any) -> int | None:
    """Bytes of the canonical form by the standard library, or None when it has none."""
    try:
        text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, default=list)
    except (TypeError, ValueError):
        return None
    return len(text.encode()) + sum(text.count(mark) * (6 - len(mark.encode())) for mark in "<>&\u2028\u2029")


def expected(payload: Any) -> str:
    """The verdict of the second opinion."""
    size = escaped_size(payload)
    if size is None:
        return "unsupported"
    if size > 16384:
        return "total"
    return next(breaches(payload), "ok")


def verdict(payload: Any) -> str:
    """The verdict of the code under test."""
    try:
        validate_payload(payload)
    except PayloadInvalidError as error:
        return error.bound
    except UnsupportedPayloadValueError:
        return "unsupported"
    return "ok"


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["<&>" * 4, "a" * 4096, "a" * 4097, "é" * 4096, "&" * 3000]),
    st.just((1, 2)),
)
keys = st.text(alphabet=st.characters(codec="utf-8"), max_size=4)
wide = st.one_of(
    st.integers(48, 53).map(lambda n: [0] * n),
    st.integers(62, 67).map(lambda n: {str(i): 0 for i in range(n)}),
)
values = st.recursive(
    leaves | wide, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


def wrapped(value: Any, levels: int) -> Any:
    """`value` inside `levels` more lists."""
    for _ in range(levels):
        value = [value]
    return value


@given(st.dictionaries(keys, st.builds(wrapped, values, st.integers(0, 5)), max_size=4))
def test_the_check_agrees_with_a_naive_reading_of_the_rules(payload: dict[str, Any]) -> None:
    """Whatever the payload, the verdict is that of a slow reference that reads it in document order."""
    assert verdict(payload) == expected(payload)


ASKED = {
    "tool": "refund",
    "args_summary": {"tool": "refund", "args": {"order": "7", "euros": 12, "to": {"city": "Lyon", "zip": "1"}}},
    "args_schema": {
        "type": "object",
        "properties": {"order": {"type": "string"}, "euros": {"type": "number"}, "to": {"type": "object"}},
        "required": ["order", "euros"],
        "additionalProperties": False,
    },
}


def test_args_that_name_some_change_these_alone() -> None:
    """Each gets the whole new value, and None takes one out; those that name all replace the arguments."""
    whole = {"order": "8", "euros": 50, "to": {}}
    assert body_for(ASKED, {"args": whole, "reason": "less"}) == {"args": whole, "reason": "less"}
    assert body_for(ASKED, {"args": {"euros": 50}}) == {"args_patch": {"euros": 50}}
    assert body_for(ASKED, {"args": {"to": {"city": "Nice"}}}) == {"args_patch": {"to": {"city": "Nice", "zip": None}}}
    assert body_for(ASKED, {"args": {"to": None}}) == {"args_patch": {"to": None}}
    assert body_for(None, {"args": {"euros": 50}}) == {"args": {"euros": 50}}
    assert body_for(ASKED, {"reason": "fine"}) == {"reason": "fine"}


@each_row("args", [{"euros": "much"}, {"eurs": 5}, {"order": "8", "euros": 50, "to": 5}])
def test_args_that_the_tool_does_not_take_are_refused(args: dict[str, Any]) -> None:
    """Before anything is sent; the text names the tool."""
    with pytest.raises(PayloadInvalidError, match=r"^approve: args: refund does not take these arguments: .*; nothing"):
        body_for(ASKED, {"args": args})
