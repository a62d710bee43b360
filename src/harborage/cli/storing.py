"""Where the commands keep runs and find them again: which database, and whether there is one."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harborage.errors import HarborageError

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = ["DEFAULT_STORAGE", "STORAGE_VARIABLE", "NoDatabaseError", "carry_out", "kept_runs", "storage_url"]

DEFAULT_STORAGE: Final = "sqlite:.harborage/harborage.db"
STORAGE_VARIABLE: Final = "HARBORAGE_STORAGE"

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
_FAILED, _WRONG_USE, _INTERRUPTED = 1, 2, 130


class NoDatabaseError(HarborageError):
    """There is no database to read. `url` is what was looked for."""

    def __init__(self, url: str = "", why: str = "") -> None:
        self.url = url
        super().__init__(
            f"{why}: 'harborage run --storage {DEFAULT_STORAGE} …' makes it, --storage names another" if why else ""
        )


def storage_url(option: str, environ: Mapping[str, str]) -> str:
    """The url of the storage: the option, else `HARBORAGE_STORAGE`, else the project's own file."""
    return option.strip() or environ.get(STORAGE_VARIABLE, "").strip() or DEFAULT_STORAGE


@asynccontextmanager
async def kept_runs(url: str) -> AsyncIterator[Storage]:
    """The storage of runs that were kept before; it is not made when it is missing.

    Raises:
        NoDatabaseError: there is none.
        StateError: it cannot be opened.
    """
    from harborage.state.storage import open_storage

    path = _file_of(url)
    if path is not None and not path.is_file():
        raise NoDatabaseError(url, f"there is no database {path}")
    if url.lower().startswith("memory:"):
        raise NoDatabaseError(url, "memory: keeps nothing that another command could read")
    async with await open_storage(url) as storage:
        yield storage


def carry_out(work: Callable[[], Coroutine[Any, Any, int]], *, debug: bool = False) -> int:
    """Run a command's work; what goes wrong becomes a line and an exit code.

    1 is what went wrong underway, 2 wrong use: no such database, run, agent or step.
    """
    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return _INTERRUPTED
    except HarborageError as error:
        if debug:
            raise
        sys.stderr.write(f"harborage: {' '.join(str(error).split())}\n")
        return _WRONG_USE if type(error).__name__ in _MISUSES else _FAILED


_MISUSES: Final = frozenset(
    {
        "AgentNotReadyError",
        "ForkError",
        "NoDatabaseError",
        "RunPrefixError",
        "RunUnknownError",
        "StorageUrlError",
        "TargetError",
    }
)


def _file_of(url: str) -> Path | None:
    """The file that a url names, if it names one."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return Path(url)
    return Path(url[scheme.end() :]) if scheme[0].lower() == "sqlite:" else None
