"""The first message: what the user attached, as parts."""

from __future__ import annotations

import base64

import pytest

from harborage.llm import ArtifactStub, AudioPart, Content, FetchHint, FilePart, ImagePart, TextPart
from harborage.planner import InputArtifactView, materialize_input_content
from harborage.tools import Tool
from tables import each_row


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


@pytest.mark.parametrize(
    ("size", "filename", "mime", "summary"),
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


@pytest.mark.parametrize("catalog", [None, Catalog(), Catalog(Tool(name="any", handles_mime=("*/*",)))])
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
