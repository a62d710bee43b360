"""Capabilities of agents: what their hooks decide about calls and answers, and that each is asked once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import (
    Agent,
    AgentContext,
    CallParallel,
    CallTool,
    Capability,
    Confirm,
    Deny,
    Ending,
    Finish,
    FinishReason,
    Guide,
    Identity,
    Proceed,
    RunContext,
    RunFailedError,
    Runtime,
    RuntimeOptions,
    ToolCall,
    ToolError,
    Transform,
    Verdict,
    tool,
)
from harborage.errors import InvalidOptionError
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects import hook_effects
from harborage.runtime.history.builder import build_history
from harborage.runtime.history.model import CallStatus
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.pauses import wait_for_approval
from tests.kit.planners import DONE, StepPlanner
from tests.kit.tables import each_row
from tests.runtime.test_killed_in_a_call import killed

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
A1 = CallTool("send", b'{"to":"ada"}', "c1")


class Post:
    """A post office that keeps what it sends."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    @tool(effects="external")
    async def send(self, to: str) -> str:
        """Send a letter."""
        self.sent.append(to)
        if to == "nobody":
            raise ToolError("no such address: secret")
        return f"sent to {to}"


class Before(Capability):
    """Says the same before each call, and keeps what it was asked."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = verdicts
        self.asked: list[tuple[AgentContext[Any], ToolCall]] = []

    async def before_tool(self, ctx: AgentContext[Any], call: ToolCall) -> Verdict:
        self.asked.append((ctx, call))
        said: Any = self.verdicts[min(len(self.asked), len(self.verdicts)) - 1]
        if isinstance(said, BaseException):
            raise said
        return said  # type: ignore[no-any-return]


class After(Capability):
    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked: list[Any] = []

    async def after_tool(self, ctx: AgentContext[Any], call: ToolCall, result: Any) -> Verdict:
        self.asked.append((call.tool, call.args, result))
        return self.verdict  # type: ignore[no-any-return]


class Finishing(Capability):
    """Lets answers pass as the lines say, and learns how runs end."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[Any] = []
        self.endings: list[Ending] = []

    async def before_finish(self, ctx: AgentContext[Any], output: Any) -> Verdict:
        self.asked.append(output)
        said: Any = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        return said  # type: ignore[no-any-return]

    async def after_run(self, ctx: AgentContext[Any], ending: Ending) -> None:
        self.endings.append(ending)


async def seen_of(post: Post, *capabilities: Capability, call: Any = A1, **options: Any) -> list[Any]:
    """What the planner is shown of a call, one entry for each step."""
    planner = StepPlanner(
        call, lambda run: Finish(FinishReason.GOAL, [one.llm_observation for one in run.trajectory.steps])
    )
    agent: Agent[Any, Any] = Agent("a", planner=planner, tools=[post.send], capabilities=capabilities, **options)
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        finish = await asyncio.wait_for(run.finished(), 20)
    assert isinstance(finish.payload, list)
    return finish.payload


@each_row(
    "said, sent, seen",
    [
        (Proceed(), ["ada"], "sent to ada"),
        (Transform({"to": "bob"}), ["bob"], "sent to bob"),
        (Deny("no addresses"), [], {"error": "the call was denied: no addresses"}),
        (Guide("ask for the order first"), [], {"error": "ask for the order first"}),
    ],
)
async def test_a_hook_decides_about_a_call(said: Verdict, sent: list[str], seen: Any) -> None:
    """What it refuses is not called; the planner reads why."""
    post, guard = Post(), Before(said)
    assert await seen_of(post, guard) == [seen]
    assert post.sent == sent
    ((ctx, call),) = guard.asked
    assert call == ToolCall("send", {"to": "ada"}, "c1")
    assert (ctx.who, ctx.goal, ctx.step, ctx.deps) == (WHO, "go", 1, None)


@each_row(
    "said, text",
    [
        (ValueError("oops"), "before_tool of Before failed: ValueError: oops"),
        (
            None,
            "before_tool of Before failed: it returned None; return one of Proceed, Deny, Guide, Confirm, Transform",
        ),
        (True, "it returned bool; return one of"),
        (Proceed, "it returned StructMeta; return one of"),
        (Transform("bob"), "Transform takes the arguments by name, as a dict"),
        (Transform({"to": object()}), "Transform: "),
        (Transform({"whom": "bob"}), "whom"),
        (asyncio.CancelledError(), "it awaited something that was cancelled elsewhere"),
    ],
)
async def test_a_hook_that_gives_no_verdict_refuses(said: Any, text: str) -> None:
    """The call is not made, and the planner reads what is wrong."""
    post = Post()
    (seen,) = await seen_of(post, Before(said))
    assert text in seen["error"]
    assert post.sent == []


async def test_a_hook_that_hangs_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time is up."""

    class Hanging(Capability):
        async def before_tool(self, ctx: AgentContext[Any], call: ToolCall) -> Verdict:
            await asyncio.Event().wait()
            return Proceed()

    monkeypatch.setattr(hook_effects, "HOOK_TIMEOUT_S", 0.01)
    (seen,) = await seen_of(Post(), Hanging())
    assert seen == {"error": "before_tool of Hanging failed: it gave no answer within 0.01 s"}


async def test_several_capabilities_are_asked_in_their_order() -> None:
    """Each sees what the one before it made of the call; after a refusal no other one is asked."""
    post, first, second, last = Post(), Before(Transform({"to": "bob"})), Before(Deny("not bob")), Before(Proceed())
    assert await seen_of(post, first, second, last) == [{"error": "the call was denied: not bob"}]
    assert second.asked[0][1].args == {"to": "bob"}
    assert last.asked == []


async def test_each_branch_of_a_parallel_call_is_asked_about() -> None:
    """One that is refused keeps no other from being made."""
    post, guard = Post(), Before(Deny("not now"), Proceed())
    both = CallParallel((A1, CallTool("send", b'{"to":"eve"}', "c2")))
    (seen,) = await seen_of(post, guard, call=both)
    assert [one.get("error", "") for one in seen["branches"]] == ["the call was denied: not now", ""]
    assert post.sent == ["eve"]


async def test_nobody_is_asked_about_a_call_that_could_not_be_made() -> None:
    """Arguments that do not fit go back to the planner."""
    guard = Before(Proceed())
    (seen,) = await seen_of(Post(), guard, call=CallTool("send", b'{"whom":"ada"}'))
    assert "whom" in seen["error"]
    assert guard.asked == []


@pytest.mark.parametrize("approvals", [None, {"send": AlwaysDeny("it is a letter")}])
async def test_a_call_that_a_hook_wants_confirmed_waits_for_a_person(approvals: Any) -> None:
    """The question is what the approver reads, and a person is asked once even where approval is needed anyway."""
    post = Post()
    agent: Agent[Any, Any] = Agent(
        "a",
        planner=StepPlanner(A1, DONE),
        tools=[post.send],
        capabilities=[Before(Confirm("to Ada, really?"))],
        approvals=approvals,
    )
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        asked = await asyncio.wait_for(run.wait_pending(), 20)
        assert (asked.tool, asked.args, asked.question) == ("send", {"to": "ada"}, "to Ada, really?")
        assert post.sent == []
        await asked.approve(args={"to": "bob"})
        assert (await asyncio.wait_for(run.finished(), 20)).payload == "done"
    assert post.sent == ["bob"]


async def test_a_call_that_a_person_does_not_confirm_is_not_made() -> None:
    """The planner reads the reason."""
    post = Post()
    planner = StepPlanner(A1, lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].error))  # type: ignore[union-attr]
    agent: Agent[Any, Any] = Agent("a", planner=planner, tools=[post.send], capabilities=[Before(Confirm("sure?"))])
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        await (await asyncio.wait_for(run.wait_pending(), 20)).reject("not her")
        assert "not her" in (await asyncio.wait_for(run.finished(), 20)).payload  # type: ignore[operator]
        history = build_history(await run.history())
    assert post.sent == []
    (call,) = history.steps[0].calls
    assert (call.approval_asked, call.tool, "not her" in call.refusal) == (True, "send", True)


async def test_a_run_waits_for_its_confirmation_without_memory(tmp_path: Path) -> None:
    """The answer is found when the run is taken up again; the hook is not asked again."""
    post, guard = Post(), Before(Confirm("sure?"))
    agent: Agent[Any, Any] = Agent("a", planner=StepPlanner(A1, DONE), tools=[post.send], capabilities=[guard])
    async with Runtime([agent], storage=f"sqlite:{tmp_path / 'runs.db'}", options=OPTIONS) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        await wait_for_approval(run)
        copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
    async with Runtime([agent], storage=copy, options=OPTIONS) as runtime:
        again = await runtime.run(run.id, who=WHO)
        await (await asyncio.wait_for(again.wait_pending(), 20)).approve()
        assert (await asyncio.wait_for(again.finished(), 20)).payload == "done"
    assert post.sent == ["ada"]
    assert len(guard.asked) == 1


OPTIONS = RuntimeOptions(linger=timedelta(0))


@each_row(
    "said, seen",
    [
        (Proceed(), "sent to ada"),
        (Transform("sent"), "sent"),
        (Deny("private"), {"error": "the result is withheld: private"}),
        (Guide("look at the order instead"), {"error": "look at the order instead"}),
        (Confirm("?"), {"error": "after_tool of After failed: only before_tool may return Confirm"}),
    ],
)
async def test_a_hook_decides_what_the_model_sees_of_a_result(said: Verdict, seen: Any) -> None:
    """The call was made all the same."""
    post, guard = Post(), After(said)
    assert await seen_of(post, guard) == [seen]
    assert post.sent == ["ada"]
    assert guard.asked == [("send", {"to": "ada"}, "sent to ada")]


async def test_the_text_of_a_failure_can_be_changed_too() -> None:
    """An error may hold what the model must not see."""
    guard = After(Transform("it failed"))
    assert await seen_of(Post(), guard, call=CallTool("send", b'{"to":"nobody"}')) == [{"error": "it failed"}]
    assert guard.asked == [("send", {"to": "nobody"}, {"error": "no such address: secret"})]


async def test_an_answer_is_asked_for_again_with_advice() -> None:
    """The model reads the advice and its own answer; the next one is the run's."""
    guard, model = Finishing(Guide("say it politely"), Proceed()), ScriptedLLM([says("No."), says("Sorry, no.")])
    result = await Agent("a", model=model, capabilities=[guard]).run("May I?")
    assert result.output == "Sorry, no."
    assert guard.asked == ["No.", "Sorry, no."]
    assert guard.endings == [Ending(output="Sorry, no.", reason="goal")]
    shown = model.requests[1].messages[-1].content.text
    assert "say it politely" in shown
    assert "No." in shown


async def test_an_answer_that_is_sent_back_each_time_fails_the_run() -> None:
    """After three tries, with the last advice."""
    guard, model = Finishing(Guide("say it politely")), ScriptedLLM([says("No.")] * 9)
    with pytest.raises(RunFailedError, match="sent back 3 times, and still is: say it politely") as caught:
        await Agent("a", model=model, capabilities=[guard]).run("May I?")
    assert caught.value.reason is FinishReason.CONSTRAINTS_CONFLICT
    assert len(guard.asked) == 4
    (ending,) = guard.endings
    assert (ending.output, ending.reason) == (None, "constraints_conflict")
    assert "say it politely" in ending.error


@dataclass
class Answer:
    text: str
    tags: list[str] = field(default_factory=list)


async def test_the_output_is_what_the_agent_declares() -> None:
    """A hook gets the value, and may put another one in its place."""
    guard = Finishing(Transform(Answer("Sorry", ["polite"])))
    agent = Agent("a", model=ScriptedLLM([says('{"text": "No"}')]), output=Answer, capabilities=[guard])
    assert (await agent.run("May I?")).output == Answer("Sorry", ["polite"])
    assert guard.asked == [Answer("No")]


@each_row(
    "said, text",
    [
        (Deny("it is rude"), "the answer was denied: it is rude"),
        (Transform(3), "before_finish of Finishing failed: Transform: "),
        (Confirm("?"), "only before_tool may return Confirm"),
        (None, "it returned None"),
    ],
)
async def test_an_answer_that_may_not_go_out_fails_the_run(said: Any, text: str) -> None:
    """The error says why."""
    with pytest.raises(RunFailedError, match=text):
        await Agent("a", model=ScriptedLLM([says("No.")]), capabilities=[Finishing(said)]).run("May I?")


async def test_a_run_that_fails_is_told_to_its_hooks_and_a_failing_hook_changes_no_end() -> None:
    """Each capability hears of it."""

    class Failing(Capability):
        async def after_run(self, ctx: AgentContext[Any], ending: Ending) -> None:
            raise ValueError("no disk")

    last = Finishing(Proceed())
    agent: Agent[Any, Any] = Agent("a", planner=StepPlanner(ValueError("lost")), capabilities=[Failing(), last])
    with pytest.raises(RunFailedError, match="lost"):
        await agent.run("go")
    (ending,) = last.endings
    assert "lost" in ending.error
    good: Agent[Any, Any] = Agent("b", planner=StepPlanner(DONE), capabilities=[Failing()])
    assert (await good.run("go")).output == "done"


class Watching(Before, Finishing):
    """Everything at once."""

    def __init__(self) -> None:
        Finishing.__init__(self, Proceed())
        Before.__init__(self, Proceed())
        self.results: list[Any] = []
        self.outputs: list[Any] = []

    async def after_tool(self, ctx: AgentContext[Any], call: ToolCall, result: Any) -> Verdict:
        self.results.append(result)
        return Transform(f"{result}!")

    async def before_finish(self, ctx: AgentContext[Any], output: Any) -> Verdict:
        self.outputs.append(output)
        return Transform(f"{output}?")


async def test_hooks_that_were_asked_are_not_asked_again_after_a_kill(tmp_path: Path) -> None:
    """The process dies in the second call: the next one takes what the hooks of the first said from the record."""
    hangs, sent = asyncio.Event(), list[str]()

    @tool(effects="write", idempotent=True)
    async def send(to: str) -> str:
        """Send."""
        sent.append(to)
        if to == "bob" and not hangs.is_set():
            hangs.set()
            await asyncio.Event().wait()
        return to

    def line(to: str) -> CallTool:
        return CallTool("send", b'{"to":"%s"}' % to.encode(), to)

    guard = Watching()
    planner = StepPlanner(line("ada"), line("bob"), lambda run: Finish(FinishReason.GOAL, shown(run)))
    agent: Agent[Any, Any] = Agent("a", planner=planner, tools=[send], capabilities=[guard])
    async with Runtime([agent], storage=f"sqlite:{tmp_path / 'runs.db'}", options=OPTIONS) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        await asyncio.wait_for(hangs.wait(), 20)
        copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
    async with Runtime([agent], storage=copy, options=OPTIONS) as runtime:
        again = await runtime.run(run.id, who=WHO)
        assert (await asyncio.wait_for(again.finished(), 20)).payload == "ada! bob!?"
        assert (await runtime.replay(await again.history())).summary() == "3 decisions are the same as recorded"
    assert [call.args["to"] for _, call in guard.asked] == ["ada", "bob"]
    assert guard.results == ["ada", "bob"]
    assert guard.outputs == ["ada! bob!"]
    assert [one.output for one in guard.endings] == ["ada! bob!?"]
    assert sent == ["ada", "bob", "bob"]


def shown(run: Any) -> str:
    return " ".join(str(step.llm_observation) for step in run.trajectory.steps)


@pytest.fixture
def two(tmp_path: Path) -> Callable[..., Any]:
    """Starts a run over one agent that waits, and continues it over another."""

    async def go(before: Agent[Any, Any], after: Agent[Any, Any]) -> Any:
        async with Runtime([before], storage=f"sqlite:{tmp_path / 'runs.db'}", options=OPTIONS) as runtime:
            run = await runtime.start(before, "go", who=WHO)
            await wait_for_approval(run)
            copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
        async with Runtime([after], storage=copy, options=OPTIONS) as runtime:
            again = await runtime.run(run.id, who=WHO)
            await (await asyncio.wait_for(again.wait_pending(), 20)).approve()
            return (await asyncio.wait_for(again.finished(), 20)).payload

    return go


@each_row(
    "earlier, later, text",
    [
        ([], [Before(Proceed())], "look at every call now and did not when the run started"),
        ([Before(Proceed())], [], "the agent that executes the run has none that does"),
    ],
)
async def test_a_run_whose_agent_has_other_hooks_since_makes_no_unseen_call(
    two: Callable[..., Any], earlier: list[Capability], later: list[Capability], text: str
) -> None:
    """Its calls are refused: nothing passes a hook by because the code changed."""
    post = Post()

    @tool(effects="read", approval="always")
    async def wait() -> str:
        """Wait."""
        return "waited"

    def agent(capabilities: list[Capability]) -> Agent[Any, Any]:
        planner = StepPlanner(CallTool("wait"), A1, lambda run: Finish(FinishReason.GOAL, shown(run)))
        return Agent("a", planner=planner, tools=[wait, post.send], capabilities=capabilities)

    assert text in await two(agent(earlier), agent(later))
    assert post.sent == []


GO = Proceed()


class AroundModel(Capability):
    """Says the lines around each call of the model, and keeps what it was shown."""

    def __init__(self, before: Any = GO, *after: Any) -> None:
        self.before = before
        self.after = list(after) or [Proceed()]
        self.requests: list[CompleteRequest] = []
        self.answers: list[str] = []

    async def before_model(self, ctx: AgentContext[Any], request: CompleteRequest) -> Verdict:
        self.requests.append(request)
        said: Any = self.before(request) if callable(self.before) else self.before
        return said  # type: ignore[no-any-return]

    async def after_model(self, ctx: AgentContext[Any], response: CompleteResponse) -> Verdict:
        self.answers.append(response.content)
        said: Any = self.after.pop(0) if len(self.after) > 1 else self.after[0]
        return said  # type: ignore[no-any-return]


async def replayed(run: Any, runtime: Runtime) -> str:
    return (await runtime.replay(await run.history())).summary()


async def test_hooks_change_what_the_model_reads_and_what_is_read_of_it() -> None:
    """A replay needs neither: the record has what the planner asked and got."""

    def warmer(request: CompleteRequest) -> Verdict:
        return Transform(replace(request, temperature=0.9))

    guard = AroundModel(warmer, Transform(CompleteResponse(content="Changed.")))
    advises = AroundModel(Guide("be kind"))
    model = ScriptedLLM([says("Said.")])
    agent = Agent("a", model=model, capabilities=[guard, advises])
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "May I?", who=WHO)
        assert (await asyncio.wait_for(run.result(), 20)).output == "Changed."
        assert await replayed(run, runtime) == "1 decisions are the same as recorded, with 1 answers of the model"
    (sent,) = model.requests
    assert sent.temperature == 0.9
    assert sent.messages[-1].content.text == "be kind"
    assert advises.answers == ["Changed."]
    assert len(guard.requests) == 1


async def test_a_model_is_asked_again_with_the_advice_of_a_hook() -> None:
    """It reads its answer and the advice; the run has spent both calls, and its planner saw one."""
    guard, model = AroundModel(Proceed(), Guide("in French"), Proceed()), ScriptedLLM([says("No."), says("Non.")])
    result = await Agent("a", model=model, capabilities=[guard]).run("May I?")
    assert result.output == "Non."
    assert guard.answers == ["No.", "Non."]
    assert [one.content.text for one in model.requests[1].messages[-2:]] == ["No.", "in French"]
    assert len(guard.requests) == 1


@each_row(
    "guard, text, calls",
    [
        (AroundModel(Deny("too costly")), "before_model of AroundModel denied it: too costly", 0),
        (AroundModel(Transform("x")), "before_model of AroundModel failed: Transform takes a CompleteRequest", 0),
        (AroundModel(Confirm("?")), "before_model of AroundModel failed: only before_tool may return Confirm", 0),
        (AroundModel(None), "before_model of AroundModel failed: it returned None", 0),
        (AroundModel(Proceed(), Deny("rude")), "after_model of AroundModel denied it: rude", 1),
        (AroundModel(Proceed(), Transform("x")), "Transform takes a CompleteResponse", 1),
        (AroundModel(Proceed(), Guide("again")), "after_model sent the answer back 3 times, and still does: again", 4),
    ],
)
async def test_a_model_call_that_a_hook_refuses_fails_the_run(guard: Capability, text: str, calls: int) -> None:
    """The error says which hook and why."""
    model = ScriptedLLM([says("No.")] * 5)
    with pytest.raises(RunFailedError, match=text.replace("?", r"\?")):
        await Agent("a", model=model, capabilities=[guard]).run("May I?")
    assert len(model.requests) == calls


def test_hooks_around_the_model_of_an_own_planner_are_refused() -> None:
    """They would never be asked: it calls its model itself."""
    with pytest.raises(InvalidOptionError, match="AroundModel has a hook around the model"):
        Agent("a", planner=StepPlanner(DONE), capabilities=[AroundModel()])


@dataclass
class Shop:
    name: str


async def test_instructions_may_be_a_function_that_is_asked_once(tmp_path: Path) -> None:
    """Its text is recorded: each step, a process that goes on, and a replay show the model the same."""
    asked: list[AgentContext[Shop]] = []
    began, texts = asyncio.Event(), iter(["Sell tea.", "Sell rice."])

    async def instruct(ctx: AgentContext[Shop]) -> str:
        asked.append(ctx)
        return f"{next(texts)} You are {ctx.deps.name}."

    @tool(effects="read")
    async def look() -> str:
        """Look."""
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return "seen"

    def agent(*lines: Any) -> tuple[Agent[Shop, str], ScriptedLLM]:
        model = ScriptedLLM(list(lines))
        return Agent("a", model=model, instructions=instruct, tools=[look], deps=Shop), model

    deps: dict[type, Callable[[Identity], Shop]] = {Shop: lambda who: Shop("Ada")}
    first, _ = agent(calls_tools(("look", {})))
    async with Runtime([first], storage=f"sqlite:{tmp_path / 'runs.db'}", options=OPTIONS, deps=deps) as runtime:
        run = await runtime.start(first, "go", who=WHO)
        await asyncio.wait_for(began.wait(), 20)
        copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
    second, model = agent(says("Done."))
    async with Runtime([second], storage=copy, options=OPTIONS, deps=deps) as runtime:
        again = await runtime.run(run.id, who=WHO)
        assert (await asyncio.wait_for(again.finished(), 20)).payload == "Done."
        assert "are the same as recorded" in await replayed(again, runtime)
    assert "Sell tea. You are Ada." in model.requests[0].messages[0].content.text
    ((ctx),) = asked
    assert (ctx.who, ctx.goal, ctx.step, ctx.deps) == (WHO, "go", 0, Shop("Ada"))


def no_text(ctx: AgentContext[Any]) -> str:
    return 3  # type: ignore[return-value]


def broken(ctx: AgentContext[Any]) -> str:
    raise ValueError("no shop")


@each_row(
    "function, text",
    [
        (no_text, "instructions: no_text failed: it returned int, not a text"),
        (broken, "instructions: broken failed: ValueError: no shop"),
    ],
)
async def test_a_run_without_its_instructions_fails(function: Any, text: str) -> None:
    """The model is not called without them."""
    model = ScriptedLLM([says("Hm.")])
    with pytest.raises(RunFailedError, match=text):
        await Agent("a", model=model, instructions=function).run("go")
    assert model.requests == []


@each_row(
    "options, text",
    [
        ({"instructions": 3}, "a text, or a function of the AgentContext"),
        ({"instructions": Shop}, "a text, or a function of the AgentContext"),
        ({"instructions": lambda: "x"}, "is called with the AgentContext alone"),
        ({"instructions": broken, "planner": StepPlanner(DONE)}, "pass them to the planner that you make yourself"),
    ],
)
def test_what_are_no_instructions_is_refused(options: dict[str, Any], text: str) -> None:
    """When the agent is made."""
    with pytest.raises(InvalidOptionError, match=text):
        Agent("a", **options)


async def test_the_history_shows_what_hooks_made_of_a_call() -> None:
    """Its arguments as they were sent, what the model saw of the result, and why one was refused."""
    post = Post()
    agent: Agent[Any, Any] = Agent(
        "a",
        planner=StepPlanner(A1, A1, A1, DONE),
        tools=[post.send],
        capabilities=[Before(Transform({"to": "bob"}), Deny("enough"), Proceed()), After(Transform("sent"))],
    )
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        await asyncio.wait_for(run.finished(), 20)
        history = build_history(await run.history())
    first, second, third = (step.calls[0] for step in history.steps[:3])
    assert (first.tool, first.args, first.observation, first.seen) == ("send", '{"to":"bob"}', "sent to bob", "sent")
    assert (second.status, second.refusal) == (CallStatus.REJECTED, "the call was denied: enough")
    assert (third.args, third.status) == ('{"to":"ada"}', CallStatus.DONE)
    assert history.totals.tool_calls == 2


async def test_a_call_of_another_agent_is_asked_about_like_any_other() -> None:
    """What is refused starts no run."""
    model = ScriptedLLM(
        [calls_tools(("helper", {"goal": "look"})), calls_tools(("helper", {"goal": "look"})), says("ok")]
    )
    helper_model = ScriptedLLM([says("found it")])
    helper = Agent("helper", model=helper_model, description="Looks.")
    guard, after = Before(Deny("not yet"), Proceed()), After(Transform("seen"))
    result = await Agent("a", model=model, agents=[helper], capabilities=[guard, after]).run("go")
    assert result.output == "ok"
    assert [call.args for _, call in guard.asked] == [{"goal": "look"}] * 2
    assert len(helper_model.requests) == len(after.asked) == 1
    assert "not yet" in model.requests[1].messages[-1].content.text
    assert "seen" in model.requests[2].messages[-1].content.text


async def test_the_answer_of_a_run_that_was_started_before_its_hooks_is_asked_about(two: Callable[..., Any]) -> None:
    """It goes out after today's hooks have seen it."""

    @tool(effects="read", approval="always")
    async def wait() -> str:
        """Wait."""
        return "waited"

    def agent(*capabilities: Capability) -> Agent[Any, Any]:
        return Agent("a", planner=StepPlanner(CallTool("wait"), DONE), tools=[wait], capabilities=capabilities)

    guard = Finishing(Transform("seen"))
    assert await two(agent(), agent(guard)) == "seen"
    assert guard.asked == ["done"]


async def test_a_verdict_is_on_disk_before_the_planner_goes_on(tmp_path: Path) -> None:
    """The process dies while the planner thinks about a result that a hook has seen."""
    post, guard, thinks = Post(), After(Transform("seen")), asyncio.Event()

    class Thinking:
        async def next(self, run: RunContext) -> Any:
            assert run.trajectory is not None
            if not run.trajectory.steps:
                return A1
            if not thinks.is_set():
                thinks.set()
                await asyncio.Event().wait()
            return Finish(FinishReason.GOAL, shown(run))

    agent: Agent[Any, Any] = Agent("a", planner=Thinking(), tools=[post.send], capabilities=[guard])
    async with Runtime([agent], storage=f"sqlite:{tmp_path / 'runs.db'}", options=OPTIONS) as runtime:
        run = await runtime.start(agent, "go", who=WHO)
        await asyncio.wait_for(thinks.wait(), 20)
        copy = killed(tmp_path / "runs.db", tmp_path / "copy.db")
    async with Runtime([agent], storage=copy, options=OPTIONS) as runtime:
        again = await runtime.run(run.id, who=WHO)
        assert (await asyncio.wait_for(again.finished(), 20)).payload == "seen"
    assert len(guard.asked) == len(post.sent) == 1
