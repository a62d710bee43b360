"""A text is never taken for its letters where several texts are meant, and a word outside its list is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from harborage import Context, FinishPlanner, Identity, Runtime, Scope, tool
from harborage.errors import InvalidOptionError, UnknownOptionError
from harborage.events import ClientFilter, Filter, MemoryEventBus, PatternRedactor
from harborage.identity import bind_scopes, held_scopes
from harborage.llm import ChatMessage, CompleteRequest, Content, ReasoningEffort, Role, ToolChoice
from harborage.planner import (
    CallTool,
    Decision,
    Finish,
    FinishReason,
    JoinSpec,
    PauseReason,
    PlanningHints,
    RunContext,
)
from harborage.runtime.approval import Tagged
from harborage.runtime.effects.built_ins import BuiltInDeps, register_built_ins
from harborage.runtime.pauses import Coordinator, PauseDecision, PauseFilter, PauseRequest
from harborage.sessions import SessionFilter
from harborage.tasks import InProcessTaskRegistry, SpawnRequest, TaskFilter
from harborage.tools import CatalogFilter, CatalogView, ToolCatalog, register_function


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
    ("types='task.failed'", lambda: Filter(types="task.failed")),  # type: ignore[arg-type]
    ("event_types='task.failed'", lambda: ClientFilter(event_types="task.failed")),  # type: ignore[arg-type]
    ("tenant_ids='acme'", lambda: ClientFilter(tenant_ids="acme")),  # type: ignore[arg-type]
    ("users='ada'", lambda: SessionFilter(users="ada")),  # type: ignore[arg-type]
    ("preferred_tools='pay'", lambda: PlanningHints(preferred_tools="pay")),  # type: ignore[arg-type]
    ("parallel_groups='pay'", lambda: PlanningHints(parallel_groups=("pay",))),  # type: ignore[arg-type]
    ("status='runing'", lambda: TaskFilter(status="runing")),
    ("kind='foregrund'", lambda: TaskFilter(kind="foregrund")),
    ("stops='END'", lambda: CompleteRequest(stops="END")),
    ("tool_choice='atuo'", lambda: CompleteRequest(tool_choice="atuo")),  # type: ignore[arg-type]
    ("reasoning_effort='lwo'", lambda: CompleteRequest(reasoning_effort="lwo")),  # type: ignore[arg-type]
    ("scopes='no-admin'", lambda: bind_scopes("no-admin")),  # type: ignore[arg-type]
    ("scopes='no-admin'", lambda: held_scopes("no-admin")),  # type: ignore[arg-type]
    ("options=64", lambda: Runtime(planner=Pays(), options=64)),  # type: ignore[arg-type]
    ("tools=<function", lambda: Runtime(planner=Pays(), tools=_pay)),  # type: ignore[arg-type]
    ("agent=3", lambda: Runtime(planner=Pays(), agent=3)),  # type: ignore[arg-type]
    ("examples='pay it'", lambda: tool(_pay, examples=["pay it"])),  # type: ignore[list-item]
    ("effects='wrte'", lambda: tool(_pay, effects="wrte")),  # type: ignore[arg-type]
    ("loading='alwys'", lambda: tool(_pay, loading="alwys")),  # type: ignore[arg-type]
    ("description=3", lambda: tool(_pay, description=3)),  # type: ignore[arg-type]
    ("name=3", lambda: tool(_pay, name=3)),  # type: ignore[call-overload]
    ("probe='pay'", lambda: tool(_pay, probe="pay")),  # type: ignore[call-overload]
    ("tool='read'", lambda: tool("read")),  # type: ignore[call-overload]
    ("approvals='always'", lambda: Runtime(planner=Pays(), approvals="always")),  # type: ignore[arg-type]
    ("approvals['pay']=True", lambda: Runtime(planner=Pays(), approvals={"pay": True})),  # type: ignore[dict-item]
    ("storage=3", lambda: Runtime(planner=Pays(), storage=3)),  # type: ignore[arg-type]
    ("bus='inmem'", lambda: Runtime(planner=Pays(), bus="inmem")),  # type: ignore[arg-type]
    ("artifacts='fs'", lambda: Runtime(planner=Pays(), artifacts="fs")),  # type: ignore[arg-type]
    ("handles='db'", lambda: Runtime(planner=Pays(), handles="db")),  # type: ignore[arg-type]
    ("clock=12", lambda: Runtime(planner=Pays(), clock=12)),  # type: ignore[arg-type]
    ("logger='app'", lambda: Runtime(planner=Pays(), logger="app")),  # type: ignore[arg-type]
)


def test_a_text_is_refused_where_several_are_meant_and_a_word_outside_its_list() -> None:
    """Each is refused where it is written, by an error that names the option and the value."""
    for option, make in TABLE:
        name, _, value = option.partition("=")
        with pytest.raises(InvalidOptionError, match=re.escape(value)) as raised:
            make()
        assert raised.value.option.startswith(name[:-1]), (option, raised.value)


UNKNOWN: tuple[tuple[str, Any, str], ...] = (
    ("side_effects", "read", "did you mean effects?"),
    ("max_retries", 3, "did you mean retries?"),
    ("needs_approval", True, 'did you mean approval="always"?'),
    ("idempotnt", True, "did you mean idempotent?"),
    ("zzz", 1, "use description, effects, approval, retries, timeout, when, idempotent, tags"),
)


def test_an_option_that_a_tool_does_not_have_is_refused_with_those_that_it_has() -> None:
    """Whether the tool is decorated or registered, the error names what was given and what may be meant."""
    for option, value, hint in UNKNOWN:
        for make in (partial(tool, _pay), tool, partial(register_function, ToolCatalog(), "pay", _pay)):
            with pytest.raises(UnknownOptionError, match=re.escape(f"{option}={value!r}: there is no")) as raised:
                _apply(make, {option: value})
            assert hint in str(raised.value)


def _apply(make: Callable[..., Any], options: dict[str, Any]) -> None:
    """A decorator looks at its options when it gets its function."""
    make(**options)(_pay)


STARTS: tuple[dict[str, Any], ...] = (
    {"scope": "amdin"},
    {"priority": "high"},
    {"priority": True},
    {"max_steps": -1},
    {"max_steps": "9"},
    {"deadline": "tomorrow"},
)


def test_a_word_of_a_request_may_be_spelt() -> None:
    """A client is given the member, whatever the caller wrote."""
    message = ChatMessage("user", Content(text="hi"))  # type: ignore[arg-type]
    request = CompleteRequest(messages=[message], tool_choice="required", reasoning_effort="low")  # type: ignore[arg-type]
    assert message.role is Role.USER
    assert (request.tool_choice, request.reasoning_effort) == (ToolChoice.REQUIRED, ReasoningEffort.LOW)
    assert isinstance(request.tool_choice, ToolChoice)
    assert isinstance(request.reasoning_effort, ReasoningEffort)


@pytest.mark.anyio
async def test_a_run_is_started_with_what_makes_sense_or_not_at_all() -> None:
    """The caller is told what is wrong before there is a run; a scope may be spelt."""
    me = Identity("a", "b", "c")
    async with Runtime(planner=FinishPlanner()) as rt:
        for wish in STARTS:
            (name,) = wish
            with pytest.raises(InvalidOptionError, match=f"start: {name}="):
                await rt.start("go", who=me, **wish)
        assert not await rt.runs(who=me)
        run = await rt.start("go", who=me, scope="admin")  # type: ignore[arg-type]
        assert run.scope is Scope.ADMIN
        await run.finished()
        with pytest.raises(InvalidOptionError, match="amdin"):
            await rt.run(run.id, who=me, scope="amdin")  # type: ignore[arg-type]
        for wish in ({"scope": "amdin"}, {"max_steps": -1}, {"deadline": "tomorrow"}):
            with pytest.raises(InvalidOptionError, match="fork: "):
                await rt.fork(run.id, at=1, who=me, **wish)
        assert [one.run_id for one in await rt.runs(who=me)] == [run.id]
        with pytest.raises(InvalidOptionError, match="cancel: hard='no': expected True or False"):
            await run.cancel(hard="no")  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match="events: after='start': expected a whole number"):
            run.events(after="start")  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_scope_is_held_whole() -> None:
    """A claim that only contains the word of another scope gives nothing, however it is handed over."""
    pauses, ada, bob = Coordinator(), Identity("a", "ada", "s"), Identity("a", "bob", "s")
    pause = await pauses.request(PauseRequest(identity=ada.with_run("r"), reason=PauseReason.AWAIT_INPUT))
    with pytest.raises(InvalidOptionError, match="scopes='no-admin'"):
        await pauses.resume(pause.token, PauseDecision.APPROVE, who=bob, scopes="no-admin")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="scopes='no-admin'"):
        await pauses.list(PauseFilter(users=("ada",)), who=bob, scopes="no-admin")  # type: ignore[arg-type]
    assert (await pauses.status(pause.token)).is_paused


@pytest.mark.anyio
async def test_tasks_are_listed_by_a_status_that_is_spelt() -> None:
    """As by the member of that value."""
    tasks, me = InProcessTaskRegistry(bus=MemoryEventBus()), Identity("a", "b", "c")
    await tasks.spawn(SpawnRequest(identity=me.with_run(""), kind="background", query="go"))
    assert len(await tasks.list(me, TaskFilter(status="pending", kind="background"))) == 1
    assert await tasks.list(me, TaskFilter(status="running")) == []


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
