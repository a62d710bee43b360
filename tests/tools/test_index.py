"""The index in memory: its rungs, its ranks and what it never does."""

from __future__ import annotations

import pytest

from harborage.tools import CatalogView, Loading, Tool, ToolCatalog, ToolDescriptor, ToolResult
from harborage.tools.index import MemoryToolSearch
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

TOOLS = (
    Tool("read_file", "Read a text file.", tags=("Files",)),
    Tool("write_file", "Write a text file.", tags=("files", "danger")),
    Tool("weather.today", "Tell the weather of a city."),
    Tool("sendMail", "Send a message (v2) to a person.", tags=("mail",)),
)


@pytest.fixture
async def index() -> MemoryToolSearch:
    """An index over four tools."""
    made = MemoryToolSearch()
    await made.sync(TOOLS)
    return made


@each_row(
    "query, expected",
    [
        ("read file", ["read_file"]),  # every word
        ("FILE", ["read_file", "write_file"]),
        ("send", ["sendMail"]),  # a name in camel case is two words
        ("weath", ["weather.today"]),  # the beginning of a word
        ("file weather", ["read_file", "weather.today", "write_file"]),  # any word, when none has all
        ("^send", ["sendMail"]),
        ("ea.*le$", ["read_file"]),  # a pattern over the name
        ("ead_", ["read_file"]),
        ("SAGE (", ["sendMail"]),  # a piece of the text, where nothing else fits
        ("(v2)", ["sendMail"]),
        ("zzz", []),
        ("((((", []),
        ("  ", ["sendMail", "weather.today", "write_file", "read_file"]),  # everything, newest first
    ],
)
async def test_a_query_climbs_down_the_ladder(index: MemoryToolSearch, query: str, expected: list[str]) -> None:
    """All words, any word, a pattern, a piece: the first that finds something wins."""
    assert await index.search(query) == expected


async def test_all_tags_are_needed_in_any_case(index: MemoryToolSearch) -> None:
    """Tags narrow every query, and an empty one to what carries them."""
    assert await index.search("", tags=("FILES",)) == ["write_file", "read_file"]
    assert await index.search("file", tags=("files", "Danger")) == ["write_file"]
    assert await index.search("weather", tags=("files",)) == []


async def test_names_weigh_more_than_descriptions() -> None:
    """A tool that is called what was asked for comes before one that only mentions it."""
    index = MemoryToolSearch()
    await index.sync([Tool("aaa", "Convert a clock."), Tool("clock", "Tell the time.")])
    assert await index.search("clock") == ["clock", "aaa"]
    assert await index.search("clock", limit=1) == ["clock"]


async def test_the_index_holds_exactly_what_it_was_given(index: MemoryToolSearch) -> None:
    """Tools that are gone are not found, changed ones are found by their new words, and nothing is left at the end."""
    await index.sync([Tool("read_file", "Read a picture.")])
    assert await index.search("picture") == ["read_file"]
    assert await index.search("weather") == []
    await index.aclose()
    assert await index.search("") == []


async def test_a_pattern_made_to_run_for_ever_does_not() -> None:
    """Signs that nest are not read as a pattern, so no query takes more than a look at each tool."""
    index = MemoryToolSearch()
    await index.sync([Tool("aaaa", "a" * 5_000)])
    assert await index.search("(a+)+$ :!") == ["aaaa"]  # its word `a` is found; the pattern is never tried
    assert await index.search("^(((a*)*)*)*!") == ["aaaa"]
    assert await index.search("!.*!.*!.*!") == []


async def test_a_catalog_over_the_index_finds_deferred_tools_that_may_be_seen() -> None:
    """What a view may not see is not found, and what is registered later is."""

    async def body(_args: bytes, _call: object) -> ToolResult:
        return ToolResult()

    catalog = ToolCatalog(search=MemoryToolSearch())
    view = CatalogView(catalog, granted_scopes=frozenset({"a"}))
    catalog.register(ToolDescriptor(Tool("open", loading=Loading.DEFERRED, auth_scopes=("a",)), body))
    catalog.register(ToolDescriptor(Tool("opener", auth_scopes=("b",)), body))
    assert [found.name for found in await view.search("open")] == ["open"]
    catalog.register(ToolDescriptor(Tool("open_later"), body))
    assert [found.name for found in await view.search("open")] == ["open", "open_later"]
