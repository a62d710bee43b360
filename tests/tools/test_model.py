"""The values of `harborage.tools`: defaults, who may see a tool, which content it reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Quadruple
from harborage.tools import (
    CallContext,
    ErrorClass,
    Loading,
    SideEffect,
    Tool,
    ToolDescriptor,
    ToolPolicy,
    ToolResult,
    Transport,
    ValidateMode,
    mime_matches,
    tool,
)
from tests.kit.tables import each_row

WHO = Quadruple("t", "u", "s", "r")


@each_row(
    "enum, values",
    [
        (Transport, {"inprocess", "http", "mcp", "a2a", "flow"}),
        (SideEffect, {"pure", "read", "write", "external", "stateful"}),
        (Loading, {"always", "deferred"}),
        (ErrorClass, {"transient", "timeout", "5xx", "permanent"}),
        (ValidateMode, {"both", "in", "out", ""}),
    ],
)
def test_the_vocabularies_are_closed(enum: type, values: set[str]) -> None:
    """Each enum has exactly its wire strings."""
    assert {member.value for member in enum} == values


def test_a_tool_that_says_nothing_is_stateful_and_always_loaded() -> None:
    """The defaults of a tool: always in the planner's sight, stateful, in process, not idempotent."""
    tool = Tool("x")
    assert (tool.loading, tool.side_effects, tool.transport) == ("always", "stateful", "inprocess")
    assert not tool.idempotent
    assert tool.policy == ToolPolicy()


@each_row(
    "needed, granted, is_visible",
    [
        ((), frozenset(), True),
        (("a", "b"), frozenset({"a"}), False),
        (("a", "b"), frozenset({"a", "b", "c"}), True),
        (("a",), frozenset(), False),
    ],
)
def test_a_tool_is_granted_when_every_scope_is(
    needed: tuple[str, ...], granted: frozenset[str], is_visible: bool
) -> None:
    """A tool is visible to callers that hold all of its scopes; one without scopes to every caller."""
    assert Tool("x", auth_scopes=needed).is_granted(granted) is is_visible


@each_row(
    "pattern, mime, is_match",
    [
        ("audio/mpeg", "audio/mpeg", True),
        ("audio/mpeg", "audio/ogg", False),
        ("audio/*", "audio/ogg", True),
        ("audio/*", "audios/ogg", False),
        ("audio/*", "", False),
        ("*/*", "audio/ogg", False),
        ("*/*", "*/*", False),
        ("/*", "/x", False),
    ],
)
def test_a_mime_pattern_is_exact_or_a_family(pattern: str, mime: str, is_match: bool) -> None:
    """`type/*` stands for a family of types; `*/*` stands for nothing."""
    assert mime_matches(pattern, mime) is is_match
    assert Tool("x", handles_mime=("image/png", pattern)).handles(mime) is is_match


@each_row(
    "side_effects, is_idempotent, is_repeatable",
    [
        (SideEffect.PURE, False, True),
        (SideEffect.READ, False, True),
        (SideEffect.WRITE, False, False),
        (SideEffect.EXTERNAL, False, False),
        (SideEffect.STATEFUL, False, False),
        (SideEffect.WRITE, True, True),
    ],
)
def test_a_call_in_doubt_may_be_made_again_when_it_changes_nothing_or_has_a_key(
    side_effects: SideEffect, is_idempotent: bool, is_repeatable: bool
) -> None:
    """A tool is repeatable when it is pure, only reads, or is idempotent."""
    assert Tool("x", side_effects=side_effects, idempotent=is_idempotent).is_repeatable is is_repeatable


def test_a_tool_survives_json() -> None:
    """A tool reads back from its JSON as it was."""
    tool = Tool("x", tags=("a",), policy=ToolPolicy(max_retries=0, retry_on=()), loading=Loading.DEFERRED)
    assert msgspec.json.decode(msgspec.json.encode(tool), type=Tool) == tool


def test_a_changed_descriptor_has_the_changed_tools_policy() -> None:
    """What a descriptor derives from its tool is derived anew for a copy with another tool."""

    async def body(args: bytes, call: CallContext) -> ToolResult:
        return ToolResult()

    first = ToolDescriptor(Tool("x", side_effects=SideEffect.READ), body)
    assert (first.policy.max_retries, first.is_guarded) == (3, False)
    other = Tool("x", policy=ToolPolicy(max_retries=0), side_effects=SideEffect.WRITE)
    second = msgspec.structs.replace(first, tool=other)
    assert (second.policy.max_retries, second.is_guarded) == (0, True)


def test_a_call_knows_its_caller() -> None:
    """A call context carries the quadruple and leaves the rest empty."""
    call = CallContext(WHO)
    assert (call.who, call.call_id, call.idempotency_key, call.artifacts, call.emit) == (WHO, "", "", None, None)


@each_row(
    "options, word",
    [
        ({"side_effects": "wrte"}, "did you mean 'write'"),
        ({"side_effects": None}, "'pure', 'read', 'write', 'external', 'stateful'"),
        ({"loading": "allways"}, "did you mean 'always'"),
        ({"transport": "htp"}, "did you mean 'http'"),
        ({"idempotent": "yes"}, "True or False"),
        ({"policy": {"max_retries": 1}}, "a ToolPolicy"),
        ({"policy": ToolPolicy(max_retries=1)}, "effects='read'"),
        ({"policy": ToolPolicy(max_retries=1), "side_effects": "external"}, "idempotent=True"),
    ],
)
def test_a_tool_that_contradicts_itself_is_refused_where_it_is_written(options: dict[str, Any], word: str) -> None:
    """Made by hand, and of a function."""
    with pytest.raises(InvalidOptionError, match=word):
        Tool("x", **options)
    said = {"effects" if name == "side_effects" else name: value for name, value in options.items()}
    with pytest.raises(InvalidOptionError, match=word):
        tool(lambda: None, name="x", description="Nothing.", **said)


def test_retries_can_be_asked_for_where_they_can_do_no_harm() -> None:
    """By one that reads, and by one that acts once a key."""
    policy = ToolPolicy(max_retries=2)
    for options in ({"effects": "read"}, {"effects": "pure"}, {"idempotent": True}):
        assert tool(lambda: None, name="x", description="Nothing.", policy=policy, **options).policy.max_retries == 2  # type: ignore[arg-type]
