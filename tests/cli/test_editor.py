"""Editing a text in somebody's own editor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborage.cli.editor import EditorError, edit_text, editor_command

pytestmark = pytest.mark.anyio


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A descriptor to read nothing from."""
    with open(os.devnull) as file:
        yield file.fileno()


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ({}, []),
        ({"EDITOR": " "}, []),
        ({"EDITOR": "vim"}, ["vim"]),
        ({"EDITOR": "vim", "VISUAL": "code --wait"}, ["code", "--wait"]),
        ({"EDITOR": "'/my editor' -x"}, ["/my editor", "-x"]),
    ],
)
def test_the_editor_is_what_the_environment_says(environment: dict[str, str], command: list[str]) -> None:
    """$VISUAL comes before $EDITOR, either may have arguments, and neither is needed."""
    assert editor_command(environment) == command


@pytest.mark.parametrize(
    "program",
    [
        "p.write_text(p.read_text().upper())",
        "q = p.with_name(p.name + '~'); q.write_text(p.read_text().upper()); q.replace(p)",
    ],
)
async def test_what_was_saved_comes_back(program: str, nowhere: int) -> None:
    """The text that the editor saved is returned, whether it wrote into the file or put another in its place."""
    command = [sys.executable, "-c", f"import pathlib, sys; p = pathlib.Path(sys.argv[1]); {program}"]
    assert await edit_text(command, "naïve", suffix=".json", stdin=nowhere) == "NAÏVE\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [(["/no/such/editor"], "did not start"), ([sys.executable, "-c", "raise SystemExit(3)"], "ended with code 3")],
)
async def test_an_editor_that_fails_is_an_error(command: list[str], message: str, nowhere: int) -> None:
    """An editor that does not start, or says that it failed, gives no text."""
    with pytest.raises(EditorError, match=message):
        await edit_text(command, "x", suffix=".json", stdin=nowhere)


async def test_no_draft_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: int) -> None:
    """The file that was edited is gone afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await edit_text([sys.executable, "-c", ""], "x", suffix=".json", stdin=nowhere)
    assert os.listdir(tmp_path) == []
