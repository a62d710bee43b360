"""The built-in tools."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts import ArtifactScope, ArtifactStore, MemoryArtifactStore
from harborage.identity import IdentityRequiredError, Quadruple
from harborage.testing.clock import FakeClock
from harborage.tools import (
    CallContext,
    CatalogView,
    Invoker,
    Loading,
    SideEffect,
    Tool,
    ToolCatalog,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolResult,
)
from harborage.tools.builtin import (
    ArtifactStoreRequiredError,
    artifact_fetch,
    clock_now,
    text_echo,
    tool_get,
    tool_search,
)
from harborage.tools.catalog import MemoryToolSearch
from harborage.tools.enums import BUILT_IN_TOOL_NAMES
from tests.kit.tables import each_row


@pytest.fixture
def call() -> CallContext:
    """A call with a whole identity."""
    clock = FakeClock(datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC))
    return CallContext(Quadruple("t", "u", "s", "r-1"), "c-1", "key-1", clock=clock)


pytestmark = pytest.mark.anyio

MAKERS: dict[str, Callable[[], ToolDescriptor]] = {
    "artifact_fetch": lambda: artifact_fetch(MemoryArtifactStore()),
    "clock.now": clock_now,
    "text.echo": text_echo,
    "tool_get": lambda: tool_get(CatalogView(ToolCatalog())),
    "tool_search": lambda: tool_search(CatalogView(ToolCatalog())),
}
ARGS: dict[str, dict[str, Any]] = {
    "artifact_fetch": {"ref": "x"},
    "clock.now": {},
    "text.echo": {"text": "x"},
    "tool_get": {"name": "x"},
    "tool_search": {"query": "x"},
}


async def invoked(descriptor: ToolDescriptor, args: object, call: CallContext) -> Any:
    """What the tool gives, under its policy and checks."""
    return (await Invoker().invoke(descriptor, codec.encode(args), call)).value


async def test_the_clock_is_read_twice_for_a_call(call: CallContext) -> None:
    """RFC 3339 in UTC and milliseconds since the epoch are the same moment."""
    assert await invoked(clock_now(), {}, call) == {
        "rfc3339": "2026-03-04T05:06:07.890Z",
        "epoch_ms": 1_772_600_767_890,
        "timezone": "UTC",
    }


async def test_the_echo_returns_its_text_and_its_tag(call: CallContext) -> None:
    """The tag comes back when one was given."""
    assert await invoked(text_echo(), {"text": "hi"}, call) == {"echoed": "hi"}
    assert await invoked(text_echo(), {"text": "", "tag": "x"}, call) == {"echoed": "", "tag": "x"}


@each_row("name", MAKERS)
async def test_every_tool_needs_the_whole_triple(name: str, call: CallContext) -> None:
    """A part of the identity that is missing is a hard error; the run is not asked for."""
    for who in (Quadruple(), Quadruple("t", "u", "", "r"), Quadruple("", "u", "s", "r")):
        with pytest.raises(IdentityRequiredError, match=name.replace(".", r"\.")):
            await invoked(MAKERS[name](), ARGS[name], replace(call, who=who))
    await invoked(MAKERS[name](), ARGS[name], replace(call, who=Quadruple("t", "u", "s")))


@each_row("name", MAKERS)
async def test_every_tool_describes_itself(name: str) -> None:
    """Name, description, every parameter's description and a closed schema are there for the model."""
    tool = MAKERS[name]().tool
    assert tool.name == name
    assert tool.name in BUILT_IN_TOOL_NAMES
    assert tool.description
    assert all(each["description"] for each in tool.args_schema["properties"].values())
    assert tool.args_schema["additionalProperties"] is False
    assert "builtin" in tool.tags
    assert tool.loading is Loading.ALWAYS


@each_row(
    "name, effect, tags",
    [
        ("clock.now", SideEffect.PURE, {"builtin"}),
        ("text.echo", SideEffect.PURE, {"builtin"}),
        ("tool_search", SideEffect.READ, {"builtin", "meta", "discovery"}),
        ("tool_get", SideEffect.READ, {"builtin", "meta", "discovery"}),
        ("artifact_fetch", SideEffect.READ, {"builtin", "meta", "artifact"}),
    ],
)
def test_side_effects_and_tags_are_as_promised(name: str, effect: SideEffect, tags: set[str]) -> None:
    """None of them changes anything, so each may be called again after a crash."""
    tool = MAKERS[name]().tool
    assert (tool.side_effects, set(tool.tags)) == (effect, tags)
    assert tool.is_repeatable


async def test_unknown_arguments_are_refused(call: CallContext) -> None:
    """As for every typed function."""
    with pytest.raises(ToolInvalidArgsError, match="unknown field"):
        await invoked(text_echo(), {"text": "x", "loud": True}, call)


async def nothing(_args: bytes, _call: CallContext) -> ToolResult:
    """A body."""
    return ToolResult()


def view_of(*tools: Tool, scopes: frozenset[str] = frozenset(), has_index: bool = True) -> CatalogView:
    """What a run sees of a catalog that holds `tools`."""
    catalog = ToolCatalog(search=MemoryToolSearch() if has_index else None)
    for tool in tools:
        catalog.register(ToolDescriptor(tool, nothing))
    return CatalogView(catalog, granted_scopes=scopes, loading=tuple(Loading))


async def searched(view: CatalogView, call: CallContext, **args: Any) -> Any:
    """The result of a search."""
    return (await Invoker().invoke(tool_search(view), codec.encode(args), call)).value


async def got(view: CatalogView, call: CallContext, name: str) -> Any:
    """The result of a look at one tool."""
    return (await Invoker().invoke(tool_get(view), codec.encode({"name": name}), call)).value


MANY = tuple(Tool(f"tool_{at:03}", "One of many.", tags=("odd",) if at % 2 else ()) for at in range(80))


async def test_deferred_tools_are_found_with_name_description_and_tags(call: CallContext) -> None:
    """A search finds what is not shown every turn."""
    view = view_of(Tool("ocr", "Read a picture.", tags=("vision",), loading=Loading.DEFERRED))
    assert await searched(view, call, query="picture") == {
        "tools": [{"name": "ocr", "description": "Read a picture.", "tags": ["vision"]}],
        "count": 1,
    }


@each_row("limit, count", [(0, 10), (-3, 10), (3, 3), (50, 50), (51, 50), (10_000, 50)])
async def test_the_limit_is_kept_in_bounds(call: CallContext, limit: int, count: int) -> None:
    """Nothing or less means ten, and more than fifty is fifty."""
    found = await searched(view_of(*MANY), call, query="", limit=limit)
    assert (found["count"], len(found["tools"])) == (count, count)


async def test_tags_narrow_a_search(call: CallContext) -> None:
    """Only tools that carry all of them are found."""
    found = await searched(view_of(*MANY), call, query="many", tags=["ODD"], limit=50)
    assert found["count"] == 40


async def test_hidden_tools_are_not_found_and_take_no_places(call: CallContext) -> None:
    """A run without a tool's scopes finds others instead, however well the hidden ones match."""
    hidden = [Tool(f"secret_{at}", "secret tool", auth_scopes=("admin",)) for at in range(60)]
    view = view_of(*hidden, Tool("plain", "A tool about secret keeping."))
    assert [one["name"] for one in (await searched(view, call, query="secret", limit=5))["tools"]] == ["plain"]
    seen = view_of(*hidden, scopes=frozenset({"admin"}))
    assert (await searched(seen, call, query="secret", limit=5))["count"] == 5


async def test_without_an_index_nothing_is_found(call: CallContext) -> None:
    """The result is empty, not an error."""
    assert await searched(view_of(*MANY, has_index=False), call, query="tool") == {"tools": [], "count": 0}


async def test_a_tool_is_described_with_its_schema(call: CallContext) -> None:
    """The schema is there when the tool has one."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    view = view_of(Tool("a", "Does a.", args_schema=schema), Tool("b"))
    assert await got(view, call, "a") == {
        "name": "a",
        "description": "Does a.",
        "found": True,
        "args_schema": schema,
    }
    assert await got(view, call, "b") == {"name": "b", "description": "", "found": True}


async def test_a_missing_and_a_hidden_tool_get_the_same_answer(call: CallContext) -> None:
    """A miss is reported softly, and does not say what others may call."""
    view = view_of(Tool("hidden", auth_scopes=("admin",)))
    hidden, missing = await got(view, call, "hidden"), await got(view, call, "missing")
    assert hidden["found"] is missing["found"] is False
    assert hidden["error"].replace("hidden", "missing") == missing["error"]
    assert "tool_search" in missing["error"]


SESSION = ArtifactScope("t", "u", "s")


@pytest.fixture
def store() -> MemoryArtifactStore:
    """An empty store."""
    return MemoryArtifactStore()


async def fetched(store: ArtifactStore | None, call: CallContext, ref: str, **args: Any) -> Any:
    """What the tool gives for a reference."""
    return (await Invoker().invoke(artifact_fetch(store), codec.encode({"ref": ref, **args}), call)).value


async def test_a_short_text_comes_whole(store: MemoryArtifactStore, call: CallContext) -> None:
    """With its type, its size, and the word that nothing is missing; blanks around the reference do not matter."""
    ref = await store.put_text(SESSION, "grün")
    assert await fetched(store, call, f"  {ref.id}\n") == {
        "ref": ref.id,
        "size_bytes": 5,
        "mime": "text/plain; charset=utf-8",
        "content": "grün",
        "truncated": False,
    }


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
async def test_reading_on_gives_the_whole_text_and_cuts_no_character(
    store: MemoryArtifactStore, call: CallContext, size: int
) -> None:
    """Pieces of any size, each read from where the last one ended, are the text."""
    text = "aé漢🌍 end"
    ref = await store.put_text(SESSION, text)
    offset, pieces = 0, []
    while True:
        piece = await fetched(store, call, ref.id, max_bytes=size, offset=offset)
        pieces.append(piece["content"])
        if not piece["truncated"]:
            break
        offset = piece["next_offset"]
    assert "".join(pieces) == text
    assert piece["size_bytes"] == len(text.encode())


async def test_an_offset_inside_a_character_is_reported_as_it_was_taken(
    store: MemoryArtifactStore, call: CallContext
) -> None:
    """The piece begins with the whole character and says where that is."""
    ref = await store.put_text(SESSION, "aé!")
    piece = await fetched(store, call, ref.id, offset=2)
    assert (piece["content"], piece["offset"]) == ("é!", 1)


async def test_bytes_that_are_no_text_come_in_base64(store: MemoryArtifactStore, call: CallContext) -> None:
    """A flag says so; ranges count the bytes themselves."""
    data = bytes(range(256))
    ref = await store.put_bytes(SESSION, data, mime_type="image/png")
    piece = await fetched(store, call, ref.id, offset=10, max_bytes=20)
    assert piece["base64"] is True
    assert base64.b64decode(piece["content"]) == data[10:30]
    assert (piece["offset"], piece["next_offset"], piece["size_bytes"]) == (10, 30, 256)


async def test_text_of_another_encoding_is_binary(store: MemoryArtifactStore, call: CallContext) -> None:
    """What says text but is no UTF-8 comes as the bytes it is."""
    ref = await store.put_bytes(SESSION, "grün".encode("latin-1"), mime_type="text/plain")
    piece = await fetched(store, call, ref.id)
    assert base64.b64decode(piece["content"]) == b"gr\xfcn"


@pytest.mark.parametrize(("asked", "given"), [(0, 65_536), (-5, 65_536), (100, 100), (1 << 30, 1 << 20)])
async def test_the_size_of_a_piece_is_kept_in_bounds(
    store: MemoryArtifactStore, call: CallContext, asked: int, given: int
) -> None:
    """Nothing or less means 64 KiB; nobody gets more than 1 MiB at once."""
    ref = await store.put_bytes(SESSION, b"x" * (2 << 20))
    piece = await fetched(store, call, ref.id, max_bytes=asked)
    assert len(piece["content"]) == given
    assert (piece["truncated"], piece["size_bytes"]) == (True, 2 << 20)


async def test_the_end_is_empty_and_past_the_end_is_an_error(store: MemoryArtifactStore, call: CallContext) -> None:
    """Reading on from the very end gives nothing; further is reported softly. A negative offset is the beginning."""
    ref = await store.put_text(SESSION, "abc")
    assert (await fetched(store, call, ref.id, offset=3))["content"] == ""
    assert "3 bytes" in (await fetched(store, call, ref.id, offset=4))["error"]
    assert (await fetched(store, call, ref.id, offset=-1))["content"] == "abc"


async def test_a_blank_reference_is_a_soft_error(store: MemoryArtifactStore, call: CallContext) -> None:
    """The model is told what is missing."""
    assert "ref is empty" in (await fetched(store, call, " \n"))["error"]


@pytest.mark.parametrize(
    "who",
    [Quadruple("t2", "u", "s", "r-1"), Quadruple("t", "u2", "s", "r-1"), Quadruple("t", "u", "s2", "r-1")],
)
async def test_what_others_have_is_not_found(store: MemoryArtifactStore, call: CallContext, who: Quadruple) -> None:
    """Another tenant's, user's or session's artifact and one that never was get the same answer."""
    ref = await store.put_text(SESSION, "mine")
    foreign = await fetched(store, replace(call, who=who), ref.id)
    unknown = await fetched(store, replace(call, who=who), "default_0123456789ab")
    assert foreign["error"] == unknown["error"]
    assert {**foreign, "ref": ""} == {**unknown, "ref": ""}


async def test_only_the_sessions_and_the_runs_own_artifacts_are_read(
    store: MemoryArtifactStore, call: CallContext
) -> None:
    """What this run's prompts were relieved of is kept under the run's task and can be read; another task's cannot."""
    own = await store.put_text(ArtifactScope("t", "u", "s", "r-1"), "own", namespace="llm.materialized")
    other = await store.put_text(ArtifactScope("t", "u", "s", "r-2"), "other")
    assert (await fetched(store, call, own.id))["content"] == "own"
    assert "error" in await fetched(store, call, other.id)
    assert "error" in await fetched(store, replace(call, who=Quadruple("t", "u", "s")), own.id)


async def test_an_artifact_whose_bytes_are_gone_is_not_there(
    store: MemoryArtifactStore, call: CallContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is deleted between the look and the read is reported like any other that is not there."""
    ref = await store.put_text(SESSION, "x")

    async def gone(_scope: ArtifactScope, _id: str) -> None:
        return None

    monkeypatch.setattr(store, "get", gone)
    assert "no such artifact" in (await fetched(store, call, ref.id))["error"]


async def test_without_a_store_the_error_is_hard_and_comes_first(call: CallContext) -> None:
    """It is the operator's to mend, so it is no result; it comes even before the identity is looked at."""
    with pytest.raises(ArtifactStoreRequiredError):
        await fetched(None, replace(call, who=Quadruple()), "x")


async def test_the_store_of_the_call_is_used_when_the_tool_has_none(
    store: MemoryArtifactStore, call: CallContext
) -> None:
    """A tool without a store of its own reads the run's."""
    ref = await store.put_text(SESSION, "x")
    assert (await fetched(None, replace(call, artifacts=store), ref.id))["content"] == "x"
