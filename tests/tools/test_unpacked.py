"""`**options: Unpack[TypedDict]`: the fields are arguments of their own; and the name and description of a tool."""

from __future__ import annotations

import logging
from typing import NotRequired, TypedDict, Unpack

import pytest

from harborage import Agent, tool
from harborage.errors import InvalidOptionError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools.errors import UnsupportedTypeError

pytestmark = pytest.mark.anyio


class Options(TypedDict):
    count: int
    note: NotRequired[str]


@tool(effects="read")
async def order(item: str, **options: Unpack[Options]) -> str:
    """Order something.

    Args:
        item: what
        count: how many
    """
    return f"{item} {sorted(options.items())}"


async def test_the_fields_of_an_unpacked_dict_are_arguments() -> None:
    """Optional ones may be left out, and are then not passed."""
    assert order.tool.args_schema["required"] == ["count", "item"]
    assert order.tool.args_schema["properties"]["count"] == {"type": "integer", "description": "how many"}
    model = ScriptedLLM(
        [
            calls_tools(("order", {"item": "tea", "count": 2})),
            calls_tools(("order", {"item": "tea", "count": 2, "note": "green"})),
            says("done"),
        ]
    )
    result = await Agent("a", model=model, tools=[order]).run("go")
    told = [message.text for message in result.messages if message.tool and message.text]
    assert told == ["tea [('count', 2)]", "tea [('count', 2), ('note', 'green')]"]


def test_other_keyword_arguments_are_refused() -> None:
    """They have no names that a model could give."""

    async def f(**options: int) -> str:
        return ""

    with pytest.raises(UnsupportedTypeError, match=r"use options: dict\[str, …\] or a dataclass"):
        tool(f)


def test_a_tool_without_a_description_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Once, where it is made."""

    async def f(a: int) -> str:
        return ""

    with caplog.at_level(logging.WARNING, "harborage"):
        tool(f)
        tool(f, description="Do it.")
    assert [one.getMessage() for one in caplog.records] == ["f has no description: models choose tools by it"]


def test_a_name_that_providers_refuse_is_refused_where_the_agent_is_made() -> None:
    """With the rule."""

    @tool(name="my tool!")
    async def f(a: int) -> str:
        """Do it."""
        return ""

    with pytest.raises(InvalidOptionError, match="'my tool!' is no name of a tool: up to 64 letters, digits, _ and -"):
        Agent("a", model="mock:", tools=[f])
