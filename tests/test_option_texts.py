"""A text is never taken for its letters where several texts are meant, and a word outside its list is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from harborage import Context, Identity, Runtime, tool
from harborage.errors import InvalidOptionError
from harborage.events import PatternRedactor
from harborage.planner import CallTool, Decision, Finish, FinishReason, JoinSpec, RunContext
from harborage.runtime.approval import Tagged
from harborage.runtime.built_ins import BuiltInDeps, register_built_ins
from harborage.runtime.pauses import PauseFilter
from harborage.tools import CatalogFilter, CatalogView, ToolCatalog


def _pay() -> str:
    """Pay."""
    return "paid"


class Pays:
    """Calls the tool once."""

    async def next(self, run: RunContext) -> Decision:
        return Finish(FinishReason.GOAL, "done") if run.trajectory.steps else CallTool("pay")


TABLE: tuple[tuple[str, Callable[[], object]], ...] = (
    ("tags='payments'", lambda: tool(_pay, tags="payments")),  # type: ignore[arg-type]
    ("auth_scopes='admin'", lambda: tool(_pay, auth_scopes="admin")),  # type: ignore[arg-type]
    ("handles_mime='text/plain'", lambda: tool(_pay, handles_mime="text/plain")),  # type: ignore[arg-type]
    ("examples='pay'", lambda: tool(_pay, examples="pay")),  # type: ignore[arg-type]
    ("tags=5", lambda: tool(_pay, tags=(5,))),  # type: ignore[arg-type]
    ("require_tags='payments'", lambda: Tagged("payments")),
    ("require_tags=None", lambda: Tagged(None)),  # type: ignore[arg-type]
    ("granted_scopes='admin'", lambda: CatalogFilter(granted_scopes="admin")),  # type: ignore[arg-type]
    ("granted_scopes='admin'", lambda: CatalogView(ToolCatalog(), granted_scopes="admin")),  # type: ignore[arg-type]
    ("built_in='memory'", lambda: register_built_ins(ToolCatalog(), "memory", BuiltInDeps())),
    ("secrets='a-long-secret'", lambda: PatternRedactor("a-long-secret")),
    ("tenants='acme'", lambda: PauseFilter(tenants="acme")),  # type: ignore[arg-type]
    ("states='pausd'", lambda: PauseFilter(states=("pausd",))),  # type: ignore[arg-type]
    ("reasoning_replay='txet'", lambda: Context(reasoning_replay="txet")),  # type: ignore[arg-type]
    ("merge_keys='ab'", lambda: JoinSpec(merge_keys="ab")),  # type: ignore[arg-type]
)


def test_a_text_is_refused_where_several_are_meant_and_a_word_outside_its_list() -> None:
    """Each is refused where it is written, by an error that names the option and the value."""
    for option, make in TABLE:
        name, _, value = option.partition("=")
        with pytest.raises(InvalidOptionError, match=re.escape(value)) as raised:
            make()
        assert raised.value.option.startswith(name[:-1]), (option, raised.value)


@pytest.mark.anyio
async def test_controls_take_what_their_handle_says() -> None:
    """What is no text is no message and no goal, and only a dict is context: the caller is told at once."""
    async with Runtime(
        planner=Pays(), tools=[tool(_pay, name="pay", tags=("payments",))], approvals=Tagged({"payments"})
    ) as rt:
        run = await rt.start("pay", who=Identity("a", "b", "c"))
        for send, given in ((run.message, 5), (run.redirect, 7), (run.inject, "text"), (run.message, None)):
            with pytest.raises(InvalidOptionError):
                await send(given)  # type: ignore[operator]
        await run.cancel(hard=True)
