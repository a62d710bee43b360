"""The small built-in tools: the clock, the echo, and what all built-in tools have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts import MemoryArtifactStore
from harborage.identity import IdentityRequiredError, Quadruple
from harborage.tools import (
    CallContext,
    CatalogView,
    Invoker,
    Loading,
    SideEffect,
    ToolCatalog,
    ToolDescriptor,
    ToolInvalidArgsError,
)
from harborage.tools.builtin import (
    BUILT_IN_TOOL_NAMES,
    artifact_fetch,
    clock_now,
    text_echo,
    tool_get,
    tool_search,
)
from tests.kit.tables import each_row

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


async def test_the_clock_tells_the_calls_time_twice(call: CallContext) -> None:
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
