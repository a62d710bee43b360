"""Pictures, sound and files as values: into a run, a session and a stream, and what is refused where it is written."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Audio, File, Identity, Image, Runtime
from harborage.app.attachments import AttachmentError
from harborage.artifacts import ArtifactScope
from harborage.artifacts.media import MOST_BYTES, MediaError
from harborage.errors import InvalidOptionError
from harborage.llm import AudioPart, ImagePart, TextPart
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = b"RIFF\x24\0\0\0WAVEfmt "


def parts_of(model: ScriptedLLM) -> list[Any]:
    return [part for message in model.requests[-1].messages for part in message.content.parts or ()]


async def test_a_run_is_started_with_a_picture(tmp_path: Path) -> None:
    """The model sees it beside the text; it may come of a path or of bytes."""
    (tmp_path / "receipt.png").write_bytes(PNG)
    for picture in (Image(tmp_path / "receipt.png"), Image(str(tmp_path / "receipt.png")), Image(PNG)):
        model = ScriptedLLM([says("a receipt")])
        result = await Agent("a", model=model).run(["What is this?", picture])
        assert result.output == "a receipt"
        assert result.messages[0].text == "What is this?"
        shown = [part for part in parts_of(model) if isinstance(part, ImagePart)]
        assert [base64.b64decode(one.data_url.partition(",")[2]) for one in shown] == [PNG]


async def test_sound_and_files_are_named_to_the_model_by_their_ids() -> None:
    """With type and name, so that it can give them to a tool."""
    model = ScriptedLLM([says("ok")])
    await Agent("a", model=model).run(["Note this.", Audio(WAV, name="call.wav"), File(b"a,b\n", name="rows.csv")])
    sound = next(part for part in parts_of(model) if isinstance(part, AudioPart))
    assert sound.artifact is not None
    assert (sound.mime, sound.artifact.size_bytes) == ("audio/wav", len(WAV))
    assert any("rows.csv" in part.text for part in parts_of(model) if isinstance(part, TextPart))


async def test_sessions_and_streams_take_them_too() -> None:
    """As a run does; a later message does not send them again."""
    model = ScriptedLLM([says("a dot")])
    agent = Agent("a", model=model)
    assert (await agent.session("m-1").send(["What is this?", Image(PNG)])).output == "a dot"
    assert any(isinstance(part, ImagePart) for part in parts_of(model))
    async with agent.stream(["And this?", Image(PNG)]) as run:
        assert (await run.result()).output == "a dot"
    await agent.session("m-1").send("Thanks")
    assert not any(isinstance(part, ImagePart) for part in parts_of(model))


async def test_they_are_artifacts_of_the_session_and_survive_a_restart(storage: str) -> None:
    """A run that goes on in another process sees the picture."""
    agent = Agent("a", model=ScriptedLLM([says("seen")]))
    async with Runtime([agent], storage=storage) as runtime:
        run = await runtime.start(["Look", Image(PNG, name="dot.png")], who=ME)
        await run.finished()
        kept = await runtime.artifacts.list(ArtifactScope.of(ME))
        assert [(ref.filename, ref.mime_type) for ref in kept] == [("dot.png", "image/png")]
    async with Runtime([agent], storage=storage) as runtime:
        assert await runtime.artifacts.get(ArtifactScope.of(ME), kept[0].id) == PNG
        assert (await runtime.get(run.id, who=ME).result()).output == "seen"


def test_equal_values_have_the_same_bytes() -> None:
    """And the type is found by content, then by name, then text."""
    assert Image(PNG) == Image(PNG, name="other.png")
    assert Image(PNG) != File(PNG)
    files = (File(PNG), File(b"%PDF-1.7"), File(b"x", name="a.csv"), File(b"hi"), File(b"\0\1"))
    wanted = ["image/png", "application/pdf", "text/csv", "text/plain", "application/octet-stream"]
    assert [one.mime for one in files] == wanted
    assert repr(Image(PNG, name="dot.png")) == "Image('dot.png')"


REFUSED: list[tuple[Any, str]] = [
    (lambda at: Image(at / "none.png"), "there is no such file"),
    (lambda at: Image(at), "it is a folder; name a file"),
    (lambda at: Image(b""), "it is empty"),
    (lambda at: File(b"x" * (MOST_BYTES + 1)), "it has 33.6 MB; at most 33.6 MB can be attached"),
    (lambda at: Image(b"hello"), "it is no picture that is known; say mime= if it is one, or use File"),
    (lambda at: Audio(PNG), "it is no sound that is known"),
    (lambda at: Image(at / "text.png"), "its name says image/png, but its bytes are no PNG, JPEG, GIF or WebP"),
    (lambda at: Image("https://example.com/x.png"), "it takes a path or bytes, not an address; read it first"),
    (lambda at: Image(5), "expected a path or bytes"),
]


@each_row("make, text", REFUSED)
def test_what_cannot_be_attached_is_refused_in_one_line(make: Any, text: str, tmp_path: Path) -> None:
    """Where the value is made, with the fix."""
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(InvalidOptionError) as refused:
        make(tmp_path)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


@each_row(
    "goal, text",
    [
        (Image(PNG), "goal: write what to do with it"),
        ([Image(PNG)], "a text beside the files"),
        (["Look", 5], "texts, and Image(…), Audio(…) or File(…) between them"),
    ],
)
async def test_a_goal_has_a_text(goal: Any, text: str) -> None:
    """A picture alone says not what is wanted."""
    with pytest.raises(InvalidOptionError) as refused:
        await Agent("a", model=ScriptedLLM([says("ok")])).run(goal)
    assert text in str(refused.value)


async def test_a_model_that_takes_no_pictures_is_not_given_any() -> None:
    """It would get a mere reference, and guess."""
    with pytest.raises(AttachmentError, match=r"gpt-3.5-turbo accepts no pictures: choose a model that does"):
        await Agent("a", model="mock:gpt-3.5-turbo").run(["What is this?", Image(PNG, name="dot.png")])


def test_bytes_of_a_kept_value_are_asked_for() -> None:
    """One of a record has none until it is loaded."""
    kept = Image.kept("default_abc")
    with pytest.raises(MediaError, match="its bytes are not here yet"):
        kept.data  # noqa: B018
    assert kept == Image.kept("default_abc")
