"""A record is read whole, and says what is wrong with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harborage.runtime.durable.journal import JournalCorruptError
from harborage.runtime.history.reading import Place, exchanges_in, open_record, place_of
from tests.kit.tables import each_row


def test_a_record_opens_with_what_was_asked_for(writing: Any) -> None:
    """The request and the run's id come from the first entry."""
    opened = open_record(writing("count", max_steps=3).patched("x").record)
    assert (opened.run_id, opened.request.goal, opened.request.max_steps) == ("run-1", "count", 3)
    assert len(opened.entries) == 2


def test_a_damaged_entry_is_named(writing: Any) -> None:
    """By run and number."""
    with pytest.raises(JournalCorruptError, match="run run-1, entry 1"):
        open_record([*writing().record, b"{"])


def test_what_does_not_begin_is_no_record(writing: Any) -> None:
    """Neither nothing, nor what has lost its first entry."""
    with pytest.raises(JournalCorruptError, match="there is no record"):
        open_record([])
    with pytest.raises(JournalCorruptError, match="begins with `started`, not Patched"):
        open_record(writing().patched("x").record[1:])


@each_row(
    "position, place",
    [("7", Place(0, 7)), ("7.0.1", Place(0, 7, 0)), ("2~7", Place(2, 7)), ("2~7.3.12", Place(2, 7, 3))],
)
def test_a_position_says_where(position: str, place: Place) -> None:
    """After how many rollovers, at which question, in which branch."""
    assert place_of(position) == place


@each_row("position", ["", "x", "1.x.2", "x~1"])
def test_what_is_no_position_is_an_error(position: str) -> None:
    """Rather than somewhere."""
    with pytest.raises(JournalCorruptError, match="is no position"):
        place_of(position)


def test_model_calls_that_cannot_be_read_are_an_error() -> None:
    """The text says where; a step without any has none."""
    assert exchanges_in(None, "here") == []
    with pytest.raises(JournalCorruptError, match="here: "):
        exchanges_in(msgspec.Raw(b'[{"asked":1}]'), "here")
