"""Files on their way to a run: what they are, and what is refused before a model is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.app import (
    Agent,
    AttachmentError,
    attach,
    check_attachments,
    read_attachment,
    readable,
)
from harborage.app.attachments import MOST_BYTES, Attachment
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.identity import Identity
from harborage.llm import ConfigSnapshot, MissingAPIKeyError, ModelProfile
from harborage.planner import PlannerConfig
from harborage.planner.finish import FinishPlanner
from tests.kit.tables import each_row

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100
KEYS = {"OPENAI_API_KEY": "k"}


@each_row(
    "name, data, mime",
    [
        ("a.png", PNG, "image/png"),
        ("picture", PNG, "image/png"),
        ("a.jpg", PNG, "image/png"),
        ("a.txt", PNG, "image/png"),
        ("a.md", b"# Hello", "text/markdown"),
        ("a.csv", b"a,b", "text/csv"),
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("Makefile", b"all:\n", "text/plain"),
        ("data", b"\xff\x00", "application/octet-stream"),
        ("nul", b"a\0b", "application/octet-stream"),
        ("a.svg", b"<svg/>", "image/svg+xml"),
    ],
)
def test_a_file_is_what_it_holds(tmp_path: Path, name: str, data: bytes, mime: str) -> None:
    """A picture is known by its bytes, everything else by its name, and what has none by whether it is text."""
    (tmp_path / name).write_bytes(data)
    read = read_attachment(tmp_path / name)
    assert (read.name, read.mime, read.data) == (name, mime, data)
    assert read.is_image is mime.startswith("image/")


def test_what_is_no_picture_is_not_taken_for_one(tmp_path: Path) -> None:
    """Bytes that are no picture under a picture's name are refused, with the way out."""
    (tmp_path / "photo.png").write_bytes(b"<html>not found</html>")
    with pytest.raises(AttachmentError, match=r"photo.png: its name says image/png, but its bytes are no PNG"):
        read_attachment(tmp_path / "photo.png")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, a folder, empty, too large, or not to be read: the text names the file and the reason."""
    (tmp_path / "empty").touch()
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(MOST_BYTES + 1)
    for name, why in {"gone": "no such file", ".": "a folder", "empty": "empty", "huge": "at most 33.6 MB"}.items():
        with pytest.raises(AttachmentError, match=why):
            read_attachment(tmp_path / name)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "locked").write_text("x")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(AttachmentError, match="locked: Permission denied"):
        read_attachment(tmp_path / "locked")


def picture(size: int) -> Attachment:
    """A picture of so many bytes."""
    return Attachment("p.png", "p.png", "image/png", b"0" * size)


TEXT = Attachment("t.md", "t.md", "text/markdown", b"# t")


@each_row(
    "model, size, why",
    [
        ("openai:gpt-5", 4_000_000, "has 4.0 MB, and gpt-5 gets pictures below 3.8 MB: make it smaller"),
        ("openai:gpt-4", 10, "gpt-4 accepts no pictures"),
        ("ollama:qwen3", 10, "qwen3 accepts no pictures"),
        ("script:", 40_000, "gets pictures below 32,768 bytes"),
        ("ollama:something-new", 40_000, "set llm.profiles"),
    ],
)
def test_a_picture_that_would_not_be_seen_is_refused(model: str, size: int, why: str) -> None:
    """A model that accepts no pictures, or none so large, is named with what to do."""
    with pytest.raises(AttachmentError, match=r"cannot attach p.png: ") as caught:
        check_attachments([TEXT, picture(size)], Agent(name="a", model=model), KEYS)
    assert why in str(caught.value)


@each_row(
    "agent",
    [
        Agent(name="a", model="openai:gpt-5"),
        Agent(name="a", model="ollama:something-new"),
        Agent(name="a", model="script:"),
        Agent(name="a", planner=FinishPlanner()),
        Agent(name="a", model=ConfigSnapshot(model="unheard-of", provider="ollama")),
        Agent(
            name="a",
            model=ConfigSnapshot(
                model="m",
                provider="vllm",
                profiles={"m": ModelProfile(context_window_tokens=1, inline_limit_bytes=99_999)},
            ),
        ),
    ],
)
def test_a_picture_that_a_model_may_take_is_accepted(agent: Agent) -> None:
    """What is not known to be wrong is not refused; a profile of one's own counts."""
    check_attachments([picture(30_000)], agent, KEYS)


def test_files_that_are_no_pictures_fit_every_model() -> None:
    """They travel by reference; for them alone not even a key is asked for."""
    check_attachments([TEXT], Agent(name="a", model="openai:gpt-5"), {})
    with pytest.raises(MissingAPIKeyError, match="OPENAI_API_KEY"):
        check_attachments([picture(1)], Agent(name="a", model="openai:gpt-5"), {})


def test_an_agent_over_a_model_can_read_what_is_attached() -> None:
    """It gets the tool for it, once; a planner of one's own stays as it is."""
    plain = readable(Agent(name="a", planner=PlannerConfig()))
    assert plain.options.built_in == ("artifact_fetch",)
    assert readable(plain) is plain
    own = Agent(name="a", planner=FinishPlanner())
    assert readable(own) is own


@pytest.mark.anyio
async def test_files_are_put_where_the_run_finds_them() -> None:
    """Each is an artifact of the session, under its own name and type."""
    store, who = MemoryArtifactStore(), Identity("t", "u", "s")
    refs = await attach(store, who, [TEXT, picture(3)])
    assert [(ref.filename, ref.mime_type) for ref in refs] == [("t.md", "text/markdown"), ("p.png", "image/png")]
    assert await store.get(ArtifactScope.of(who), refs[0].id) == b"# t"
