"""The list of a session's artifacts, newest first."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from harborage.artifacts import ArtifactRef, ArtifactScope
from harborage.planner import ArtifactManifestEntry, build_artifact_manifest, resolve_provenance
from tables import each_row

SCOPE = ArtifactScope("t", "u", "s")


def ref(id: str, created_at: object = None, **source: object) -> ArtifactRef:
    """An artifact that says it was made then."""
    origin = dict(source) if created_at is None else {**source, "created_at": created_at}
    return ArtifactRef(id, "text/plain", 3, f"{id}.txt", "00", SCOPE, "default", origin)


def order(*refs: ArtifactRef) -> list[str]:
    """The ids in manifest order."""
    return [entry.ref for entry in build_artifact_manifest(refs)]


def test_no_artifacts_no_manifest():
    """An empty session has no manifest at all."""
    assert build_artifact_manifest([]) is None
    assert build_artifact_manifest(iter(())) is None


def test_an_entry_is_metadata():
    """An entry says what the artifact is and where it came from, without its bytes."""
    assert build_artifact_manifest([ref("a", tool="search")]) == [
        ArtifactManifestEntry(ref="a", filename="a.txt", mime="text/plain", size_bytes=3, provenance="tool: search")
    ]


def test_newest_first_across_spellings():
    """Datetimes, RFC 3339 text and Unix seconds are compared as times, whatever their zone."""
    assert order(
        ref("seconds", 1_767_225_600),
        ref("text", "2026-01-01T00:00:03Z"),
        ref("zone", "2026-01-01T02:00:02+02:00"),
        ref("datetime", datetime(2026, 1, 1, 0, 0, 4, tzinfo=UTC)),
        ref("float", 1_767_225_601.5),
        ref("naive", datetime(2026, 1, 1, 0, 0, 5)),
        ref("western", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-1)))),
    ) == ["western", "naive", "datetime", "text", "zone", "float", "seconds"]


def test_nanoseconds_count():
    """Text that differs in its nanoseconds is still ordered."""
    assert order(
        ref("c", "2026-01-01T00:00:00.123456001Z"),
        ref("a", "2026-01-01T00:00:00.123456002Z"),
        ref("b", "2026-01-01T00:00:00.1234560021Z"),
        ref("d", "2026-01-01t00:00:00z"),
    ) == ["a", "b", "c", "d"]


WORDS = [None, "", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "2026-01-01T00:00:61Z"]
OTHER = [True, [], {}, b"x", float("nan"), float("inf"), -(10.0**300), -(10**400)]


@each_row("unreadable", [*WORDS, *OTHER], ids=str)
def test_what_is_unreadable_is_oldest(unreadable):
    """A time that is missing or unreadable comes after every other, even the oldest."""
    assert order(ref("a", unreadable), ref("b", -60_000_000_000), ref("c", 0)) == ["c", "b", "a"]


def test_ties_go_by_id():
    """Equal times, and equally unreadable ones, are ordered by id."""
    assert order(ref("b", 5), ref("a", "1970-01-01T00:00:05Z"), ref("d"), ref("c", "?")) == ["a", "b", "c", "d"]


@given(st.lists(st.integers(0, 5), max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_the_listing_does_not_matter(times, dice: random.Random):
    """However a store lists them, the manifest is the same, and whole."""
    refs = [ref(f"a-{number}", moment) for number, moment in enumerate(times)]
    expected = build_artifact_manifest(refs)
    dice.shuffle(refs)
    assert build_artifact_manifest(refs) == expected
    assert len(expected or []) == len(times)


@each_row(
    "source, provenance",
    [
        ({"source": "user_upload", "tool": "t"}, "user_upload"),
        ({"source": "", "tool": "t"}, "tool: t"),
        ({"source": 7, "tool": "t", "flow": "f"}, "tool: t"),
        ({"tool": None, "flow": "f", "producer": "p"}, "flow: f"),
        ({"flow": ["f"], "producer": "p"}, "p"),
        ({"producer": 1}, "unknown"),
        ({"other": "x"}, "unknown"),
        ({}, "unknown"),
        (None, "unknown"),
    ],
)
def test_provenance(source, provenance):
    """The first text among source, tool, flow and producer says where an artifact came from."""
    assert resolve_provenance(source) == provenance
