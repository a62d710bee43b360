"""What the command line keeps for a project: its data folder, the origin of each run, the sessions of commands, and
which agents this user has started.

A run outlives its process, so the name of its agent, the folder and the model are written into its record. A database
may come from anywhere, with runs that name an agent's file beside it; before such a file is executed, the commands that
read runs ask, unless this user has started that agent in that folder before.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlencode

import msgspec

from harborage.artifacts import ArtifactScope, ArtifactStore
from harborage.errors import HarborageError
from harborage.runtime.history import all_runs
from harborage.store import LIVE, RunQuery

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime
    from harborage.store import Store

DATA_FOLDER: Final = ".harborage"
"""The name of a project's data folder, in the folder where its commands are run."""

_IGNORED: Final = "# The runs that harborage keeps here belong to this machine, not into a repository.\n*\n"


LOADING: Final[ContextVar[bool]] = ContextVar("harborage.loading", default=False)
"""Whether a command line is loading the file of a program now, which must not run an agent meanwhile."""


class RunWhileLoadingError(HarborageError):
    """A file runs an agent as it is loaded; put that below `if __name__ == '__main__':`."""


class DataFolderError(HarborageError):
    """The data folder cannot be made or written. `folder` is that folder."""

    def __init__(self, folder: str = "", reason: str = "") -> None:
        self.folder = folder
        super().__init__(
            f"the data folder {folder} cannot be written: {reason}; repair that, or keep runs in another place with "
            "--storage sqlite:FILE, or not at all with --storage memory:"
            if folder
            else ""
        )


class FolderGoneError(HarborageError):
    """The folder in which a run was started is gone. `folder` is that folder."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder
        super().__init__(
            f"the run was started in {folder}, and that folder is gone: restore it, or name the agent with --agent "
            "to continue in the current folder"
            if folder
            else ""
        )


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The command that started a run, as it is written into the run's row.

    `target` names the agent, "" for the standard assistant; `mark` is unique to the command, so that two commands over
    one storage do not claim each other's runs; `folder` is where it was run, `model` the model. `part` is the sub-agent
    whose run it is, empty for the agent itself.
    """

    target: str = ""
    mark: str = ""
    folder: str = ""
    model: str = ""
    part: str = ""

    @property
    def text(self) -> str:
        """The written form: `target#mark?folder=…&model=…/part`, without empty parts."""
        more = urlencode({key: value for key, value in (("folder", self.folder), ("model", self.model)) if value})
        mark = f"{self.mark}?{more}" if more else self.mark
        part = f"/{self.part}" if self.part else ""
        return f"{self.target}#{mark}{part}" if mark else self.target

    @classmethod
    def of(cls, agent: str) -> Origin:
        """Parse the agent of a run's row; for a run that a program started it is the target alone."""
        target, _, rest = agent.partition("#")
        rest, _, part = rest.partition("/")
        mark, _, more = rest.partition("?")
        found = {key: values[0] for key, values in parse_qs(more).items()}
        folder, model = found.get("folder", ""), found.get("model", "")
        return cls(target=target, mark=mark, folder=folder, model=model, part=part)

    @property
    def whole(self) -> Origin:
        """The same of the agent itself, under which its worker claims the runs of its sub-agents, too."""
        return msgspec.structs.replace(self, part="")


def make_data_folder(folder: Path) -> None:
    """Make the data folder, readable by its owner alone, with a file that keeps it out of git.

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
    """Return the folder for the artifacts of kept runs: beside their database, or in the data folder of `folder`."""
    return (folder / DATA_FOLDER if database is None else database.resolve().parent) / "artifacts"


_PREFIX: Final = "cli-"


def command_session(mark: str) -> str:
    """Return the id of the session of the command with this mark."""
    return f"{_PREFIX}{mark}"


def is_command_session(session_id: str) -> bool:
    """Whether the session was opened by a command, not by a program."""
    return session_id.startswith(_PREFIX)


async def close_command_session(runtime: Runtime, store: Store, who: Identity) -> bool:
    """Close the session of `who`, if a command opened it and every run in it has ended; returns whether it did.

    Raises:
        HarborageError: the storage refuses.
    """
    mine = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, statuses=LIVE)
    if not is_command_session(who.session_id) or await all_runs(store, mine):
        return False
    await runtime.sessions.close(who, "its run is over")
    return True


async def copy_artifacts(store: ArtifactStore, source: Identity, target: Identity) -> None:
    """Copy the artifacts of one session into another, under the same ids.

    Raises:
        HarborageError: the store refuses.
    """
    scope = ArtifactScope.of(target)
    for ref in await store.list(ArtifactScope.of(source)):
        data = await store.get(ref.scope, ref.id)
        if data is not None:
            await store.put_bytes(
                scope, data, mime_type=ref.mime_type, filename=ref.filename, namespace=ref.namespace, source=ref.source
            )


_FILE: Final = "started-agents.jsonl"
_MOST: Final = 1000
_ASSISTANT: Final = "the standard assistant"


def agent_place(target: str, folder: Path) -> str:
    """Return what `target` names in `folder`: an absolute path, a module, or the standard assistant for ""."""
    place = target.rpartition(":")[0] or target
    if place.endswith(".py"):
        return str((folder / place).resolve())
    return place or _ASSISTANT


def is_started(target: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this user has started that agent in that folder."""
    return _entry(target, folder) in _entries(_path(environ))


def remember_started(target: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> None:
    """Remember that this user has started that agent in that folder; if that fails, the user is asked later.

    The newest 1,000 are kept.
    """
    path, entry = _path(environ), _entry(target, folder)
    known = _entries(path)
    if entry in known:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_bytes(b"".join(one + b"\n" for one in [*known, entry][-_MOST:]))
        fresh.replace(path)


def _path(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "harborage" / _FILE


def _entry(target: str, folder: Path) -> bytes:
    return msgspec.json.encode([agent_place(target, folder), str(folder.resolve())])


def _entries(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError:
        return []
