"""Shapes of functions that are refused as tools: in one line that names the place and the fix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from harborage.identity import Quadruple
from harborage.planner import RunContext
from harborage.tools import CallContext, UnsupportedTypeError, tool
from tests.kit.tables import each_row

if TYPE_CHECKING:
    from tests.nowhere import AgentContext, Hidden

T = TypeVar("T")
FIRST = "ctx must be the first parameter, and always given: write ctx: CallContext"


class Line:
    """A class without a JSON form."""

    def __init__(self, text: str = "") -> None:
        self.text = text


class Desk:
    """An object with a method."""

    async def open(self, order: str) -> str:
        """Open an order."""
        return order


def unannotated(a):  # type: ignore[no-untyped-def]
    return a


def loose_context(ctx, a: int) -> int:  # type: ignore[no-untyped-def]
    return a


def late_context(a: int, ctx: CallContext) -> int:
    return a


def keyword_context(*, ctx: CallContext) -> int:
    return 1


def maybe_context(ctx: CallContext | None) -> int:
    return 1


def hidden_maybe_context(ctx: CallContext | Hidden) -> int:  # type: ignore[no-any-unimported]
    return 1


def default_context(ctx: CallContext = CallContext(Quadruple())) -> int:  # noqa: B008
    return 1


def two_contexts(ctx: CallContext, c: CallContext) -> int:
    return 1


def planner_context(ctx: RunContext, a: int) -> int:
    return a


def hidden_planner_context(ctx: AgentContext[int], a: int) -> int:  # type: ignore[no-any-unimported]
    return a


def positional(a: int, /) -> int:
    return a


def many(*items: int) -> int:
    return len(items)


def open_ended(**options: int) -> int:
    return len(options)


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


def takes_hidden(order: Hidden) -> int:  # type: ignore[no-any-unimported]
    return 1


def gives_hidden(order: int) -> list[Hidden]:  # type: ignore[no-any-unimported]
    return []


def takes_unbound(x: T) -> T:
    return x


def keyed_by_number(by: dict[int, str]) -> int:
    return len(by)


def gives_plain(a: int) -> Line:
    return Line(str(a))


def misnamed(item: str) -> str:
    """Find it.

    Args:
        itm: What to find.
    """
    return item


def overdocumented(item: str) -> str:
    """Find it.

    :param item: What to find.
    :param colour: Of which colour.
    """
    return item


@each_row(
    "fn, says",
    [
        (unannotated, "unannotated.a: annotate it, for example a: str"),
        (loose_context, "loose_context.ctx: annotate it, for example ctx: CallContext as the first parameter"),
        (late_context, "late_context: ctx must be the first parameter"),
        (keyword_context, "keyword_context: ctx must be the first parameter"),
        (maybe_context, f"maybe_context: {FIRST}"),
        (hidden_maybe_context, f"hidden_maybe_context: {FIRST}"),
        (default_context, f"default_context: {FIRST}"),
        (two_contexts, "two_contexts: takes the call context twice: ctx, c"),
        (planner_context, "planner_context.ctx: a tool takes CallContext, not RunContext"),
        (hidden_planner_context, "hidden_planner_context.ctx: a tool takes CallContext, not AgentContext"),
        (positional, "positional.a: tools are called by keyword; remove the /"),
        (many, "many.items: a tool has named arguments; use items: list[…]"),
        (open_ended, "open_ended.options: a tool has named arguments; use options: dict[str, …] or a dataclass"),
        (yields, "yields: a tool returns one value; return a list of what it yields"),
        (yields_later, "yields_later: a tool returns one value; return a list of what it yields"),
        (
            Desk.open,
            "open.self: put @tool above it in the class, or give the method of an object, for example tool(desk.open)",
        ),
        (lambda: 1, "tool: a lambda needs name= and description="),
        (Line, "Line: Line is a class; wrap it in a function"),
        (len, "len.obj: tools are called by keyword; remove the /"),
        (
            takes_hidden,
            "takes_hidden.order: Hidden is not importable at run time; move it out of TYPE_CHECKING, or to the top of "
            "the module",
        ),
        (
            gives_hidden,
            "gives_hidden -> result: Hidden is not importable at run time; move it out of TYPE_CHECKING, or to the top "
            "of the module",
        ),
        (takes_unbound, "takes_unbound.x: T is not bound to a type; name the type"),
        (keyed_by_number, "keyed_by_number.by: JSON objects have string keys; use dict[str, …] or a list of pairs"),
        (gives_plain, "gives_plain -> result: Line has no JSON form; use a dataclass or a model"),
        (misnamed, "misnamed: the docstring names itm; did you mean item?"),
        (overdocumented, "overdocumented: the docstring names colour; there is no such parameter"),
    ],
)
def test_a_shape_is_refused_with_its_place_and_the_fix(fn: Callable[..., Any], says: str) -> None:
    """What no tool can be is refused when the tool is made, in one line; those who catch TypeError catch it."""
    with pytest.raises(UnsupportedTypeError) as caught:
        tool(fn)
    assert str(caught.value) == says
    assert isinstance(caught.value, TypeError)


def test_a_lambda_with_a_name_still_needs_a_description() -> None:
    """A lambda has no docstring, so that its name alone tells a model too little."""
    with pytest.raises(UnsupportedTypeError, match="a lambda needs name= and description="):
        tool(lambda: 1, name="one")
    assert tool(lambda: 1, name="one", description="One.").tool.name == "one"


class HTTPPriceList:
    """An object that can be called."""

    async def __call__(self, item: str) -> int:
        """The price of an item."""
        return len(item)


def test_an_object_that_can_be_called_has_its_class_name_in_snake_case() -> None:
    """The name of a tool reads like one of a function, also when a class is behind it."""
    assert tool(HTTPPriceList()).tool.name == "http_price_list"
