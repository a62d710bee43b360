"""Tools that come from elsewhere: their names in the catalog, their limits, and that each source is opened once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Identity, Quadruple
from harborage.secrets import Secret, secret
from harborage.testing.clock import FakeClock
from harborage.tools import CallContext, CatalogView, Tool, ToolCatalog, ToolDescriptor, ToolResult
from harborage.tools.errors import ToolPolicyExhaustedError, ToolTimeoutError, ToolUnansweredError, is_unanswered
from harborage.tools.naming import marked, to_identifier
from harborage.tools.sources import OpenSource, Sources, SourceServices, ToolLimits, ToolSource

pytestmark = pytest.mark.anyio

WHO = Identity("tenant", "user", "session").with_run("run")


async def answer(_args: bytes, _call: CallContext) -> ToolResult:
    return ToolResult("done")


def listed(*names: str, unavailable: str = "") -> list[ToolDescriptor[Any]]:
    return [ToolDescriptor(Tool(name), answer, unavailable=unavailable) for name in names]


class Fixed:
    """A source whose tools never change."""

    def __init__(self, name: str, *tools: str) -> None:
        self.name = name
        self.known: Sequence[ToolDescriptor[Any]] = listed(*tools)
        self.opened = 0
        self.closed = 0

    def open(self, _services: SourceServices) -> OpenSource:
        self.opened += 1
        return self

    async def list_tools(self, _who: Quadruple) -> Sequence[ToolDescriptor[Any]]:
        return self.known

    async def aclose(self) -> None:
        self.closed += 1
        raise OSError("the peer is gone")


def test_a_name_that_is_taken_gets_a_mark_of_its_source() -> None:
    """Of two sources that make one name the first keeps it; tools of one's own code always keep theirs."""
    catalog = ToolCatalog()
    catalog.register(listed("a_b")[0])
    assert catalog.assign("a", listed("a_b", "a_c")) == ()
    assert catalog.assign("a_", listed("a_c")) == ()
    marks = [marked("a_b", "a", "a_b"), marked("a_c", "a_", "a_c")]
    assert [tool.name for tool in catalog.tools] == sorted(["a_b", "a_c", *marks])
    assert len(marks[0]) == len("a_b") + 7


def test_tools_without_a_usable_name_are_left_out() -> None:
    """An empty, doubled, unprintable or reserved name costs that tool, and the texts say why."""
    catalog = ToolCatalog()
    skipped = catalog.assign("s", listed("s_a", "", "s_a", "s\n", "_finish"), reserved={"_finish"})
    assert [tool.name for tool in catalog.tools] == ["s_a"]
    assert [text.rpartition(": ")[2] for text in skipped] == [
        "it has no printable name",
        "the source lists it twice",
        "it has no printable name",
        "the name is one of the runtime's own",
    ]


def test_a_new_listing_takes_the_place_of_the_one_before() -> None:
    """Tools that are no longer listed go, others of the program stay; the very same listing changes nothing."""
    catalog = ToolCatalog()
    catalog.register(listed("own")[0])
    first = listed("s_a", "s_b")
    catalog.assign("s", first)
    version = catalog.version
    catalog.assign("s", first)
    assert catalog.version == version
    catalog.assign("s", listed("s_b", "s_c"))
    assert [tool.name for tool in catalog.tools] == ["own", "s_b", "s_c"]


def test_an_unavailable_tool_is_offered_to_no_run() -> None:
    """It is in the catalog for people, and in no view."""
    catalog = ToolCatalog()
    catalog.assign("s", [*listed("s_a"), *listed("s_b", unavailable="its schema refers elsewhere")])
    view = CatalogView(catalog)
    assert [tool.name for tool in catalog.tools] == ["s_a", "s_b"]
    assert [tool.name for tool in view.list()] == ["s_a"]
    assert view.resolve("s_b") is None


async def test_a_source_is_opened_once_and_closed_whatever_another_does(caplog: pytest.LogCaptureFixture) -> None:
    """Two agents that name one source share it; one that fails to close keeps no other open."""
    one, other = Fixed("one", "one_a"), Fixed("other")
    sources = Sources(SourceServices(logger=logging.getLogger("test")))
    assert isinstance(one, ToolSource)
    assert sources.open(one) is sources.open(one)
    sources.open(other)
    assert await sources.open(one).list_tools(WHO) == one.known
    await sources.aclose()
    assert (one.opened, one.closed, other.closed) == (1, 1, 1)
    assert "the tools of one could not be closed" in caplog.text


class Endless(Fixed):
    """A source that never closes."""

    async def aclose(self) -> None:
        await asyncio.Event().wait()


async def test_a_source_that_never_closes_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """After half a minute, with its name in the log; the others close."""
    clock, other = FakeClock(), Fixed("other")
    sources = Sources(SourceServices(logger=logging.getLogger("test"), clock=clock))
    sources.open(other)
    sources.open(Endless("endless"))
    closing = asyncio.create_task(sources.aclose())
    await clock.run_for(29)
    assert not closing.done()
    await clock.run_for(1)
    async with asyncio.timeout(10):
        await closing
    assert "the tools of endless were not closed in 30 s" in caplog.text
    assert other.closed == 1


def test_what_counts_as_not_answered() -> None:
    """A lost answer and a deadline, also as the last of several attempts; not what surely did nothing."""
    last = ToolPolicyExhaustedError(2)
    last.__cause__ = ToolUnansweredError("cut")
    refused = ToolUnansweredError("no connection")
    refused.had_no_effect = True  # type: ignore[attr-defined]
    given = [ToolUnansweredError("cut"), ToolTimeoutError(5), last, refused, ValueError("no"), None]
    assert [is_unanswered(error) for error in given] == [True, True, True, False, False, False]


def test_limits_are_above_zero() -> None:
    """A limit of nothing would refuse every result."""
    with pytest.raises(InvalidOptionError, match="result_bytes"):
        ToolLimits(result_bytes=0)


def test_a_secret_is_named_and_never_written_down() -> None:
    """Only a reference is taken; the refusal does not repeat what was given."""
    assert secret("env:CRM_TOKEN") == Secret("env:CRM_TOKEN")
    for given in ("hunter2", "", 7):
        with pytest.raises(InvalidOptionError) as refused:
            secret(given)  # type: ignore[arg-type]
        assert "hunter2" not in str(refused.value)


def test_names_are_made_of_what_models_may_write() -> None:
    """Other characters become one underscore."""
    assert to_identifier("get /v1/files/{key}") == "get_v1_files_key"
