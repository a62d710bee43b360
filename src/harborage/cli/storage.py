"""Open the storage of kept runs, find a run in it, and ask before an agent that it names is executed.

What a command runs into becomes one line and an exit code. Quick to load: what reads runs is imported when it is used.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harborage.app.started import agent_place, is_started, remember_started
from harborage.cli.place import DEFAULT_STORAGE, file_of, is_memory
from harborage.cli.text import printable
from harborage.errors import HarborageError

if TYPE_CHECKING:
    from harborage.state.storage import Storage
    from harborage.store import RunRow, Store

__all__ = [
    "AgentNotAllowedError",
    "NoDatabaseError",
    "NothingKeptError",
    "allow_agent",
    "artifacts_of",
    "carry_out",
    "check_there",
    "find_open",
    "free_orphans",
    "kept_runs",
    "prepare",
]

_FAILED, _WRONG_USE, _INTERRUPTED = 1, 2, 130


class NoDatabaseError(HarborageError):
    """There is no database to read. `url` is what was looked for."""

    def __init__(self, url: str = "", why: str = "") -> None:
        self.url = url
        super().__init__(f"{why}: 'harborage run …' keeps the first run there, --storage names another" if why else "")


class NothingKeptError(NoDatabaseError):
    """A storage in memory keeps nothing that another command could read."""


def prepare(url: str) -> None:
    """Make the project's data folder, if that is where `url` keeps its runs.

    Raises:
        DataFolderError: it cannot be made or written.
    """
    if url == DEFAULT_STORAGE:
        from harborage.app.keeping import DATA_FOLDER, make_data_folder

        make_data_folder(Path(DATA_FOLDER))


def artifacts_of(url: str, folder: Path) -> Path | None:
    """The folder of the artifacts of runs that are kept in `url`; None where they live in memory, too."""
    from harborage.app.keeping import artifact_folder

    return None if is_memory(url) else artifact_folder(file_of(url), folder)


async def free_orphans(storage: Storage) -> None:
    """Free what dead processes carried, so that what is read of runs says who really carries them.

    A storage that is held or may not be written is read as it is, which is said on stderr.

    Raises:
        StateError: the storage refuses.
    """
    from harborage.cli.feed import logged
    from harborage.ids import new_id
    from harborage.state.errors import DatabaseFullError, DatabaseLockedError, DatabaseReadOnlyError

    if storage.is_read_only:
        return  # which was said when it was opened
    worker, heard = new_id(), list[str]()
    with logged(heard.append):
        try:
            await storage.store.join(worker)
            try:
                await storage.store.beat(worker)
            finally:
                await storage.store.leave(worker)
        except (DatabaseFullError, DatabaseLockedError, DatabaseReadOnlyError) as error:
            heard = [f"{error}; {_AS_KEPT}"]  # which says it all
    _say(heard)


async def find_open(store: Store, wanted: str, *, where: str) -> RunRow:
    """The run whose id is `wanted` or begins with it: of several the only one that somebody began and that is not over.

    Raises:
        RunUnknownError: there is none.
        RunPrefixError: there are several.
    """
    from harborage.cli.status import roots
    from harborage.runtime.history import RunPrefixError, all_runs, find_run
    from harborage.store import LIVE, RunQuery

    try:
        return await find_run(store, wanted, where=where)
    except RunPrefixError as error:
        live = RunQuery(statuses=LIVE)
        begun = roots([one for one in await all_runs(store, live) if one.run_id in error.found])
        if len(begun) != 1:
            raise
        return begun[0]


def check_there(url: str) -> None:
    """Accept a storage that may hold what was kept before.

    Raises:
        NoDatabaseError: there is no such file, or nothing is ever kept there.
    """
    path = file_of(url)
    if path is not None and not path.exists():
        raise NoDatabaseError(url, f"there is no database {path}")
    if is_memory(url):
        raise NothingKeptError(url, "memory: keeps nothing that another command could read")


@asynccontextmanager
async def kept_runs(url: str, *, writes: bool = False) -> AsyncIterator[Storage]:
    """The storage of runs that were kept before; it is not made when it is missing.

    A file that may not be written is opened to be read, unless the command `writes`; that is said on stderr.

    Raises:
        NoDatabaseError: there is none.
        StateError: it cannot be opened.
    """
    from harborage.clock import SYSTEM_CLOCK
    from harborage.state.errors import DatabaseReadOnlyError
    from harborage.state.storage import open_storage

    check_there(url)
    try:
        storage = await open_storage(url)
    except DatabaseReadOnlyError as error:
        if writes or file_of(url) is None:
            raise
        from harborage.state.sqlite import open_to_read

        storage = await open_to_read(url, SYSTEM_CLOCK)
        _say([f"{error}; {_AS_KEPT}"])
    async with storage:
        yield storage


_AS_KEPT: Final = "shown as it is kept: a process that is gone may look alive"


def _say(lines: Sequence[str]) -> None:
    from harborage.cli.text import printable

    sys.stderr.write("".join(f"harborage: {printable(line)}\n" for line in lines))


def carry_out(work: Callable[[], Coroutine[Any, Any, int]], *, debug: bool = False) -> int:
    """Run a command's work; what goes wrong becomes a line and an exit code.

    1 is what went wrong underway, 2 wrong use: no such database, run, agent or step. With `debug` it is also shown
    where it came from.
    """
    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told in one line
        from harborage.cli.text import printable

        if debug:
            # It may quote anything, so control characters are spelled out.
            sys.stderr.write(printable("".join(traceback.format_exception(error))))
        is_ours = isinstance(error, HarborageError)
        text = str(error) if is_ours else f"{type(error).__name__}: {error}"
        where = "" if is_ours or debug else " (--debug shows where)"
        _say([f"{' '.join(text.split())}{where}"])
        return _WRONG_USE if type(error).__name__ in _MISUSES else _FAILED


_MISUSES: Final = frozenset(
    {
        "AgentNotAllowedError",
        "AgentNotReadyError",
        "FolderGoneError",
        "ForkError",
        "NoDatabaseError",
        "NotConfirmedError",
        "NotWaitingError",
        "NothingKeptError",
        "PriceUnknownError",
        "RunOverError",
        "RunPrefixError",
        "RunUnknownError",
        "StorageUrlError",
        "TargetError",
    }
)


class AgentNotAllowedError(HarborageError):
    """The agent of a run was not executed, because this user has neither started it nor allowed it now."""


def allow_agent(target: str, folder: Path, *, run_id: str, command: str) -> None:
    """Accept the agent that a database names for a run: one that this user has started in `folder`, or allows now.

    Raises:
        AgentNotAllowedError: the user refused, or there is no terminal to ask at; the text says what to do.
    """
    if is_started(target, folder):
        return
    what = f"{printable(agent_place(target, folder), keep='')} in {printable(str(folder.resolve()), keep='')}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        way = f"name it yourself: harborage {command} {run_id} --agent AGENT" if target else "answer at a terminal"
        raise AgentNotAllowedError(f"run {run_id} would execute {what}, which you have not started; to allow it, {way}")
    sys.stderr.write(f"Run {run_id} would execute {what}, which you have not started.\nExecute it (y/N)? ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise AgentNotAllowedError(f"{what} was not executed")
    remember_started(target, folder)
