"""The bounds of a pause's payload."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harborage.planner.conformance import payload_depth, payload_keys
from tests.kit.tables import each_row

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@each_row(
    "value, depth, keys",
    [
        (1, 0, 0),
        ("text", 0, 0),
        (None, 0, 0),
        ({}, 1, 0),
        ([], 1, 0),
        ({"a": 1}, 1, 1),
        ({"a": {}}, 2, 1),
        ({"a": {"b": 1}, "c": 2}, 2, 3),
        ({"a": [1]}, 2, 1),
        ({"a": [{"b": {}}, {"c": 1}]}, 4, 3),
        ({"a": ({},)}, 3, 1),
    ],
)
def test_what_is_counted(value, depth, keys):
    """A scalar has no depth, an empty dict one; a list is a level like a dict; nested keys count."""
    assert payload_depth(value) == depth
    assert payload_keys(value) == keys


def test_an_endless_payload_ends():
    """A payload that holds itself is counted to the guard and no further."""
    endless = {}
    endless["self"] = endless
    assert payload_depth(endless) == 32
    assert payload_keys(endless) == 32


@given(JSON)
def test_one_more_level(value):
    """Wrapping a value in a dict adds one level and one key."""
    assert payload_depth({"k": value}) == payload_depth(value) + 1
    assert payload_keys({"k": value}) == payload_keys(value) + 1
