"""The names of tools that come from elsewhere: legal, distinct and stable. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from typing import Final

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_MARK_CHARS: Final = 6
LONGEST: Final = 64
"""Characters that the name of a tool has at most where a model sees it."""


def to_identifier(text: str) -> str:
    """Return `text` in the characters that names of tools have, such as `get_v1_files_key` of a method and a path."""
    return _OTHER.sub("_", text).strip("_")


def marked(name: str, *of: str) -> str:
    """Return `name` with the mark of what it stands for at its end, so that it is no other one's name."""
    mark = hashlib.sha256("\0".join(of or (name,)).encode()).hexdigest()[:_MARK_CHARS]
    return f"{name[: LONGEST - _MARK_CHARS - 1]}_{mark}"


def distinct(name: str, source: str, tool: str, is_taken: Callable[[str], bool] | Collection[str]) -> str:
    """Return the name in the catalog of the tool `tool` of a source; marked where another has the name already."""
    taken = is_taken if callable(is_taken) else is_taken.__contains__
    return marked(name, source, tool) if taken(name) else name
