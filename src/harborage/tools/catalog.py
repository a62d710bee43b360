"""The catalog of tools: registered by name, listed by scope, replaced all or nothing, searched through an index.

A catalog belongs to one event loop and is shared by all runs. It never calls a tool, and it knows a run only through
the `CatalogView` that was made for it. The index in memory needs nothing to install and looks at every tool at each
search; larger catalogs use an index of their own behind the same protocol.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import force_setattr, replace

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CancelScope
from harborage.errors import InvalidOptionError, all_of, names_of
from harborage.tools.enums import Loading, OnUnknown
from harborage.tools.errors import (
    ToolDuplicateNameError,
    ToolError,
    ToolExampleInvalidError,
    ToolInvalidError,
    ToolNotFoundError,
)
from harborage.tools.model import Tool, ToolDescriptor
from harborage.tools.naming import distinct
from harborage.tools.typed import how_to_bind, is_unbound

Tools: TypeAlias = list[Tool]

_log = logging.getLogger(__name__)

SYNC_BUDGET_S = 5.0
DEFAULT_LIMIT = 20
MAX_LIMIT = 200


class ToolSearch(Protocol):
    """An index over tools, for the deferred ones that are not shown at every step."""

    async def sync(self, tools: Sequence[Tool]) -> None:
        """Make the index hold exactly `tools`: add and update by name, remove the rest."""
        ...

    async def search(self, query: str, *, tags: tuple[str, ...] = (), limit: int = DEFAULT_LIMIT) -> list[str]:
        """Return the names of at most `limit` tools that match `query` and have all of `tags`, best first."""
        ...

    async def aclose(self) -> None:
        """Release the index's resources."""
        ...


class CatalogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools to list. Without loading modes only those that are always loaded; `search` is a regular expression.

    `search` looks into names and descriptions. The identity fields are for audits: they never change what is visible.
    """

    tenant_id: str = ""
    user_id: str = ""
    session_id: str = ""
    granted_scopes: frozenset[str] = frozenset()
    loading_modes: tuple[Loading, ...] = ()
    search: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "granted_scopes", frozenset(names_of(self.granted_scopes, "granted_scopes")))
        force_setattr(self, "loading_modes", all_of(Loading, self.loading_modes, "loading_modes"))


class ToolCatalog:
    """The tools of one system. With a `search` index it can also be searched; the index is brought up to date then.

    Indexing gets five seconds of `clock`; an index that fails or takes longer costs results, never the caller.
    """

    def __init__(self, *, search: ToolSearch | None = None, clock: Timers = SYSTEM_CLOCK) -> None:
        self._descriptors: dict[str, ToolDescriptor] = {}
        self._of_source: dict[str, Sequence[ToolDescriptor]] = {}
        self._source_of: dict[str, str] = {}
        self._search = search
        self._clock = clock
        self._version = 0
        self._indexed_version = 0

    @property
    def version(self) -> int:
        """A number that changes whenever the tools do; a listing is valid as long as it stays the same."""
        return self._version

    def register(self, descriptor: ToolDescriptor) -> None:
        """Add a tool.

        Raises:
            ToolDuplicateNameError: it has no name or no body, or its name is taken; the tool that has it stays.
            ToolExampleInvalidError, ToolInvalidError: the tool contradicts itself.
        """
        name = descriptor.tool.name
        if not name or name in self._descriptors:
            raise ToolDuplicateNameError(name)
        _check_descriptor(descriptor)
        self._descriptors[name] = descriptor
        self._version += 1

    def resolve(self, name: str) -> ToolDescriptor | None:
        """Return the tool of exactly this name, without a check of scopes; `CatalogView.descriptor` checks them."""
        return self._descriptors.get(name)

    @property
    def descriptors(self) -> Collection[ToolDescriptor]:
        """Every tool with how to call it, in the order in which they were added, without a check of scopes."""
        return self._descriptors.values()

    @property
    def tools(self) -> Tools:
        """Every tool, sorted by name, without a check of scopes."""
        return sorted((each.tool for each in self._descriptors.values()), key=lambda tool: tool.name)

    def list(self, filter: CatalogFilter | None = None) -> Tools:
        """Return the tools that pass `filter`, sorted by name.

        Raises:
            InvalidOptionError: its search is not a regular expression.
        """
        wanted = CatalogFilter() if filter is None else filter
        modes = wanted.loading_modes or (Loading.ALWAYS,)
        pattern = _compile_search(wanted.search)
        return sorted(
            (
                each.tool
                for each in self._descriptors.values()
                if each.tool.loading in modes
                and not each.unavailable
                and each.tool.is_granted(wanted.granted_scopes)
                and (pattern is None or pattern.search(each.tool.name) or pattern.search(each.tool.description))
            ),
            key=lambda tool: tool.name,
        )

    def replace(self, descriptors: Mapping[str, ToolDescriptor]) -> None:
        """Swap the named tools, all or none.

        Raises:
            ToolNotFoundError: a name is unknown.
            ToolInvalidError: a replacement is named otherwise.
            ToolDuplicateNameError, ToolExampleInvalidError, ToolInvalidError: as for `register`.
        """
        for name, descriptor in descriptors.items():
            if name not in self._descriptors:
                raise ToolNotFoundError(name)
            if descriptor.tool.name != name:
                found = descriptor.tool.name
                reason = f"it cannot be replaced by one that is named {found!r}; keep the name"
                raise ToolInvalidError(name, "name", reason)
            _check_descriptor(descriptor)
        self._descriptors = {**self._descriptors, **descriptors}
        self._version += 1

    def assign(
        self, source: str, descriptors: Sequence[ToolDescriptor], *, reserved: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Make the tools of a source exactly these; return why others of them are left out, one text each.

        A name that a tool of the program's own code or of another source has gets a mark at its end; one that is
        empty, comes twice, or is `reserved` is left out. Nothing changes when it is the very same listing as before.
        """
        if self._of_source.get(source) is descriptors:
            return ()
        kept = {name: one for name, one in self._descriptors.items() if self._source_of.get(name) != source}
        skipped: list[str] = []
        found: dict[str, ToolDescriptor] = {}
        seen: set[str] = set()
        for one in descriptors:
            name = one.tool.name
            reason = _why_left_out(name, seen, reserved)
            seen.add(name)
            try:
                if not reason:
                    _check_descriptor(one)
            except ToolError as error:
                reason = str(error)
            if reason:
                skipped.append(f"{source}: the tool {name!r} is left out: {reason}")
                continue
            given = distinct(name, source, name, lambda wanted: wanted in kept or wanted in found)
            found[given] = one if given == name else replace(one, tool=replace(one.tool, name=given))
        self._descriptors = {**kept, **found}
        self._source_of = {name: of for name, of in self._source_of.items() if of != source} | dict.fromkeys(
            found, source
        )
        self._of_source[source] = descriptors
        self._version += 1
        return tuple(skipped)

    async def search(self, query: str, *, tags: tuple[str, ...] = (), limit: int = DEFAULT_LIMIT) -> Tools:
        """Return the tools that the index finds, deferred ones too, best first; none without a working index."""
        if self._search is None:
            return []
        await self._sync_index(self._search)
        try:
            names = await self._search.search(query, tags=tags, limit=clamp_limit(limit))
        except Exception:  # noqa: BLE001 - a driver that fails costs results only
            _log.warning("tool search failed; no tools found", exc_info=True)
            return []
        found = (self._descriptors[name] for name in names if name in self._descriptors)
        return [one.tool for one in found if not one.unavailable]

    async def _sync_index(self, index: ToolSearch) -> None:
        version = self._version
        if version == self._indexed_version:
            return
        try:
            with CancelScope(self._clock, SYNC_BUDGET_S) as scope:
                await index.sync([each.tool for each in self._descriptors.values()])
                self._indexed_version = version
        except Exception:  # noqa: BLE001 - as above
            _log.warning("the tool search index could not be brought up to date", exc_info=True)
            return
        if scope.was_cancelled:
            _log.warning("the tool search index took longer than %s s to be brought up to date", SYNC_BUDGET_S)


class CatalogView:
    """The tools that one run may see and call: those whose scopes are all granted to it.

    A planner lists the tools of the given loading modes; it can resolve deferred ones once it knows their names. Tools
    that are `hidden` are not there for it.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        *,
        granted_scopes: frozenset[str] = frozenset(),
        loading: tuple[Loading, ...] = (Loading.ALWAYS,),
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        self._catalog = catalog
        self._hidden = hidden
        self._filter = CatalogFilter(granted_scopes=granted_scopes, loading_modes=loading)
        self._listed: Tools = []
        self._listed_version = -1

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of this name, if the run may see it."""
        descriptor = self.descriptor(name)
        return None if descriptor is None else descriptor.tool

    def descriptor(self, name: str) -> ToolDescriptor | None:
        """Return the tool of this name and how to call it, if the run may see it; dispatchers use this."""
        found = None if name in self._hidden else self._catalog.resolve(name)
        if found is None or found.unavailable or not found.tool.is_granted(self._filter.granted_scopes):
            return None
        return found

    def without(self, names: Iterable[str]) -> CatalogView:
        """Return the same view without the tools of these names."""
        scopes, loading = self._filter.granted_scopes, self._filter.loading_modes
        hidden = self._hidden.union(names)
        return CatalogView(self._catalog, granted_scopes=scopes, loading=loading, hidden=hidden)

    def list(self) -> Tools:
        """Return the visible tools, sorted by name."""
        if self._listed_version != self._catalog.version:
            found, self._listed_version = self._catalog.list(self._filter), self._catalog.version
            self._listed = [each for each in found if each.name not in self._hidden]
        return self._listed.copy()

    async def search(self, query: str, *, tags: tuple[str, ...] = (), limit: int = DEFAULT_LIMIT) -> Tools:
        """Return what the catalog's search finds and the run may see."""
        found = await self._catalog.search(query, tags=tags, limit=limit)
        granted = self._filter.granted_scopes
        return [each for each in found if each.name not in self._hidden and each.is_granted(granted)]


def _why_left_out(name: str, seen: Collection[str], reserved: Collection[str]) -> str:
    """Why a tool of a source is not taken, by its name; empty when it is."""
    if not name.strip() or not name.isprintable():
        return "it has no printable name"
    if name in seen:
        return "the source lists it twice"
    return "the name is one of the runtime's own" if name in reserved else ""


def clamp_limit(limit: int) -> int:
    """Return `limit` within 1 to 200, or 20 for anything else."""
    return limit if 1 <= limit <= MAX_LIMIT else DEFAULT_LIMIT


def _compile_search(search: str) -> re.Pattern[str] | None:
    try:
        return re.compile(search) if search else None
    except re.error as error:
        raise InvalidOptionError("search", search, f"a regular expression; this is none: {error}") from error


def _check_descriptor(descriptor: ToolDescriptor) -> None:
    """Refuse a tool without its body or probe, or with an invalid example or MIME pattern."""
    tool = descriptor.tool
    if not callable(descriptor.body):
        raise ToolDuplicateNameError(tool.name, f"tool {tool.name!r} needs a body to call")
    if is_unbound(descriptor):
        raise ToolInvalidError(tool.name, "function", how_to_bind(descriptor))
    if tool.on_unknown is OnUnknown.PROBE and descriptor.probe is None:
        reason = "interrupted calls are to be probed, but it has no probe; pass `probe=`"
        raise ToolInvalidError(tool.name, "probe", reason)
    known = tool.args_schema.get("properties")
    for example in tool.examples if known else ():
        unknown = tuple(sorted(set(example.args) - set(known or ())))
        if unknown:
            raise ToolExampleInvalidError(tool.name, unknown)
    for pattern in tool.handles_mime:
        if not re.match(_MIME, pattern):
            reason = f"handles_mime {pattern!r} must be an exact type or 'type/*' ('*/*' is not valid)"
            raise ToolInvalidError(tool.name, "handles_mime", reason)


_MIME = r"^[^/*\s]+/(\*|[^/*\s]+)$"


_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_WEIGHT = 4
_TAG_WEIGHT = 3
_DESCRIPTION_WEIGHT = 1
_MAX_QUERY_CHARS = 512
# Python's expressions can take exponential time; the few signs allowed here cannot nest, so they cannot either.
# As text: `re` compiles it for the first search and keeps it.
_SIMPLE_PATTERN = r"\^?(?:[\w \-/:,@]|\\?\.|\.\*)*\$?(?:\|\^?(?:[\w \-/:,@]|\\?\.|\.\*)*\$?)*"
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
    a pattern, a query may use `^`, `$`, `.`, `.*` and `|`, ignoring case; any other character matches itself.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    async def sync(self, tools: Sequence[Tool]) -> None:
        """Make the index hold exactly `tools`; those that have not changed keep their entries."""
        entries: dict[str, _Entry] = {}
        for tool in tools:
            known = self._entries.get(tool.name)
            entries[tool.name] = known if known is not None and known.tool is tool else _make_entry(tool)
        self._entries = entries

    async def search(self, query: str, *, tags: tuple[str, ...] = (), limit: int = 20) -> list[str]:
        """Return the names of at most `limit` tools that match `query` and have all of `tags`, best first.

        An empty query finds all tools with the tags, the newest first.
        """
        wanted = frozenset(tag.strip().lower() for tag in tags if tag.strip())
        entries = [entry for entry in reversed(self._entries.values()) if wanted <= entry.tags]
        query = query.strip()[:_MAX_QUERY_CHARS]
        if not query:
            return [entry.tool.name for entry in entries[:limit]]
        return _search_entries(entries, query)[:limit]

    async def aclose(self) -> None:
        """Drop all tools."""
        self._entries = {}


def _search_entries(entries: list[_Entry], query: str) -> list[str]:
    """Return the names that the first kind of search with a result finds."""
    words = list(_split_words(query))
    return (
        (_rank(entries, words, all) or _rank(entries, words, any) if words else [])
        or _match_pattern(entries, query)
        or [entry.tool.name for entry in entries if query.lower() in entry.text.lower()]
    )


def _rank(entries: list[_Entry], words: list[str], needed: Callable[[Iterable[bool]], bool]) -> list[str]:
    scored: list[tuple[int, str]] = []
    for entry in entries:
        scores = [_score(entry, word) for word in words]
        if needed(score > 0 for score in scores):
            scored.append((sum(scores), entry.tool.name))
    return [name for _, name in sorted(scored, key=lambda one: (-one[0], one[1]))]


def _score(entry: _Entry, word: str) -> int:
    """Return how well a tool matches one word; the whole word counts double."""
    whole = entry.words[word]
    return whole + max((weight for known, weight in entry.words.items() if known.startswith(word)), default=0)


def _match_pattern(entries: list[_Entry], query: str) -> list[str]:
    if re.fullmatch(_SIMPLE_PATTERN, query) is None or query.count(".*") > _MAX_WILDCARDS:
        return []
    pattern = re.compile(query, re.IGNORECASE | re.MULTILINE)
    return [entry.tool.name for entry in entries if pattern.search(entry.text)]


def _make_entry(tool: Tool) -> _Entry:
    words: Counter[str] = Counter()
    for text, weight in (
        (tool.name, _NAME_WEIGHT),
        (" ".join(tool.tags), _TAG_WEIGHT),
        (tool.description, _DESCRIPTION_WEIGHT),
    ):
        for word in set(_split_words(text)):
            words[word] += weight
    return _Entry(tool, words, frozenset(tag.lower() for tag in tool.tags))


def _split_words(text: str) -> Iterable[str]:
    """Yield the words of a text in lower case; `readFile`, `read_file` and `read-file` are two words each."""
    return (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text)))
