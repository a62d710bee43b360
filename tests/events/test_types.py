"""The table of event types: what is built in, and what a product may add."""

from __future__ import annotations

import pytest

from harborage.events import EventType, event_types, is_valid_event_type, register_event_type
from harborage.events.types import EventTypes


def test_there_are_105_built_in_types() -> None:
    """Every type of the catalogue is a member."""
    assert len(EventType) == 105


def test_members_are_named_after_their_wire_string() -> None:
    """A member's name is its string in upper case with underscores for dots."""
    assert all(member.name == member.value.upper().replace(".", "_") for member in EventType)


def test_wire_strings_are_lower_case_and_dotted() -> None:
    """A type on the wire is lower case and has at least one dot."""
    assert all(member.value == member.value.lower() and "." in member.value for member in EventType)


def test_every_built_in_type_is_valid() -> None:
    """Built-in types may be published without registering them."""
    assert all(is_valid_event_type(member) for member in EventType)


def test_types_are_listed_in_order() -> None:
    """The list of registered types is sorted and holds every built-in one."""
    names = event_types()
    assert names == sorted(names)
    assert set(EventType) <= set(names)


def test_a_product_registers_its_own_types() -> None:
    """An unknown name becomes valid once it is registered; registering it again does nothing."""
    name = "test_types.order.shipped"
    assert not is_valid_event_type(name)
    register_event_type(name)
    register_event_type(name)
    assert is_valid_event_type(name)
    assert event_types().count(name) == 1


def test_an_empty_name_is_refused() -> None:
    """An event type without a name is a programming error."""
    with pytest.raises(ValueError, match="needs a name"):
        register_event_type("")


def test_tables_are_apart() -> None:
    """A name registered in one table is unknown to another."""
    one, other = EventTypes(), EventTypes(["a.b"])
    one.register("c.d")
    assert "c.d" in one
    assert "c.d" not in other
    assert other.names() == ["a.b"]
