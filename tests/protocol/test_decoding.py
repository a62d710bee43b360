"""Bodies are read once, and whatever is wrong with one is refused before anything is done."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.protocol.decoding import MAX_DEPTH, parse_body, read_request
from harborage.protocol.errors import Code, ProtocolError


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a request."""

    since: datetime | None = None
    names: list[str] = []


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    filter: Filter = Filter()
    filters: list[Filter] = []
    page: int = 0
    free: dict[str, Any] = {}


def refused(call: Any) -> ProtocolError:
    """The refusal that a call ends with."""
    with pytest.raises(ProtocolError) as caught:
        call()
    assert caught.value.code is Code.INVALID_REQUEST
    return caught.value


MALFORMED = {
    "no JSON": b"{",
    "no object": b"[1]",
    "a text": b'"x"',
    "nothing": b"",
    "more than one": b'{"a":1} {"b":2}',
    "not UTF-8": b'{"a":"\xff"}',
    "half a pair": b'{"a":"\\ud800"}',
    "half a pair in a key": b'{"\\udc00":1}',
    "NaN": b'{"a":NaN}',
    "infinite": b'{"a":1e999}',
    "too large": b'{"a":18446744073709551616}',
    "too small": b'{"a":-9223372036854775809}',
    "deep": b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    "deeper": b'{"a":' * 50_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_refused(body: bytes) -> None:
    """No form of it is a failure of the server, and nothing of it is quoted."""
    error = refused(lambda: parse_body(body))
    assert "invalid request" in str(error)
    assert "1844" not in str(error)


def test_nesting_up_to_the_bound_is_read() -> None:
    """The object itself is the first level."""
    body = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert "a" in parse_body(body)


def test_a_key_that_is_sent_twice_has_one_value_for_all() -> None:
    """The last one counts, in every check."""
    assert parse_body(b'{"page":1,"page":2}') == {"page": 2}


def test_null_and_the_year_1_are_absent() -> None:
    """Clients of other languages send unset lists, objects and times so, at every depth."""
    body = {
        "filter": {"since": "0001-01-01T00:00:00Z", "names": None},
        "filters": [{"names": None}],
        "page": None,
        "free": None,
    }
    assert read_request(body, Asked, refuses_unknown_fields=True) == Asked(filters=[Filter()])


def test_what_a_free_object_holds_stays_as_it_is() -> None:
    """A null in it means something to the receiver."""
    body = {"free": {"a": None, "at": "0001-01-01T00:00:00Z"}}
    assert read_request(body, Asked, refuses_unknown_fields=True).free == body["free"]


def test_a_time_is_read() -> None:
    """Any offset is understood."""
    asked = read_request({"filter": {"since": "2026-01-01T01:00:00+01:00"}}, Asked, refuses_unknown_fields=True)
    assert asked.filter.since == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("body", [{"what": 1}, {"filter": {"what": 1}}, {"filters": [{"what": 1}]}])
def test_an_unknown_field_is_refused_where_the_family_says_so(body: dict[str, Any]) -> None:
    """At every depth; other families ignore it."""
    error = refused(lambda: read_request(body, Asked, refuses_unknown_fields=True))
    assert "unknown field at $" in str(error)
    read_request(body, Asked, refuses_unknown_fields=False)


@pytest.mark.parametrize(
    "body", [{"page": "hush"}, {"page": 1.5}, {"filter": "hush"}, {"filter": {"names": ["a", 1]}}, {"free": []}]
)
def test_a_wrong_type_is_named_by_its_path_and_not_quoted(body: dict[str, Any]) -> None:
    """The sender learns where, a reader of the answer nothing of what."""
    error = refused(lambda: read_request(body, Asked, refuses_unknown_fields=False))
    assert "$." in str(error)
    assert "hush" not in str(error)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_is_a_failure_of_the_server(body: bytes) -> None:
    """Whatever arrives is a request or a refusal."""
    with suppress(ProtocolError):
        read_request(parse_body(body), Asked, refuses_unknown_fields=True)
