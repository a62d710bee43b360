"""How a statement with names becomes one that the driver sends: `:name` is a value of that name, sent by place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from harborage.state.sql_files import read_statements
from harborage.store import sql

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.driver import Row

_OWN: Final = ("commits", "queue", "upkeep", "views")
_FILES: Final = ((sql.__name__, "views"), *((__package__, file) for file in _OWN))
_NAME: Final = re.compile(r"(?<!:):([a-z_]+)")
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)


def plain(text: str) -> str:
    """A statement without its comments."""
    return _COMMENT.sub("", text)


SQL: Final[Mapping[str, str]] = {
    name: plain(text)
    for package, file in _FILES
    for name, text in read_statements(package, f"statements/{file}.sql").items()
}
"""The statements of this store by name."""


def bound(text: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A statement with its values by place; values that it does not name are left out."""
    sent, names = _places(text)
    return sent, [values[name] for name in names]


async def fetch(database: Database, text: str, /, **values: Any) -> Sequence[Row]:
    """The rows of a statement that does no harm when it is made twice."""
    sent, given = bound(text, values)
    return await database.fetch(sent, *given)


async def fetchrow(database: Database, text: str, /, **values: Any) -> Row | None:
    """The first row of such a statement."""
    sent, given = bound(text, values)
    return await database.fetchrow(sent, *given)


async def fetchval(database: Database, text: str, /, **values: Any) -> Any:
    """The first value of such a statement."""
    sent, given = bound(text, values)
    return await database.fetchval(sent, *given)


@cache
def _places(text: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_NAME.findall(text)))
    return _NAME.sub(lambda found: f"${names.index(found[1]) + 1}", text), names
