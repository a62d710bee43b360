"""Ids are ULIDs, and an error without a message says what its class is for."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from harborage.errors import HarborageError, first_sentence
from harborage.ids import made_at, new_id, ulid


def test_an_id_is_a_ulid() -> None:
    """Twenty-six characters of Crockford's base32."""
    assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", new_id())


def test_a_ulid_spells_its_time_and_its_chance() -> None:
    """The published example, both ends of the range, and each time and chance spelled apart from its neighbours."""
    assert ulid(1_469_918_176_385, bytes(10)) == "01ARYZ6S410000000000000000"
    assert ulid(0, bytes(10)) == "0" * 26
    assert ulid(2**48 - 1, b"\xff" * 10) == "7" + "Z" * 25
    assert ulid(1, bytes(9) + b"\x21") == "00000000010000000000000011"


def test_an_id_says_when_it_was_made() -> None:
    """To the millisecond; any other text says nothing."""
    moment = datetime(2026, 11, 28, 3, 14, 15, 926_000, tzinfo=UTC)
    at_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert made_at(ulid(at_ms, bytes(10))) == moment
    assert made_at(ulid(0, bytes(10))) == datetime(1970, 1, 1, tzinfo=UTC)
    for text in ("", "short", "U" * 26, "8" + "0" * 25, ulid(2**48 - 1, bytes(10))):
        assert made_at(text) is None


def test_ids_are_unique() -> None:
    """Ten thousand made at once are ten thousand."""
    assert len({new_id() for _ in range(10_000)}) == 10_000


def test_ids_sort_by_the_time_they_were_made() -> None:
    """The first ten characters are the millisecond, so a later one never sorts before an earlier one's."""
    ids = [new_id()[:10] for _ in range(1_000)]
    assert ids == sorted(ids)


class LampError(HarborageError):
    """The lamp is out; light it again.

    More about lamps.
    """


class QuietError(LampError):
    pass


def test_an_error_without_a_message_says_its_docstring() -> None:
    """The first line, without the full stop."""
    assert str(LampError()) == "The lamp is out; light it again"
    assert str(LampError("the wick is wet")) == "the wick is wet"
    assert str(HarborageError()) == "Something in Harborage went wrong"


def test_an_error_class_without_a_docstring_says_its_parents() -> None:
    """A docstring is inherited; where there is none at all the name has to do."""
    assert str(QuietError()) == "The lamp is out; light it again"

    class Bare:
        pass

    assert first_sentence(Bare) == "Bare"


def test_one_root_catches_everything() -> None:
    """Every error of the package is a HarborageError."""
    with pytest.raises(HarborageError):
        raise QuietError
