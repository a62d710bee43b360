"""How runs are kept for the command line: which folder holds them, and how the agent of a kept run is found again.

A run outlives its process, so what its agent was called, where, and on which model, is written beside it.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode

import msgspec

from harborage.errors import HarborageError

__all__ = ["DATA_FOLDER", "DataFolderError", "FolderGoneError", "Origin", "artifact_folder", "make_data_folder"]

DATA_FOLDER: Final = ".harborage"
"""The data folder of a project, in the folder where its commands are given."""

_IGNORED: Final = "# What harborage keeps of its runs belongs to this machine, not into a repository.\n*\n"


class DataFolderError(HarborageError):
    """The data folder cannot be made or written. `folder` is that folder."""

    def __init__(self, folder: str = "", reason: str = "") -> None:
        self.folder = folder
        super().__init__(
            f"{folder}, where runs are kept, cannot be written: {reason}; mend that, keep them elsewhere with "
            "--storage sqlite:FILE, or nowhere with --storage memory:"
            if folder
            else ""
        )


class FolderGoneError(HarborageError):
    """The folder in which a run was started is gone. `folder` is that folder."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        super().__init__(
            f"the run was started in {folder}, and that folder is gone: bring it back, or name the agent with --agent "
            "to go on in the folder you stand in"
            if folder
            else ""
        )


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command line said when it started a run, as it is written into the run's record.

    `target` names the agent, "" for the standard assistant; `mark` is this command's own, so that two commands over one
    storage do not carry each other's runs; `folder` is where the command was given, `model` what decided.
    """

    target: str = ""
    mark: str = ""
    folder: str = ""
    model: str = ""

    @property
    def text(self) -> str:
        """The form that is written: `target#mark?folder=…&model=…`, without what is empty."""
        more = urlencode({key: value for key, value in (("folder", self.folder), ("model", self.model)) if value})
        mark = f"{self.mark}?{more}" if more else self.mark
        return f"{self.target}#{mark}" if mark else self.target

    @classmethod
    def of(cls, agent: str) -> Origin:
        """What `RunRecord.agent` says; of a run that a program started it is the target alone."""
        target, _, rest = agent.partition("#")
        mark, _, more = rest.partition("?")
        found = {key: values[0] for key, values in parse_qs(more).items()}
        return cls(target=target, mark=mark, folder=found.get("folder", ""), model=found.get("model", ""))


def make_data_folder(folder: Path) -> None:
    """See to it that the data folder is there, that it is its owner's alone, and that nobody commits it by mistake.

    Raises:
        DataFolderError: it cannot be made or written.
    """
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        for path, mode in ((folder, 0o700), *((file, 0o600) for file in folder.glob("*.db*") if file.is_file())):
            if stat.S_IMODE(path.stat().st_mode) & ~mode:  # made by an earlier version, or by hand
                path.chmod(mode)
        note = folder / ".gitignore"
        if not note.exists():
            note.write_text(_IGNORED, "utf-8")
    except OSError as error:
        why = "a file has its name" if folder.is_file() else error.strerror or str(error)
        raise DataFolderError(str(folder), why) from error


def artifact_folder(database: Path | None, folder: Path) -> Path:
    """Where the artifacts of kept runs lie: beside their database, or in the data folder of `folder`."""
    return (folder / DATA_FOLDER if database is None else database.resolve().parent) / "artifacts"
