"""The options that several commands share, and the url of the storage.

Reading help must stay cheap: nothing that runs agents is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

DEFAULT_STORAGE: Final = "sqlite:.harborage/harborage.db"
STORAGE_VARIABLE: Final = "HARBORAGE_STORAGE"

_MOST_STEPS = 1_000_000_000
_MOST_SECONDS = 10 * 365 * 86_400
_MOST_DOLLARS = 1_000_000
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)


def flag(text: str) -> Parameter:
    """The parameter of an option without a value; `text` is its help."""
    return Parameter(help=text, negative="", show_default=False)


RunId: TypeAlias = Annotated[str, Parameter(help="The run's id, or its last characters; six tell it from others.")]
StorageUrl: TypeAlias = Annotated[
    str,
    Parameter(
        help="The database of the runs, such as sqlite:FILE or postgres://…",
        show_default=f"{STORAGE_VARIABLE}, else .harborage/harborage.db",
    ),
]
Debug: TypeAlias = Annotated[bool, flag("Show the traceback of an error.")]
MaxSteps: TypeAlias = Annotated[
    int | None, Parameter(help="Limit of steps in all.", validator=Number(gt=0, lte=_MOST_STEPS))
]
Deadline: TypeAlias = Annotated[
    float | None, Parameter(help="Limit of time in seconds.", validator=Number(gt=0, lte=_MOST_SECONDS))
]
MaxCost: TypeAlias = Annotated[
    float | None,
    Parameter(
        help="Limit of model costs in US dollars, those of its tasks included.",
        validator=Number(gt=0, lte=_MOST_DOLLARS),
    ),
]


def storage_url(option: str, environ: Mapping[str, str]) -> str:
    """The url of the storage: the option, else `HARBORAGE_STORAGE`, else the project's own file."""
    return option.strip() or environ.get(STORAGE_VARIABLE, "").strip() or DEFAULT_STORAGE


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
