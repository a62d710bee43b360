"""The growing output of a run: each partial is valid, none shows half a value, and the last one is the whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import Agent, Identity, RunFailedError, Runtime, json_schema, tool
from harborage.llm import CompleteResponse
from harborage.runtime.partials import PartialJson
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@dataclass
class Line:
    item: str
    count: int


@dataclass
class Order:
    title: str = ""
    lines: list[Line] = field(default_factory=list)
    total: Decimal = Decimal(0)
    state: Literal["open", "closed"] = "open"


@dataclass
class Refusal:
    why: str


class Point(msgspec.Struct):
    x: int
    label: str = ""


class Page(pydantic.BaseModel):
    title: str
    words: list[str] = []


class Row(TypedDict):
    item: str


@tool(effects="read")
async def look(order: str) -> str:
    """Look an order up."""
    return "broken"


async def outputs_of(output: Any, answer: str, piece: int = 3) -> list[Any]:
    agent = Agent("a", model=ScriptedLLM([says(answer)], piece=piece), output=output)
    async with agent.stream("go") as run:
        return [one async for one in run.outputs()]


async def test_fields_fill_in_as_they_come() -> None:
    """Those still to come are their defaults; a text grows, a number, a word or an item comes when it is whole."""
    answer = {"title": "Tea", "lines": [{"item": "tea", "count": 12}], "total": "12.50", "state": "closed"}
    found = await outputs_of(Order, json.dumps(answer), piece=1)
    assert [one.title for one in found[:4]] == ["", "T", "Te", "Tea"]
    lines = (Line("tea", 12),)
    assert {tuple((line.item, line.count) for line in one.lines) for one in found} == {(), (("tea", 12),)}
    assert {one.total for one in found} == {Decimal(0), Decimal("12.50")}
    assert {one.state for one in found} == {"open", "closed"}
    assert found[-1] == Order("Tea", list(lines), Decimal("12.50"), "closed")


TYPES: list[tuple[Any, str, list[Any]]] = [
    (str, "Hello you", ["Hel", "Hello ", "Hello you"]),
    (Refusal, '{"why": "no tea"}', [Refusal(""), Refusal("no "), Refusal("no tea")]),
    (Point, '{"x": 12, "label": "ab"}', [Point(12), Point(12, "a"), Point(12, "ab")]),
    (Page, '{"title": "T", "words": ["a"]}', [Page(title="T"), Page(title="T", words=["a"])]),
    (Row, '{"item": "te"}', [{"item": "te"}]),
    (list[Point], '{"value": [{"x": 1}, {"x": 2}]}', [[], [Point(1)], [Point(1), Point(2)]]),
    (list[Point], '[{"x": 1}, {"x": 2}]', [[], [Point(1)], [Point(1), Point(2)]]),
    (Point | Refusal, '{"value": {"why": "no tea"}}', [Refusal("no"), Refusal("no te"), Refusal("no tea")]),
    (str | Refusal, "plain text", ["pla", "plain ", "plain tex", "plain text"]),
    (Literal["yes", "no"], '{"value": "yes"}', ["yes"]),
    (bool, '{"value": true}', [True]),
    (dict[str, int], '{"a": 1, "b": 22}', [{}, {"a": 1}, {"a": 1, "b": 22}]),
    (json_schema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
     '{"a": "xyz"}', [{"a": "xy"}, {"a": "xyz"}]),
]  # fmt: skip


@each_row("output, answer, wanted", TYPES)
async def test_every_kind_of_output_grows(output: Any, answer: str, wanted: list[Any]) -> None:
    """In pieces of three characters."""
    assert await outputs_of(output, answer) == wanted


async def test_what_was_said_before_a_call_is_no_part_of_the_answer() -> None:
    """Each step of the model begins anew."""
    first = calls_tools(("look", {"order": "7"}))
    first = CompleteResponse("I look it up. {", tool_calls=first.tool_calls, finish_reason="tool_calls")
    agent = Agent("a", model=ScriptedLLM([first, says('{"why": "no"}')], piece=99), tools=[look], output=Refusal)
    async with agent.stream("go") as run:
        assert [one async for one in run.outputs()] == [Refusal("no")]


async def test_an_answer_that_is_asked_for_again_starts_again() -> None:
    """What was wrong with it is not mixed with the second one."""
    model = ScriptedLLM([says('{"x": "one"}'), says('{"x": 1}')], piece=99)
    async with Agent("a", model=model, output=Point).stream("go") as run:
        assert [one async for one in run.outputs()] == [Point(1)]


async def test_a_run_without_an_answer_raises() -> None:
    """As `result` does, after what there was."""
    model = ScriptedLLM([says("no JSON")] * 9)
    async with Agent("a", model=model, output=Point).stream("go") as run:
        with pytest.raises(RunFailedError):
            assert [one async for one in run.outputs()] == []


async def test_another_process_gets_at_least_the_last_one(tmp_path: Path) -> None:
    """Pieces are not stored, but the answer is; its type is that of the agent."""
    agent = Agent("a", model=ScriptedLLM([says('{"x": 1}')]), output=Point)
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with Runtime([agent], storage=storage) as runtime:
        run = await runtime.start(agent, "go", who=ME)
        await run.finished()
    async with Runtime([agent], storage=storage) as runtime:
        found: AsyncIterator[Any] = runtime.get(run.id, who=ME).outputs()
        assert [one async for one in found] == [Point(1)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=3), st.integers(1, 5), st.booleans())
def test_any_document_is_whole_at_its_end(document: dict[str, Any], piece: int, is_ascii: bool) -> None:
    """However it is cut into pieces, escapes and surrogates included; each beginning of it is JSON, too."""
    partial, text = PartialJson(), f"Here: {json.dumps(document, ensure_ascii=is_ascii)} and more }}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate, which no provider sends
    for at in range(0, len(text), piece):
        partial.feed(text[at : at + piece])
        assert all(isinstance(one, dict) for one in partial.candidates(lambda _path: True))
    if r"\ud" not in text:
        assert list(partial.candidates(lambda _path: False)) == [document]
