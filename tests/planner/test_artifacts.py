"""Artifacts in a prompt: the session's list, and the user's attachments."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.artifacts import ArtifactRef, ArtifactScope
from harborage.llm import ArtifactStub, AudioPart, Content, FetchHint, FilePart, ImagePart, TextPart
from harborage.planner import (
    ArtifactManifestEntry,
    InputArtifactView,
    build_artifact_manifest,
    materialize_input_content,
    resolve_provenance,
)
from harborage.tools import Tool
from tests.kit.tables import each_row

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


class Catalog:
    """The tools given, in the order given."""

    def __init__(self, *tools):
        self.tools = tools

    def resolve(self, name):
        """The tool of that name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def list(self):
        """All tools."""
        return list(self.tools)


CATALOG = Catalog(
    Tool(name="any", handles_mime=("*/*",)),
    Tool(name="transcribe", handles_mime=("audio/*",)),
    Tool(name="listen", handles_mime=("audio/mpeg",)),
    Tool(name="table", handles_mime=("text/csv", "application/pdf")),
)


def parts(*artifacts: InputArtifactView, goal: str = "goal", catalog: object = CATALOG) -> tuple:
    """The parts of the content for these artifacts."""
    return materialize_input_content(goal, artifacts, catalog).parts


@pytest.mark.parametrize("goal", ["what is this?", ""])
def test_without_artifacts_it_is_plain_text(goal):
    """Nothing attached leaves the text as it is."""
    assert materialize_input_content(goal, [], CATALOG) == Content(text=goal)


def test_an_image_goes_inline():
    """A picture with its bytes becomes a data URL, without a stub."""
    _, part = parts(InputArtifactView(id="i", mime="image/png", size_bytes=2, filename="p.png", bytes=b"\x00\xff"))
    assert part == ImagePart(data_url="data:image/png;base64,AP8=", mime="image/png")
    assert base64.b64decode(part.data_url.split(",")[1]) == b"\x00\xff"


def test_a_pdf_goes_by_reference():
    """A PDF is a file part with a stub, its type and its name, even when its bytes are there."""
    _, part = parts(InputArtifactView(id="d", mime="application/pdf", size_bytes=9, filename="a.pdf", bytes=b"%PDF"))
    stub = ArtifactStub("d", "application/pdf", 9, "", "application/pdf 9 bytes (a.pdf)", FetchHint("table", "d"))
    assert part == FilePart(artifact=stub, mime="application/pdf", filename="a.pdf")


def test_audio_goes_by_reference():
    """A recording is an audio part with a stub that names the first tool that handles it."""
    _, part = parts(InputArtifactView(id="a", mime="audio/mpeg", size_bytes=5))
    stub = ArtifactStub("a", "audio/mpeg", 5, "", "audio/mpeg 5 bytes", FetchHint("transcribe", "a"))
    assert part == AudioPart(artifact=stub, mime="audio/mpeg")


@each_row("mime", ["text/csv", "video/mp4", "image/png", "IMAGE/PNG", "application/pdfx", ""])
def test_everything_else_is_a_described_stub(mime):
    """Other types, and an image without bytes, are a line that names the file and the stub as JSON."""
    _, part = parts(InputArtifactView(id="x", mime=mime, size_bytes=3, filename="f.bin"))
    assert isinstance(part, TextPart)
    header, stub = part.text.split("\n")
    assert "f.bin" in header
    fetch = FetchHint("table", "x") if mime == "text/csv" else None
    assert stub == ArtifactStub("x", mime, 3, "", f"{mime or 'artifact'} 3 bytes (f.bin)", fetch).text()


def test_a_nameless_file_is_not_named():
    """Without a file name the header names none."""
    _, part = parts(InputArtifactView(id="x", mime="text/csv"))
    assert part.text.split("\n")[0] == "Attached file:"


@each_row(
    "size, filename, mime, summary",
    [
        (0, "", "", "artifact"),
        (0, "", "text/csv", "text/csv"),
        (7, "", "text/csv", "text/csv 7 bytes"),
        (0, "f", "", "artifact (f)"),
        (7, "f", "audio/x", "audio/x 7 bytes (f)"),
    ],
)
def test_the_summary_says_what_is_known(size, filename, mime, summary):
    """A stub's summary has the type, the size when there is one, and the name in brackets."""
    (part,) = parts(InputArtifactView(id="x", mime=mime, size_bytes=size, filename=filename), goal="", catalog=None)
    text = part.text if isinstance(part, TextPart) else part.artifact.text()
    assert f'"summary":"{summary}"' in text


@each_row("catalog", [None, Catalog(), Catalog(Tool(name="any", handles_mime=("*/*",)))])
def test_no_directions_without_a_match(catalog):
    """Without a catalog, without tools or without a match a stub has no directions; `*/*` matches nothing."""
    _, part = parts(InputArtifactView(id="a", mime="audio/mpeg"), catalog=catalog)
    assert part.artifact.fetch is None


def test_no_directions_without_a_type():
    """An artifact of unknown type matches no tool."""
    _, part = parts(InputArtifactView(id="a"))
    assert '"fetch"' not in part.text


def test_order_and_goal():
    """The goal comes first unless it is empty, then the artifacts in their order."""
    views = [InputArtifactView(id=name, mime="audio/x") for name in "ba"]
    first, *rest = parts(*views)
    assert first == TextPart("goal")
    assert [part.artifact.ref for part in rest] == ["b", "a"]
    assert [part.artifact.ref for part in parts(*views, goal="")] == ["b", "a"]


def test_it_is_pure():
    """The same views give the same content, and are left as they were."""
    view = InputArtifactView(id="i", mime="image/png", bytes=b"x")
    assert parts(view) == parts(view)
    assert view == InputArtifactView(id="i", mime="image/png", bytes=b"x")
