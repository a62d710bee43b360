"""The ways in which providers ask for patience."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.llm.retry_after import retry_after
from tests.kit.tables import each_row

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@each_row(
    "headers, seconds",
    [
        ({}, None),
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": "0"}, 0.0),
        ({"RETRY-AFTER": " 1.5 "}, 1.5),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Fri, 20 Nov 2026 11:59:00 GMT"}, 0.0),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 GMT", "Date": "Fri, 20 Nov 2026 12:00:20 GMT"}, 10.0),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 -0000", "Date": "nonsense"}, 30.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "120ms"}, 1.0),
        ({"x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-remaining-requests": "5"}, None),
        (
            {
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-tokens": "7.66s",
                "x-ratelimit-remaining-tokens": "0",
            },
            7.66,
        ),
        ({"x-ratelimit-reset-tokens": "30"}, 30.0),
        ({"x-ratelimit-reset-tokens": "whenever"}, None),
        ({"retry-after": "3", "x-ratelimit-reset-tokens": "30"}, 3.0),
    ],
)
def test_the_wait_is_read_in_every_form(headers, seconds):
    """Seconds, milliseconds, dates and rate-limit resets become seconds; what nobody can read asks for nothing."""
    assert retry_after(headers, now=NOW) == (None if seconds is None else pytest.approx(seconds))


def test_without_a_date_the_clock_is_asked():
    """A date far in the past asks for no wait, whatever the time is."""
    assert retry_after({"Retry-After": "Mon, 01 Jan 2024 00:00:00 GMT"}) == 0.0
