"""Schemas are bent to a provider's wishes node by node, and the original stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import InvalidConfigError, InvalidJSONSchemaError, SchemaSanitising
from harborage.llm.chain.sanitise import sanitised

STRICT = SchemaSanitising.OPENAI_STRICT
OPEN = SchemaSanitising.PERMISSIVE
CLOSED = {"type": "object", "additionalProperties": False, "strict": True}


def strict(schema) -> dict:
    """The schema after `openai_strict`."""
    return json.loads(sanitised(json.dumps(schema).encode(), STRICT))


def permissive(schema) -> dict:
    """The schema after `permissive`."""
    return json.loads(sanitised(json.dumps(schema).encode(), OPEN))


def test_strict_closes_objects():
    """A node of the type object gets both marks; other nodes get none."""
    assert strict({"type": "object"}) == CLOSED
    assert strict({"type": "string"}) == {"type": "string"}
    assert strict({"type": ["object", "null"]}) == {"type": ["object", "null"]}
    assert strict({}) == {}


def test_strict_keeps_what_was_said():
    """An explicit mark stays, whatever it is."""
    said = {"type": "object", "additionalProperties": True, "strict": False}
    assert strict(said) == said


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"properties": {"a": inner, "b": inner}},
        lambda inner: {"additionalProperties": inner},
        lambda inner: {"items": inner},
        lambda inner: {"items": [inner, inner]},
        lambda inner: {"definitions": {"a": inner}},
        lambda inner: {"$defs": {"a": inner}},
        lambda inner: {"allOf": [inner]},
        lambda inner: {"anyOf": [inner, inner]},
        lambda inner: {"oneOf": [inner]},
        lambda inner: {"not": inner},
        lambda inner: {"properties": {"a": {"items": {"anyOf": [inner]}}}},
    ],
)
def test_every_place_where_a_schema_can_stand(wrap):
    """The walk reaches the schemas inside, at any depth."""
    assert strict(wrap({"type": "object"})) == wrap(CLOSED)
    assert permissive(wrap(CLOSED)) == permissive(wrap({"type": "object"}))


def test_what_is_no_schema_is_left_alone():
    """Defaults, examples and enums are data, also when they look like schemas."""
    schema = {"enum": [{"type": "object"}], "default": {"type": "object"}, "const": {"type": "object"}}
    assert strict(schema) == schema


def test_permissive_takes_both_marks_away():
    """Neither mark is left anywhere, explicit ones included."""
    schema = {**CLOSED, "properties": {"a": {**CLOSED, "additionalProperties": {"type": "string"}}}}
    assert permissive(schema) == {"type": "object", "properties": {"a": {"type": "object"}}}


def test_a_property_may_have_the_name_of_a_mark():
    """A property called `strict` is a property."""
    schema = {"type": "object", "properties": {"strict": {"type": "boolean"}}}
    assert permissive(schema) == schema


def test_no_policy():
    """Without a policy the same bytes come back, readable or not."""
    schema = b"{ not json"
    assert sanitised(schema, SchemaSanitising.UNSET) is schema


@pytest.mark.parametrize("broken", [b"{", b"", b"\xff", b"[" * 100_000])
def test_what_cannot_be_read(broken):
    """A schema that is no JSON is an error that starts a downgrade."""
    with pytest.raises(InvalidJSONSchemaError):
        sanitised(broken, STRICT)


def test_an_unknown_policy():
    """The error names the policies there are."""
    with pytest.raises(InvalidConfigError, match="openai_strict"):
        sanitised(b"{}", "lenient")


_NAMES = st.sampled_from(["a", "b", "type", "properties", "strict"])


def _schemas() -> st.SearchStrategy:
    leaf = st.one_of(
        st.booleans(),
        st.fixed_dictionaries({}, optional={"type": st.sampled_from(["object", "string", "array"])}),
    )
    return st.recursive(
        leaf,
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["object", "array"]),
                "properties": st.dictionaries(_NAMES, inner, max_size=3),
                "additionalProperties": inner,
                "items": st.one_of(inner, st.lists(inner, max_size=2)),
                "$defs": st.dictionaries(_NAMES, inner, max_size=2),
                "anyOf": st.lists(inner, max_size=2),
                "not": inner,
                "strict": st.booleans(),
            },
        ),
        max_leaves=8,
    )


@given(_schemas(), st.sampled_from([STRICT, OPEN]))
def test_twice_is_once(schema, policy):
    """Sanitising what is sanitised changes nothing, and the input bytes are what they were."""
    given_bytes = json.dumps(schema).encode()
    before = bytes(given_bytes)
    once = sanitised(given_bytes, policy)
    assert sanitised(once, policy) == once
    assert given_bytes == before


@given(_schemas())
def test_strict_only_adds(schema):
    """Nothing that was in a schema is lost or changed by closing it."""

    def covers(old, new) -> bool:
        if isinstance(old, dict):
            return isinstance(new, dict) and all(key in new and covers(value, new[key]) for key, value in old.items())
        if isinstance(old, list):
            return len(old) == len(new) and all(map(covers, old, new))
        return old == new

    assert covers(schema, json.loads(sanitised(json.dumps(schema).encode(), STRICT)))
