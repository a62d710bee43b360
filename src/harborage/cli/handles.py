"""The short names of runs, the last six characters of an id, and what a person may type for one. Pure.

The end of an id is random. It begins with the time, so the beginnings of runs that were started together are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

LENGTH: Final = 6
_LONGER: Final = 2
_WHOLE: Final = 26
_LEAST_SIMILAR: Final = 0.75
# Letters that the alphabet of ids does not have, and what a person who typed one has read.
_READ_AS: Final = str.maketrans({"I": "1", "L": "1", "O": "0"})

LAST: Final = "last"
"""What a person types for the newest run."""


class Place(NamedTuple):
    """What a person typed for a run, and the step in it; `step` is "" for the run as a whole."""

    run: str
    step: str = ""


def parse_place(text: str) -> Place:
    """Parse `RUN` or `RUN/STEP`."""
    run, slash, step = text.strip().rpartition("/")
    return Place(run, step) if slash else Place(step)


def handles(ids: Iterable[str]) -> dict[str, str]:
    """Return the handle of each id: its last six characters, two more for as long as another id has the same ones."""
    found: dict[str, str] = {}
    rest, length = list(dict.fromkeys(ids)), LENGTH
    while rest:
        counts = Counter(one[-length:] for one in rest)
        found |= {one: one[-length:] for one in rest if counts[one[-length:]] == 1 or length >= len(one)}
        rest = [one for one in rest if one not in found]
        length += _LONGER
    return found


def as_read(typed: str) -> str:
    """Return what was typed in the alphabet of ids: capitals, `0` for O, `1` for I and L."""
    return typed.upper().translate(_READ_AS) if typed.isascii() and typed.isalnum() and len(typed) <= _WHOLE else typed


def similar(typed: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the handles that differ little from what was typed, the nearest first."""
    return get_close_matches(as_read(typed), list(known), n=3, cutoff=_LEAST_SIMILAR)
