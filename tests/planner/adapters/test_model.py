"""What adapting gives: tools behind the approvals they need, refusals that name the part, extras that are missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harborage.errors import MissingExtraError
from harborage.identity import Quadruple
from harborage.planner import InvalidConfigError
from harborage.planner.adapters import (
    AdapterUnsupportedError,
    ApprovalsNotTakenError,
    adapt_langgraph,
    adapt_openai_agents,
    adapt_pydantic_ai,
)
from harborage.planner.adapters.model import adapted, always_ask, framework
from harborage.planner.finish import FinishPlanner
from harborage.tools import CallContext, SideEffect, Tool, ToolResult

pytestmark = pytest.mark.anyio

CALL = CallContext(Quadruple("tenant", "user", "session", "run"))


async def pay(args: bytes, call: CallContext) -> ToolResult:
    """Pay."""
    return ToolResult("paid")


@pytest.mark.parametrize(
    ("adapt", "module", "extra"),
    [
        (adapt_pydantic_ai, "pydantic_ai", "pydantic-ai"),
        (adapt_openai_agents, "agents", "openai-agents"),
        (adapt_langgraph, "langgraph", "langgraph"),
    ],
)
def test_a_framework_that_is_not_installed(
    adapt: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapting names the extra to install; importing the adapters needs none of them."""
    for name in [*sys.modules, module]:
        if name == module or name.startswith(f"{module}."):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as caught:
        adapt(object())
    assert caught.value.extra == extra
    assert f"harborage[{extra}]" in str(caught.value)


def test_what_a_framework_lacks_is_its_own_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A framework that is there and broken is not reported as missing."""
    (tmp_path / "framework_that_is_broken.py").write_text("import no_such_module_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        framework("framework_that_is_broken", "extra", "this test")


async def test_a_gated_tool_refuses_until_its_approvals_are_taken() -> None:
    """Forgetting the approvals opens nothing; reading them hands them over."""
    made = adapted(FinishPlanner(), [(Tool("pay"), pay), (Tool("look"), pay)], {"pay": always_ask}, None)
    gated, free = made.tools
    with pytest.raises(ApprovalsNotTakenError, match=r"approvals=adapted\.approvals"):
        await gated.body(b"{}", CALL)
    assert (await free.body(b"{}", CALL)).value == "paid"
    assert made.approvals["pay"](None)[0] is True
    assert (await gated.body(b"{}", CALL)).value == "paid"


def test_calls_are_not_repeated_unless_somebody_says_so() -> None:
    """Like its framework, an adapted tool is tried once; what the program says of a tool wins."""
    options: Any = {"pay": {"side_effects": SideEffect.WRITE, "tags": ("money",)}}
    (tool,) = adapted(FinishPlanner(), [(Tool("pay"), pay)], {}, options).tools
    assert (tool.tool.side_effects, tool.tool.tags) == (SideEffect.WRITE, ("money",))
    assert tool.policy.max_retries == 0


def test_options_for_an_unknown_tool_are_refused() -> None:
    """A slip in a name is an error, because a tool would run without what was said about it."""
    with pytest.raises(InvalidConfigError, match="pya"):
        adapted(FinishPlanner(), [(Tool("pay"), pay)], {}, {"pya": {}})


def test_a_refusal_names_the_part_and_the_reason() -> None:
    """Who cannot run an agent reads which part of it, and what to do."""
    error = AdapterUnsupportedError("langgraph", "the node 'x'", "make it a tool")
    assert str(error) == "langgraph: the node 'x' cannot be run one decision a step: make it a tool"
    assert (error.framework, error.what) == ("langgraph", "the node 'x'")
