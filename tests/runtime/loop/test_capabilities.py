"""What a class of capabilities may be, and which verdicts there are."""

from __future__ import annotations

from typing import Any

import pytest

from harborage import AgentContext, Capability, Confirm, Deny, Guide, Proceed, ToolCall, Verdict
from harborage.callables import CallbackKindError
from harborage.errors import InvalidOptionError
from harborage.runtime.loop.capabilities import has_hook, hooks_of
from tests.kit.tables import each_row


async def hook(self: Any, ctx: Any, call: Any) -> Verdict:
    return Proceed()


def plain(self: Any, ctx: Any, call: Any) -> Verdict:
    return Proceed()


async def short(self: Any, call: Any) -> Verdict:
    return Proceed()


async def generous(self: Any, ctx: Any, *given: Any, note: str = "") -> Verdict:
    return Proceed()


@each_row(
    "name, value, error, text",
    [
        ("before_tools", hook, InvalidOptionError, r"Guard\.before_tools.*did you mean before_tool\?"),
        ("befor_tool", hook, InvalidOptionError, "did you mean before_tool"),
        ("after_toolcall", hook, InvalidOptionError, "did you mean after_tool"),
        ("on_start", hook, InvalidOptionError, "the hooks are before_model, .*with _"),
        ("before_tool", plain, CallbackKindError, r"Guard\.before_tool is a plain function.*async def"),
        ("before_tool", short, InvalidOptionError, r"write async def before_tool\(self, ctx, call\)"),
        ("before_tool", None, InvalidOptionError, r"async def before_tool\(self, ctx, call\)"),
        ("before_tool", 3, CallbackKindError, "cannot be called"),
    ],
)
def test_a_method_that_would_never_be_called_as_a_hook_is_refused(
    name: str, value: Any, error: type[Exception], text: str
) -> None:
    """When its class is defined, with the fix."""
    with pytest.raises(error, match=text):
        type("Guard", (Capability,), {name: value})


@each_row("name, value", [("before_tool", generous), ("_on_start", plain), ("looks", plain), ("tools", ())])
def test_other_methods_and_wider_hooks_are_taken(name: str, value: Any) -> None:
    """A helper may have any name that does not look like a hook's."""
    assert getattr(type("Guard", (Capability,), {name: value}), name) == value


def test_the_hooks_of_an_agent_are_those_that_any_capability_has() -> None:
    """In one order, whatever theirs; an inherited hook counts."""

    class First(Capability):
        async def before_finish(self, ctx: AgentContext[Any], output: Any) -> Verdict:
            return Proceed()

    class Derived(First): ...

    class Second(Capability):
        async def before_tool(self, ctx: AgentContext[Any], call: ToolCall) -> Verdict:
            return Proceed()

    assert hooks_of([Derived(), Second(), Capability()]) == ("before_tool", "before_finish")
    assert hooks_of([]) == hooks_of([Capability()]) == ()
    assert has_hook(Derived(), "before_finish")


@each_row("make, field", [(Deny, "Deny: reason"), (Guide, "Guide: advice"), (Confirm, "Confirm: question")])
def test_a_verdict_says_why(make: Any, field: str) -> None:
    """An empty text would leave the model, or the approver, without a reason."""
    for text in ("", "  ", None, 3):
        with pytest.raises(InvalidOptionError, match=field):
            make(text)
