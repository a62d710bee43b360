"""Where the commands keep runs: what the option, the environment and the folder say about it. Quick to load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_STORAGE", "STORAGE_VARIABLE", "absolute", "file_of", "is_memory", "storage_url"]

DEFAULT_STORAGE: Final = "sqlite:.harborage/harborage.db"
STORAGE_VARIABLE: Final = "HARBORAGE_STORAGE"

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)


def storage_url(option: str, environ: Mapping[str, str]) -> str:
    """The url of the storage: the option, else `HARBORAGE_STORAGE`, else the project's own file."""
    return option.strip() or environ.get(STORAGE_VARIABLE, "").strip() or DEFAULT_STORAGE


def absolute(url: str) -> str:
    """The url, good in any folder."""
    path = file_of(url)
    return url if path is None else f"sqlite:{path.absolute()}"


def is_memory(url: str) -> bool:
    """Whether nothing outlives the process there."""
    return url.lower().startswith("memory:")


def file_of(url: str) -> Path | None:
    """The file that a url names, if it names one."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return Path(url)
    return Path(url[scheme.end() :]) if scheme[0].lower() == "sqlite:" else None
