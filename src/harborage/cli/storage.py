"""The storage of kept runs: the options that name it, how it is opened, how a run is found in it, and asking before an
agent that it names is executed.

What goes wrong in a command becomes one line and an exit code. Reading help must stay cheap, so what reads runs is
imported when it is used.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from harborage.errors import HarborageError

if TYPE_CHECKING:
    from harborage.state.storage import Storage

DEFAULT_STORAGE: Final = "sqlite:.harborage/harborage.db"
STORAGE_VARIABLE: Final = "HARBORAGE_STORAGE"
URL_VARIABLE: Final = "HARBORAGE_URL"

_MOST_STEPS = 1_000_000_000
_MOST_SECONDS = 10 * 365 * 86_400
_MOST_DOLLARS = 1_000_000
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)


def flag(text: str) -> Parameter:
    """The parameter of an option without a value; `text` is its help."""
    return Parameter(help=text, negative="", show_default=False)


RunId: TypeAlias = Annotated[str, Parameter(help="The run's handle, such as Q7TX2M, its id, or last for the newest.")]
StorageUrl: TypeAlias = Annotated[
    str,
    Parameter(
        help="The database of the runs, such as sqlite:FILE or postgres://…",
        show_default=f"{STORAGE_VARIABLE}, else .harborage/harborage.db",
    ),
]
ServerUrl: TypeAlias = Annotated[
    str,
    Parameter(help="Ask a server in place of a database, such as http://127.0.0.1:18080.", show_default=URL_VARIABLE),
]
Debug: TypeAlias = Annotated[bool, flag("Show the traceback of an error.")]
MaxSteps: TypeAlias = Annotated[
    int | None,
    Parameter(
        name=["--steps", "--max-steps"],
        help="Limit of steps in all.",
        validator=Number(gt=0, lte=_MOST_STEPS),
    ),
]
MaxCalls: TypeAlias = Annotated[
    int | None,
    Parameter(name="--calls", help="Limit of tool calls, those of its children included.", validator=Number(gt=0)),
]
MaxTokens: TypeAlias = Annotated[
    int | None,
    Parameter(name="--tokens", help="Limit of tokens of its model calls, in and out.", validator=Number(gt=0)),
]
Deadline: TypeAlias = Annotated[
    float | None,
    Parameter(
        name=["--seconds", "--deadline"],
        help="Limit of time in seconds.",
        validator=Number(gt=0, lte=_MOST_SECONDS),
    ),
]
MaxCost: TypeAlias = Annotated[
    float | None,
    Parameter(
        name=["--cost", "--max-cost"],
        help="Limit of model costs in US dollars, those of its tasks included.",
        validator=Number(gt=0, lte=_MOST_DOLLARS),
    ),
]


def storage_url(option: str, environ: Mapping[str, str]) -> str:
    """The url of the storage: the option, else `HARBORAGE_STORAGE`, else the project's own file."""
    return option.strip() or environ.get(STORAGE_VARIABLE, "").strip() or DEFAULT_STORAGE


def place_of(storage: str, server: str, environ: Mapping[str, str]) -> str:
    """Where the runs are: the url of a server, else that of a storage. An option counts before the environment.

    Raises:
        WrongUseError: both options are given, or the url of the server is none.
    """
    if storage.strip() and server.strip():
        raise WrongUseError("--storage and --url name two places of runs; give one of them")
    asked = server.strip() or ("" if storage.strip() else environ.get(URL_VARIABLE, "").strip())
    if not asked:
        return storage_url(storage, environ)
    if not is_server(asked):
        raise WrongUseError(f"{asked!r} is no url of a server (example: --url http://127.0.0.1:18080)")
    return asked


def local_place(storage: str, server: str, environ: Mapping[str, str], *, command: str, why: str) -> str:
    """Where the runs of this machine are, for a command that cannot ask a server.

    Raises:
        WrongUseError: a server is named, by an option or by the environment; the text says why that cannot be.
    """
    place = place_of(storage, server, environ)
    if is_server(place):
        named = "--url" if server.strip() else URL_VARIABLE
        raise WrongUseError(f"{named}: {command} {why}; leave it out, or name a database with --storage")
    return place


def is_server(place: str) -> bool:
    """Whether a place of runs is a server."""
    return place.lower().startswith(("http://", "https://"))


def absolute_url(url: str) -> str:
    """The same url, valid in any folder."""
    path = database_file(url)
    return url if path is None else f"sqlite:{path.absolute()}"


def is_memory(url: str) -> bool:
    """Whether nothing that is kept there outlives the process."""
    return url.lower().startswith("memory:")


def database_file(url: str) -> Path | None:
    """The SQLite file that a url names; None when it names a server or memory."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return Path(url)
    return Path(url[scheme.end() :]) if scheme[0].lower() == "sqlite:" else None


_FAILED, _WRONG_USE, _INTERRUPTED = 1, 2, 130


class WrongUseError(HarborageError):
    """The command was used wrongly, so it did nothing; the text says what to do instead."""


class NoDatabaseError(WrongUseError):
    """There is no database to read. `url` is the one that was asked for."""

    def __init__(self, url: str = "", why: str = "") -> None:
        self.url = url
        super().__init__(
            f"{why}; the first 'harborage run' creates it, and --storage names another database" if why else ""
        )


class AgentNotAllowedError(WrongUseError):
    """The agent of a run was not executed: this user has neither started it before nor allowed it now."""


def prepare_storage(url: str) -> None:
    """Make the project's data folder, if `url` is the storage in it.

    Raises:
        DataFolderError: it cannot be made or written.
    """
    if url == DEFAULT_STORAGE:
        from harborage.app.project import DATA_FOLDER, make_data_folder

        make_data_folder(Path(DATA_FOLDER))


def artifacts_folder(url: str, folder: Path) -> Path | None:
    """The folder for the artifacts of runs in the storage `url`; None for a storage in memory."""
    from harborage.app.project import artifact_folder

    return None if is_memory(url) else artifact_folder(database_file(url), folder)


async def release_expired_leases(storage: Storage) -> None:
    """Release the runs of dead workers, so that what is read next names only living ones.

    A storage that is locked or read-only is read as it is; stderr gets a line that says so.

    Raises:
        StateError: the storage cannot be read.
    """
    from harborage.cli.feed import capture_logs
    from harborage.ids import new_id
    from harborage.state.errors import DatabaseFullError, DatabaseLockedError, DatabaseReadOnlyError

    if storage.is_read_only:
        return  # stderr has got its line when the storage was opened
    worker, logged = new_id(), list[str]()
    with capture_logs(logged.append):
        try:
            await storage.store.join(worker)
            try:
                await storage.store.beat(worker)
            finally:
                await storage.store.leave(worker)
        except (DatabaseFullError, DatabaseLockedError, DatabaseReadOnlyError) as error:
            logged = [f"{error}; {_AS_STORED}"]  # the logs before it say the same
    _warn(logged)


def require_database(url: str) -> None:
    """Accept a storage that may hold runs of earlier commands.

    Raises:
        NoDatabaseError: there is no such file, or `url` is a storage in memory.
    """
    path = database_file(url)
    if path is not None and not path.exists():
        raise NoDatabaseError(url, f"there is no database {path}")
    if is_memory(url):
        raise NoDatabaseError(url, "memory: keeps nothing that another command could read")


@asynccontextmanager
async def open_kept_storage(url: str, *, writes: bool = False) -> AsyncIterator[Storage]:
    """The storage of runs that were kept before; a missing one is not created.

    A file that is read-only, or that another process holds, is opened for reading unless the command `writes`; stderr
    gets a line that says so.

    Raises:
        NoDatabaseError: there is none.
        StateError: it cannot be opened.
    """
    from harborage.clock import SYSTEM_CLOCK
    from harborage.state.errors import DatabaseLockedError, DatabaseReadOnlyError
    from harborage.state.storage import open_storage

    require_database(url)
    try:
        storage = await open_storage(url)
    except (DatabaseReadOnlyError, DatabaseLockedError) as error:
        if writes or database_file(url) is None:
            raise
        from harborage.state.sqlite import open_to_read

        storage = await open_to_read(url, SYSTEM_CLOCK)
        _warn([f"{error}; {_AS_STORED}"])
    async with storage:
        yield storage


_AS_STORED: Final = "shown as it is stored: a worker that is gone may look alive"


def allow_agent(target: str, folder: Path, *, run_id: str, command: str) -> None:
    """Accept the agent that a database names for a run: one that this user has started in `folder`, or allows now.

    Raises:
        AgentNotAllowedError: the user declined, or there is no terminal to ask in; the text says what to do.
    """
    from harborage.app.project import agent_place, is_started, remember_started
    from harborage.cli.text import printable

    if is_started(target, folder):
        return
    what = f"{printable(agent_place(target, folder), keep='')} in {printable(str(folder.resolve()), keep='')}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        way = f"name it yourself: harborage {command} {run_id} --agent AGENT" if target else "answer in a terminal"
        raise AgentNotAllowedError(f"run {run_id} would execute {what}, which you have not started; to allow it, {way}")
    sys.stderr.write(f"Run {run_id} would execute {what}, which you have not started.\nExecute it (y/N)? ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise AgentNotAllowedError(f"{what} was not executed")
    remember_started(target, folder)


def run_interruptible(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run a command's coroutine in an event loop of its own, and return its exit code.

    Raises:
        KeyboardInterrupt: the person pressed Ctrl-C.
    """
    return asyncio.run(_woken_by_signals(work))


async def _woken_by_signals(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Await `work` in an event loop that every signal wakes.

    Python's own handler of Ctrl-C is called by the interpreter, which sleeps with its event loop: a signal that comes
    just before that would wait for whatever wakes it next. A loop with a signal handler wakes for all of them.
    """
    if threading.current_thread() is not threading.main_thread():
        return await work()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: None)
    try:
        return await work()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def run_command(work: Callable[[], Coroutine[Any, Any, int]], *, debug: bool = False) -> int:
    """Run a command's coroutine and return its exit code; an error becomes one line on stderr.

    The code is 2 for wrong use (no such database, run, agent or step), else 1. `debug` shows the traceback, too.
    """
    try:
        return run_interruptible(work)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - every error becomes one line
        from harborage.cli.text import printable

        if debug:
            # It may quote anything, so control characters are spelled out.
            sys.stderr.write(printable("".join(traceback.format_exception(error))))
        is_ours = isinstance(error, HarborageError)
        text = str(error) if is_ours else f"{type(error).__name__}: {error}"
        hint = "" if is_ours or debug else " (--debug shows where)"
        _warn([f"{' '.join(text.split())}{hint}"])
        is_misuse = isinstance(error, WrongUseError) or type(error).__name__ in _MISUSES
        return _WRONG_USE if is_misuse else _FAILED


# By name, since importing these classes would load the runtime.
_MISUSES: Final = frozenset(
    {
        "AgentNotReadyError",
        "FolderGoneError",
        "ForkError",
        "PriceUnknownError",
        "RunNotFoundError",
        "RunPrefixError",
        "SigningKeyError",
        "StorageUrlError",
        "TargetError",
    }
)


def _warn(lines: Sequence[str]) -> None:
    from harborage.cli.text import printable

    sys.stderr.write("".join(f"harborage: {printable(line)}\n" for line in lines))
