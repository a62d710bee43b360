"""An index over tools in memory: what makes deferred tools findable without anything to install.

It implements `ToolSearch` for one event loop. Catalogs hold hundreds of tools, not millions, so a search looks at all
of them; larger catalogs get an index of their own behind the same protocol.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from harborage.tools.model import Tool

__all__ = ["MemoryToolSearch"]

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_WEIGHT = 4
_TAG_WEIGHT = 3
_DESCRIPTION_WEIGHT = 1
_MAX_QUERY_CHARS = 512
# Python's expressions can take exponential time; the few signs allowed here cannot nest, so they cannot either.
_SIMPLE_PATTERN = re.compile(r"\^?(?:[\w \-/:,@]|\\?\.|\.\*)*\$?(?:\|\^?(?:[\w \-/:,@]|\\?\.|\.\*)*\$?)*")
_MAX_WILDCARDS = 1


class _Entry(msgspec.Struct, frozen=True):
    """One tool as it is searched."""

    tool: Tool
    words: Counter[str]
    tags: frozenset[str]

    @property
    def text(self) -> str:
        return f"{self.tool.name}\n{self.tool.description}"


class MemoryToolSearch:
    """Finds tools by their words: every word of the query, else any, else the query as a pattern, else as a piece.

    A word of the query finds the words that begin with it. Names count more than tags, tags more than descriptions. As
    a pattern, a query may use `^`, `$`, `.`, `.*` and `|`, ignoring case; anything else in it stands for itself.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    async def sync(self, tools: Sequence[Tool]) -> None:
        """Make the index hold exactly `tools`; those that have not changed keep their entries."""
        entries: dict[str, _Entry] = {}
        for tool in tools:
            known = self._entries.get(tool.name)
            entries[tool.name] = known if known is not None and known.tool is tool else _entry(tool)
        self._entries = entries

    async def search(self, query: str, *, tags: tuple[str, ...] = (), limit: int = 20) -> list[str]:
        """The names of at most `limit` tools that match `query` and carry all of `tags`, best first.

        Without words in it a query finds all tools that carry the tags, the newest first.
        """
        wanted = frozenset(tag.strip().lower() for tag in tags if tag.strip())
        entries = [entry for entry in reversed(self._entries.values()) if wanted <= entry.tags]
        query = query.strip()[:_MAX_QUERY_CHARS]
        if not query:
            return [entry.tool.name for entry in entries[:limit]]
        return _ladder(entries, query)[:limit]

    async def aclose(self) -> None:
        """Forget all tools."""
        self._entries = {}


def _ladder(entries: list[_Entry], query: str) -> list[str]:
    """The names that the first rung with any result finds."""
    words = list(_words(query))
    return (
        (_ranked(entries, words, all) or _ranked(entries, words, any) if words else [])
        or _by_pattern(entries, query)
        or [entry.tool.name for entry in entries if query.lower() in entry.text.lower()]
    )


def _ranked(entries: list[_Entry], words: list[str], needed: Callable[[Iterable[bool]], bool]) -> list[str]:
    scored: list[tuple[int, str]] = []
    for entry in entries:
        scores = [_score(entry, word) for word in words]
        if needed(score > 0 for score in scores):
            scored.append((sum(scores), entry.tool.name))
    return [name for _, name in sorted(scored, key=lambda one: (-one[0], one[1]))]


def _score(entry: _Entry, word: str) -> int:
    """How well a tool answers to one word: the word itself counts double."""
    whole = entry.words[word]
    return whole + max((weight for known, weight in entry.words.items() if known.startswith(word)), default=0)


def _by_pattern(entries: list[_Entry], query: str) -> list[str]:
    if _SIMPLE_PATTERN.fullmatch(query) is None or query.count(".*") > _MAX_WILDCARDS:
        return []
    pattern = re.compile(query, re.IGNORECASE | re.MULTILINE)
    return [entry.tool.name for entry in entries if pattern.search(entry.text)]


def _entry(tool: Tool) -> _Entry:
    words: Counter[str] = Counter()
    for text, weight in (
        (tool.name, _NAME_WEIGHT),
        (" ".join(tool.tags), _TAG_WEIGHT),
        (tool.description, _DESCRIPTION_WEIGHT),
    ):
        for word in set(_words(text)):
            words[word] += weight
    return _Entry(tool, words, frozenset(tag.lower() for tag in tool.tags))


def _words(text: str) -> Iterable[str]:
    """The words of a text in lower case; `readFile`, `read_file` and `read-file` are two words each."""
    return (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text)))
