"""What the annotations of a tool may name, and when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import harborage.tools
from harborage import tools
from harborage.identity import Quadruple
from harborage.tools import CallContext, ToolDescriptor, tool

if TYPE_CHECKING:
    from harborage.tools import CallContext as Hidden

CALL = CallContext(Quadruple("t", "u", "s", "r"), "c1")


async def value_of(descriptor: ToolDescriptor, args: bytes) -> Any:
    """What a call gives."""
    return (await descriptor.body(args, CALL)).value


@dataclass
class Line:
    """An item and how often; hidden below by classes of the same name."""

    item: str


def names_of(descriptor: ToolDescriptor) -> list[str]:
    """The arguments that the model sees."""
    return list(descriptor.tool.args_schema["properties"])


async def test_what_a_context_is_of_is_never_resolved() -> None:
    """A class that only type checkers know may stand in the brackets of the context, wherever its name is from."""

    @tool
    async def subscripted(ctx: CallContext[Hidden], a: int) -> str:  # type: ignore[type-arg]
        return f"{ctx.call_id} {a}"

    @tool
    async def dotted(ctx: harborage.tools.CallContext[Hidden], a: int) -> str:  # type: ignore[type-arg]
        return f"{ctx.call_id} {a}"

    @tool
    async def renamed(ctx: tools.CallContext, a: int) -> str:
        return f"{ctx.call_id} {a}"

    for each in (subscripted, dotted, renamed):
        assert names_of(each) == ["a"]
        assert await value_of(each, b'{"a":1}') == "c1 1"


async def test_a_context_may_be_imported_for_type_checkers_alone() -> None:
    """The name CallContext says enough, also where it is not there at run time."""
    names: dict[str, Any] = {"__name__": "elsewhere"}
    source = (
        "from __future__ import annotations\nasync def find(ctx: CallContext[Shop], a: int) -> str: return ctx.call_id"
    )
    exec(source, names)
    assert await value_of(tool(names["find"]), b'{"a":1}') == "c1"


async def test_annotations_are_resolved_in_the_functions_around() -> None:
    """A tool in a function may name what that function has, and what the one around it has; the inner one wins."""

    def outer() -> ToolDescriptor:
        @dataclass
        class Line:
            text: str

        @dataclass
        class Far:
            number: int

        def inner() -> ToolDescriptor:
            @dataclass
            class Near:
                flag: bool

            @tool
            async def take(line: Line, far: Far, near: Near) -> str:
                return f"{line.text} {far.number} {near.flag}"

            return take

        return inner()

    assert await value_of(outer(), b'{"line":{"text":"x"},"far":{"number":1},"near":{"flag":true}}') == "x 1 True"


async def test_annotations_are_resolved_in_what_a_function_closes_over() -> None:
    """A function that is made a tool after its enclosing one has ended still has the names that it uses."""

    def make() -> Callable[..., Any]:
        @dataclass
        class Line:
            text: str

        async def copy(line: Line) -> Line:
            return Line(line.text)

        return copy

    assert "'text': {'type': 'string'}" in str(tool(make()).tool.args_schema)


def test_a_method_named_like_a_type_hides_no_type() -> None:
    """The names in the body of a class are not those that its methods see."""

    class Shop:
        def list(self, prefix: str) -> list[str]:
            return [prefix]

        @staticmethod
        def make() -> ToolDescriptor:
            @tool
            def count(items: list[str]) -> int:
                return len(items)

            return count

    assert Shop.make().tool.args_schema["properties"]["items"]["type"] == "array"
    assert tool(Shop().list).tool.name == "list"
