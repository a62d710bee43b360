"""The catalog of tools and its index in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
import pytest

from harborage.errors import InvalidOptionError
from harborage.testing.clock import FakeClock
from harborage.tools import (
    CallContext,
    CatalogFilter,
    CatalogView,
    Loading,
    Tool,
    ToolCatalog,
    ToolDescriptor,
    ToolDuplicateNameError,
    ToolExample,
    ToolExampleInvalidError,
    ToolInvalidError,
    ToolNotFoundError,
    ToolResult,
)
from harborage.tools.catalog import MemoryToolSearch, clamp_limit
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


async def nothing(args: bytes, call: CallContext) -> ToolResult:
    """A body that does nothing."""
    return ToolResult()


def described(name: str, **fields: object) -> ToolDescriptor:
    """A tool with a body that does nothing."""
    return ToolDescriptor(msgspec.structs.replace(Tool(name), **fields), nothing)


def filled(*descriptors: ToolDescriptor) -> ToolCatalog:
    """A catalog of these tools."""
    catalog = ToolCatalog()
    for each in descriptors:
        catalog.register(each)
    return catalog


def names(tools: Sequence[Tool]) -> list[str]:
    """The names in order."""
    return [tool.name for tool in tools]


class Index:
    """A search index that finds every tool whose name holds the query."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.syncs = 0
        self.limits: list[int] = []
        self.failure: Exception | None = None
        self.hangs = False

    async def sync(self, tools: Sequence[Tool]) -> None:
        self.syncs += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure:
            raise self.failure
        self.known = names(tools)

    async def search(self, query: str, *, tags: tuple[str, ...] = (), limit: int = 20) -> list[str]:
        if self.failure:
            raise self.failure
        self.limits.append(limit)
        return [name for name in self.known if query in name]

    async def aclose(self) -> None:
        """Nothing to release."""


class TestRegister:
    """`ToolCatalog.register`."""

    def test_a_name_is_taken_once(self) -> None:
        """A second tool of one name is refused and the first stays."""
        first = described("a")
        catalog = filled(first)
        with pytest.raises(ToolDuplicateNameError) as caught:
            catalog.register(described("a"))
        assert caught.value.name == "a"
        assert catalog.resolve("a") is first

    def test_a_tool_needs_a_name_and_a_body(self) -> None:
        """A tool without a name or without a body is refused."""
        with pytest.raises(ToolDuplicateNameError):
            filled(described(""))
        with pytest.raises(ToolDuplicateNameError):
            filled(ToolDescriptor(Tool("a"), None))  # type: ignore[arg-type]

    def test_an_example_uses_the_arguments_there_are(self) -> None:
        """An example with an argument that the schema lacks is refused, and the tool is not registered."""
        schema = {"properties": {"x": {}}}
        catalog = ToolCatalog()
        bad = described("a", args_schema=schema, examples=(ToolExample({"x": 1}), ToolExample({"zzz": 1})))
        with pytest.raises(ToolExampleInvalidError) as caught:
            catalog.register(bad)
        assert (caught.value.name, caught.value.unknown) == ("a", ("zzz",))
        assert catalog.resolve("a") is None

    def test_examples_of_a_schema_without_properties_are_taken_on_trust(self) -> None:
        """Nothing is known about the arguments, so no example can be wrong."""
        assert filled(described("a", examples=(ToolExample({"zzz": 1}),))).resolve("a") is not None

    @each_row("pattern", ["*/*", "audio", "", "/", "audio/", "*/x", "a b/c", "a/b/c"])
    def test_a_mime_pattern_is_exact_or_a_family(self, pattern: str) -> None:
        """Anything but `type/subtype` and `type/*` is refused."""
        with pytest.raises(ToolInvalidError):
            filled(described("a", handles_mime=("audio/*", "image/svg+xml", pattern)))

    def test_names_are_case_sensitive(self) -> None:
        """`A` and `a` are two tools."""
        catalog = filled(described("a"), described("A"))
        assert catalog.resolve("a") is not catalog.resolve("A")
        assert catalog.resolve("b") is None


class TestList:
    """`ToolCatalog.list`."""

    def test_tools_are_sorted_by_name(self) -> None:
        """The order of registration does not show."""
        assert names(filled(described("b"), described("a"), described("c")).list()) == ["a", "b", "c"]

    def test_deferred_tools_are_listed_only_on_request(self) -> None:
        """No modes mean `always` alone; both modes show everything."""
        catalog = filled(described("a"), described("d", loading=Loading.DEFERRED))
        assert names(catalog.list(CatalogFilter())) == ["a"]
        assert names(catalog.list(CatalogFilter(loading_modes=(Loading.DEFERRED,)))) == ["d"]
        assert names(catalog.list(CatalogFilter(loading_modes=(Loading.ALWAYS, Loading.DEFERRED)))) == ["a", "d"]

    @pytest.mark.parametrize(("granted", "listed"), [({"a"}, ["free"]), ({"a", "b", "c"}, ["free", "guarded"])])
    def test_a_tool_is_visible_to_callers_with_all_its_scopes(self, granted: set[str], listed: list[str]) -> None:
        """Every scope of a tool must be granted."""
        catalog = filled(described("guarded", auth_scopes=("a", "b")), described("free"))
        assert names(catalog.list(CatalogFilter(granted_scopes=frozenset(granted)))) == listed

    def test_search_is_a_regular_expression_over_names_and_descriptions(self) -> None:
        """A tool is listed when its name or its description matches."""
        catalog = filled(described("mail.send"), described("mail_box"), described("x", description="sends mail.now"))
        assert names(catalog.list(CatalogFilter(search=r"mail\."))) == ["mail.send", "x"]
        assert names(catalog.list(CatalogFilter(search="^mail"))) == ["mail.send", "mail_box"]

    def test_a_search_that_is_no_regular_expression_is_refused(self) -> None:
        """The error says so instead of listing nothing."""
        with pytest.raises(InvalidOptionError):
            filled(described("a")).list(CatalogFilter(search="("))

    def test_identity_does_not_change_what_is_visible(self) -> None:
        """The identity of a filter is for audits."""
        catalog = filled(described("a"))
        assert catalog.list(CatalogFilter(tenant_id="t", user_id="u", session_id="s")) == catalog.list()


class TestReplace:
    """`ToolCatalog.replace`."""

    def test_tools_are_swapped_together(self) -> None:
        """Every named tool is replaced and the others stay."""
        catalog = filled(described("a"), described("b"), described("c"))
        kept = catalog.resolve("c")
        catalog.replace({name: described(name, description="new") for name in ("a", "b")})
        assert [tool.description for tool in catalog.list()] == ["new", "new", ""]
        assert catalog.resolve("c") is kept

    @pytest.mark.parametrize(
        ("second", "error"),
        [
            (("zzz", "zzz"), ToolNotFoundError),
            (("b", "other"), ToolInvalidError),
        ],
    )
    def test_one_bad_replacement_changes_nothing(self, second: tuple[str, str], error: type[Exception]) -> None:
        """An unknown name, or a tool of another name, leaves the catalog untouched."""
        catalog = filled(described("a"), described("b"))
        before = catalog.resolve("a"), catalog.version
        with pytest.raises(error):
            catalog.replace({"a": described("a", description="new"), second[0]: described(second[1])})
        assert (catalog.resolve("a"), catalog.version) == before


class TestView:
    """`CatalogView`, what one run may see."""

    def test_a_hidden_tool_can_be_neither_listed_nor_resolved(self) -> None:
        """Knowing the name of a tool does not open it."""
        catalog = filled(described("open"), described("closed", auth_scopes=("admin",)))
        view = CatalogView(catalog)
        assert names(view.list()) == ["open"]
        assert view.resolve("closed") is None
        assert view.descriptor("closed") is None
        granted = CatalogView(catalog, granted_scopes=frozenset({"admin"}))
        assert names(granted.list()) == ["closed", "open"]
        assert granted.descriptor("closed") is catalog.resolve("closed")

    def test_a_deferred_tool_is_resolved_but_not_listed(self) -> None:
        """A planner that learned the name of a deferred tool may use it."""
        view = CatalogView(filled(described("d", loading=Loading.DEFERRED)))
        assert view.list() == []
        assert view.resolve("d") == Tool("d", loading=Loading.DEFERRED)
        assert view.resolve("zzz") is None

    def test_the_loading_modes_of_a_view_can_be_widened(self) -> None:
        """A view may be told to list deferred tools, too."""
        view = CatalogView(filled(described("d", loading=Loading.DEFERRED)), loading=(Loading.ALWAYS, Loading.DEFERRED))
        assert names(view.list()) == ["d"]

    def test_a_view_follows_its_catalog(self) -> None:
        """What is registered or replaced later shows, and a list that was handed out stays the caller's."""
        catalog = filled(described("a"))
        view = CatalogView(catalog)
        view.list().clear()
        assert names(view.list()) == ["a"]
        catalog.register(described("b"))
        assert names(view.list()) == ["a", "b"]
        catalog.replace({"a": described("a", auth_scopes=("admin",))})
        assert names(view.list()) == ["b"]

    async def test_searching_a_view_does_not_find_what_is_hidden(self) -> None:
        """The scopes hold for search results, too."""
        catalog = ToolCatalog(search=Index())
        catalog.register(described("open"))
        catalog.register(described("opera", auth_scopes=("admin",)))
        assert names(await CatalogView(catalog).search("ope")) == ["open"]


class TestSearch:
    """`ToolCatalog.search`."""

    async def test_without_an_index_nothing_is_found(self) -> None:
        """A catalog without an index answers every search with nothing."""
        assert await filled(described("a")).search("a") == []

    async def test_the_index_is_brought_up_to_date_when_tools_changed(self) -> None:
        """Tools registered since the last search are found; an unchanged catalog is not indexed again."""
        index = Index()
        catalog = ToolCatalog(search=index)
        catalog.register(described("alpha", loading=Loading.DEFERRED))
        assert names(await catalog.search("a")) == ["alpha"]
        assert names(await catalog.search("a")) == ["alpha"]
        assert index.syncs == 1
        catalog.register(described("beta"))
        assert names(await catalog.search("a")) == ["alpha", "beta"]
        assert index.syncs == 2

    async def test_an_index_that_fails_finds_nothing_and_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """A broken index costs results, not the caller; a warning says why."""
        index = Index()
        index.failure = OSError("disk")
        catalog = ToolCatalog(search=index)
        catalog.register(described("a"))
        with caplog.at_level(logging.WARNING):
            assert await catalog.search("a") == []
        assert len(caplog.records) == 2

    async def test_a_tool_that_left_no_index_behind_is_not_found(self) -> None:
        """A name that the index knows and the catalog does not is passed over."""
        index = Index()
        catalog = ToolCatalog(search=index)
        catalog.register(described("a"))
        await catalog.search("a")
        index.known.append("aa")
        assert names(await catalog.search("a")) == ["a"]

    async def test_bringing_the_index_up_to_date_takes_five_seconds_at_most(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An index that hangs is left behind after its budget, and the next search tries again."""
        clock, index = FakeClock(), Index()
        index.hangs = True
        catalog = ToolCatalog(search=index, clock=clock)
        catalog.register(described("a"))
        searching = asyncio.ensure_future(catalog.search("a"))
        await clock.run_for(4.9)
        assert not searching.done()
        with caplog.at_level(logging.WARNING):
            await clock.run_for(0.2)
        assert await searching == []
        assert len(caplog.records) == 1
        index.hangs = False
        assert names(await catalog.search("a")) == ["a"]

    @each_row("limit, used", [(1, 1), (200, 200), (0, 20), (-1, 20), (201, 20)])
    async def test_a_limit_out_of_range_is_20(self, limit: int, used: int) -> None:
        """The limit is between 1 and 200; anything else means 20."""
        index = Index()
        await ToolCatalog(search=index).search("a", limit=limit)
        assert index.limits == [used]
        assert clamp_limit(limit) == used


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
