"""How runs are kept for the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.app.keeping import DataFolderError, Origin, artifact_folder, make_data_folder
from tests.kit.tables import each_row


@each_row(
    "origin",
    [
        Origin(target="agent.py", mark="01M", folder="/ä da/a#b?c&d", model="openai:gpt-5"),
        Origin(mark="01M", folder="/work"),
        Origin(target="pack.mod:make", mark="01M"),
        Origin(target="agent.py"),
        Origin(),
    ],
)
def test_what_is_written_is_read(origin: Origin) -> None:
    """Whatever folder and model are called."""
    assert Origin.of(origin.text) == origin


def test_the_target_comes_first() -> None:
    """Up to the first `#`; what a program wrote is the target alone."""
    assert Origin(target="agent.py", mark="01M", model="x").text == "agent.py#01M?model=x"
    assert Origin.of("agent.py") == Origin(target="agent.py")


def test_the_data_folder_is_made_once(tmp_path: Path) -> None:
    """With a note that keeps it out of repositories, which a person may change."""
    folder = tmp_path / "a" / ".harborage"
    make_data_folder(folder)
    assert "\n*\n" in (folder / ".gitignore").read_text()
    (folder / ".gitignore").write_text("mine")
    make_data_folder(folder)
    assert (folder / ".gitignore").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The text says what is in the way, and where else runs could go."""
    (tmp_path / ".harborage").write_text("a file")
    with pytest.raises(DataFolderError, match=r"a file has its name; mend that, .* --storage memory:"):
        make_data_folder(tmp_path / ".harborage")


def test_artifacts_lie_beside_the_database(tmp_path: Path) -> None:
    """Or, where that is a server, in the data folder."""
    assert artifact_folder(tmp_path / "x" / "runs.db", Path("/elsewhere")) == tmp_path / "x" / "artifacts"
    assert artifact_folder(None, Path("/here")) == Path("/here/.harborage/artifacts")
