"""An agent that a script runs: what it gives, what it refuses, and that it needs no runtime of its own."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
import pytest

from harborage import Agent, Capability, Finish, FinishReason, Identity, Limits, Runtime, tool
from harborage.app.project import Origin
from harborage.errors import InvalidOptionError, UnknownOptionError
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.outputs import json_schema
from harborage.runtime.run import Run
from harborage.state.storage import open_storage
from harborage.store import RunQuery
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools.errors import UnsupportedTypeError
from tests.kit.planners import StepPlanner
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@dataclass
class Answer:
    text: str
    cost: float = 0.0


@dataclass
class Refusal:
    why: str


class Row(TypedDict):
    item: str


class Point(msgspec.Struct):
    x: int


@tool(effects="read")
async def find(order: str) -> str:
    """Find an order."""
    return f"order {order}: broken"


@tool(effects="external")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def agent_that(*lines: Any, **options: Any) -> Agent[Any, Any]:
    """An agent whose model says these lines."""
    return Agent("support", model=ScriptedLLM(list(lines)), **options)


async def test_a_run_gives_its_output_as_the_declared_type() -> None:
    """The model is asked again after an answer of another form."""
    model = ScriptedLLM([calls_tools(("find", {"order": "7"})), says("It is broken."), says('{"text": "Sorry"}')])
    support = Agent("support", model=model, tools=[find], output=Answer)
    result = await support.run("Order 7 arrived broken")
    assert result.output == Answer("Sorry")
    assert (result.usage.model_calls, result.usage.tool_calls) == (3, 1)
    assert "it is no JSON" in model.requests[-1].messages[-1].content.text
    assert "additionalProperties" in model.requests[0].response_format.json_schema.decode()


@each_row(
    "output, said, value",
    [
        (Answer, '{"text": "a", "cost": 2}', Answer("a", 2)),
        (Answer, 'Here:\n```json\n{"text": "a"}\n```', Answer("a")),
        (Point, '{"x": 1}', Point(1)),
        (Row, '{"item": "tea"}', {"item": "tea"}),
        (list[Answer], '{"value": [{"text": "a"}]}', [Answer("a")]),
        (list[int], "[1, 2]", [1, 2]),
        (bool, '{"value": true}', True),
        (Literal["yes", "no"], '{"value": "yes"}', "yes"),
        (Answer | Refusal, '{"value": {"why": "no"}}', Refusal("no")),
        (Answer | Refusal, '{"text": "a"}', Answer("a")),
        (Answer | None, '{"value": null}', None),
        (str | Answer, "just text", "just text"),
        (json_schema({"type": "object", "required": ["n"]}), '{"n": 1}', {"n": 1}),
        (str, '{"text": "a"}', '{"text": "a"}'),
    ],
)
async def test_outputs(output: Any, said: str, value: Any) -> None:
    """Each type is read from what a model says, in an object where a provider wants one, or as it is."""
    assert (await agent_that(says(said), output=output).run("go")).output == value


async def test_an_output_that_never_fits_fails_with_what_was_wrong() -> None:
    """After the last try the run ends without its goal, and the error says why."""
    with pytest.raises(RunFailedError, match=r"Expected `str`.*\$\.text") as caught:
        await agent_that(*[says('{"text": 3}')] * 9, output=Answer).run("go")
    assert caught.value.reason is FinishReason.NO_PATH


@each_row(
    "output, text",
    [
        (3, "takes the type: int"),
        (Answer("a"), "takes the type: Answer"),
        ("Answer", "takes the type, not its name"),
        ({"type": "object"}, "json_schema"),
        (None, "says nothing about an answer"),
        (Any, "says nothing about an answer"),
        (complex, "no JSON form"),
        (Answer | type("Other", (), {}), "no JSON form"),
    ],
)
def test_what_is_no_output_is_refused(output: Any, text: str) -> None:
    """When the agent is made, in one line with the fix."""
    with pytest.raises(UnsupportedTypeError, match=text):
        Agent("a", model="openai:gpt-5", output=output)


@each_row(
    "options, text",
    [
        ({"name": ""}, "the agent's name, first"),
        ({"tools": "find"}, "several tools"),
        ({"approvals": "sometimes"}, "never, writes, always"),
        ({"approvals": 5}, "never, writes, always"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], text: str) -> None:
    """When the agent is made, with what they may be."""
    with pytest.raises(InvalidOptionError, match=text):
        Agent(**{"name": "a", "planner": StepPlanner(), **options})


def test_run_sync_works_without_an_event_loop() -> None:
    """For scripts that are not async."""
    assert agent_that(says("hi")).run_sync("go").output == "hi"


async def test_run_sync_works_beside_an_event_loop() -> None:
    """As in a notebook, whose own loop it does not use."""
    assert agent_that(says("hi")).run_sync("go").output == "hi"


async def test_runs_at_once_share_a_runtime() -> None:
    """Different agents, and one under another model, at the same time; none gets the answer of another."""
    agents = [agent_that(says(f"answer {number}")) for number in range(5)]
    results = await asyncio.gather(*(one.run("go") for one in agents))
    assert [one.output for one in results] == [f"answer {number}" for number in range(5)]


async def test_approvals_by_a_word_hold_writes_until_a_person_says_so() -> None:
    """A tool that reads is called at once, one that changes something waits; the handle approves it."""
    model = ScriptedLLM([calls_tools(("find", {"order": "7"})), calls_tools(("refund", {"order": "7"})), says("done")])
    support = Agent("support", model=model, tools=[find, refund], approvals="writes")
    async with support.stream("Refund order 7") as run:
        assert isinstance(run, Run)
        async for event in run.events():
            if event.type == "tool.approval_requested":
                (pause,) = await run.waiting()
                assert pause.payload["tool"] == "refund"
                await run.approve()
        result = await run.result()
    assert [message.text for message in result.messages if message.role == "tool"] == [
        "order 7: broken",
        "refunded 7",
    ]


async def test_a_run_that_waits_for_a_person_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, on stderr, with what answers it; a limit on its time ends the wait."""
    support = agent_that(calls_tools(("refund", {"order": "7"})), says("done"), tools=[refund], approvals="always")
    with pytest.raises(RunFailedError) as caught:
        await support.run("Refund order 7", limits=Limits(seconds=0.3))
    assert caught.value.reason is FinishReason.DEADLINE_EXCEEDED
    assert capsys.readouterr().err.count(f"run {caught.value.run_id} waits for a person") == 1


async def test_a_service_names_whose_run_it_is() -> None:
    """Agents are given to a runtime, and started there by value or by name; each answers as itself."""
    first = Agent("first", planner=StepPlanner(Finish(FinishReason.GOAL, "one")))
    second = Agent("second", planner=StepPlanner(Finish(FinishReason.GOAL, {"text": "two"})), output=Answer)
    async with Runtime([first, second]) as runtime:
        runs = [
            await runtime.start(first, "go", who=ME),
            await runtime.start(second, "go", who=ME),
            await runtime.start("second", "go", who=ME),
        ]
        assert [(await run.result()).output for run in runs] == ["one", Answer("two"), Answer("two")]
        with pytest.raises(InvalidOptionError, match="one of first, second"):
            await runtime.start("thrid", "go", who=ME)
        with pytest.raises(InvalidOptionError, match="say which agent starts"):
            await runtime.start("go", who=ME)
        with pytest.raises(InvalidOptionError, match="another agent named 'first'"):
            await runtime.start(first.replace(instructions=""), "go", who=ME)
        with pytest.raises(InvalidOptionError, match="the goal is missing"):
            await runtime.start(first, who=ME)  # type: ignore[call-overload]


@each_row(
    "agents, options, text",
    [
        ([], {}, "there is no agent"),
        ([Agent("a", planner=StepPlanner()), Agent("a", planner=StepPlanner())], {}, "two agents are named 'a'"),
        (["a"], {}, "agents, such as harborage.Agent"),
        ("a", {}, "a list of agents"),
        ([Agent("a", planner=StepPlanner())], {"instructions": "Be brief."}, "instructions: say it in the agent"),
    ],
)
def test_agents_that_do_not_fit_a_runtime_are_refused(agents: Any, options: dict[str, Any], text: str) -> None:
    """When the runtime is made."""
    with pytest.raises(InvalidOptionError, match=text):
        Runtime(agents, **options)


async def test_runs_of_several_agents_go_on_in_another_process(tmp_path: Path) -> None:
    """Each with its own planner; a worker that lacks the agent of a run leaves it alone."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    gate = asyncio.Event()

    class Waits:
        async def next(self, run: Any) -> Any:
            await gate.wait()
            return Finish(FinishReason.GOAL, "late")

    slow, other = Agent("slow", planner=Waits()), Agent("other", planner=StepPlanner(Finish(FinishReason.GOAL, 1)))
    async with Runtime([slow, other], storage=url) as runtime:
        run = await runtime.start(slow, "go", who=ME)
        assert (await (await runtime.start(other, "go", who=ME)).result()).output == 1
    async with Runtime([other], storage=url) as runtime:
        assert (await (await runtime.start(other, "go", who=ME)).result()).output == 1
        assert not (await (await runtime.run(run.id, who=ME)).status()).phase.is_final
    gate.set()
    async with Runtime([other, slow], storage=url) as runtime:
        assert (await (await runtime.run(run.id, who=ME)).finished()).payload == "late"


async def test_leaving_a_stream_does_not_end_its_run() -> None:
    """The handle steers it afterwards, too."""
    gate = asyncio.Event()

    class Waits:
        async def next(self, run: Any) -> Any:
            await gate.wait()
            return Finish(FinishReason.CANCELLED if run.control.cancelled else FinishReason.GOAL, "done")

    async with Agent("a", planner=Waits()).stream("go") as run:
        pass
    assert not (await run.status()).phase.is_final
    await run.message("hello")
    gate.set()
    assert (await run.result()).output == "done"


async def test_the_runs_of_a_script_are_kept_under_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a command line finds agent and folder again, whatever the session is called."""
    monkeypatch.setenv("HARBORAGE_STORAGE", f"sqlite:{tmp_path / 'runs.db'}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def script() -> None:
        async def main() -> None:
            support = agent_that(says("hi"))
            await support.run("go")
            await support.session("a?b#c").send("go")

        asyncio.run(main())

    await asyncio.to_thread(script)
    async with await open_storage(f"sqlite:{tmp_path / 'runs.db'}") as storage:
        origins = [Origin.of(row.agent) for row in (await storage.store.runs(RunQuery())).rows]
    assert [(one.target, one.folder) for one in origins] == [("support", str(tmp_path))] * 2
    assert sorted(one.mark.startswith("session-") for one in origins) == [False, True]


@each_row(
    "option, meant",
    [
        ("output_type", "output"),
        ("response_format", "output"),
        ("deps_type", "deps"),
        ("system_prompt", "instructions"),
        ("max_turns", "limits=Limits(steps=…)"),
        ("timeout", "limits=Limits(seconds=…)"),
        ("modell", "model"),
    ],
)
async def test_a_word_of_another_library_gets_the_word_of_this_one(option: str, meant: str) -> None:
    """In an agent and in a changed one; a long value is cut in the text."""
    given: dict[str, Any] = {option: "x" * 500}
    for make in (partial(Agent, "a"), agent_that().replace):
        with pytest.raises(UnknownOptionError) as caught:
            make(**given)
        assert str(caught.value).endswith(f"…: there is no such option; did you mean {meant}?")
        assert len(str(caught.value)) < 200


@each_row(
    "option, meant",
    [
        ("output", "agent.replace(output=…).run(…)"),
        ("max_turns", "limits=Limits(steps=…)"),
        ("session_id", 'agent.session("id").send(…)'),
        ("limit", "limits"),
    ],
)
async def test_a_run_says_where_an_option_belongs_that_it_does_not_have(option: str, meant: str) -> None:
    """However it is started."""
    given: dict[str, Any] = {option: 3}
    agent = agent_that(says("done"))
    for start in (agent.run, agent.start):
        with pytest.raises(
            UnknownOptionError, match=re.escape(f"{option}=3: there is no such option; did you mean {meant}?")
        ):
            await start("go", **given)


async def test_a_result_says_what_its_parts_are_called() -> None:
    """For the words of other libraries."""
    result = await agent_that(says("done")).run("go")
    for name, meant in (("data", "output"), ("final_output", "output"), ("id", "run_id")):
        with pytest.raises(AttributeError, match=rf"a result has no '{name}'; did you mean \.{meant}\?"):
            getattr(result, name)
    with pytest.raises(AttributeError, match="a result has no 'colour'$"):
        _ = result.colour  # type: ignore[attr-defined]


async def test_a_token_given_as_the_reason_is_refused() -> None:
    """Nobody rejects a call with its token as the reason."""
    run = await agent_that(
        calls_tools(("refund", {"order": "7"})), says("done"), tools=[refund], approvals="writes"
    ).start("go")
    pending = await run.wait_pending()
    with pytest.raises(
        InvalidOptionError, match=f"reject: the reason is the token of the pause; write token='{pending.token}'"
    ):
        await run.reject(pending.token)
    await run.reject("too much", token=pending.token)
    assert (await run.result()).output == "done"


class Desk(Capability):
    """A capability whose tool is a method."""

    instructions = "Be polite."

    def __init__(self, name: str) -> None:
        self.name = name

    @tool(effects="read")
    async def look(self) -> str:
        """Look."""
        return f"seen by {self.name}"

    tools = (look,)


async def test_a_capability_brings_tools_and_instructions() -> None:
    """A method is bound to the value; the instructions stand after those of the agent."""
    model = ScriptedLLM([calls_tools(("look", {}), ("find", {"order": "7"})), says("ok")])
    more = Capability(tools=[find], instructions="Be brief.")
    agent = Agent("a", model=model, instructions="Help.", capabilities=[Desk("ada"), more])
    result = await agent.run("go")
    assert [one.text for one in result.messages if one.tool and one.text] == ["seen by ada", "order 7: broken"]
    assert "Help.\n\nBe polite.\n\nBe brief." in model.requests[0].messages[0].content.text
    assert agent.replace(description="d").capabilities == agent.capabilities


@each_row(
    "capabilities, text",
    [
        (Desk("ada"), "several capabilities"),
        ([Desk], r"Desk is the class; write Desk\(\)"),
        ([find], "expected capabilities"),
        ([Desk("ada"), Desk("bob")], "two are named 'look'"),
        ([Capability(tools=[print])], "tools"),  # type: ignore[list-item]
        ([Capability(tools=find)], "several tools"),  # type: ignore[arg-type]
        ([Capability(instructions=3)], "expected a text"),  # type: ignore[arg-type]
    ],
)
def test_capabilities_that_mean_nothing_are_refused(capabilities: Any, text: str) -> None:
    """When the agent is made."""
    with pytest.raises(InvalidOptionError, match=text):
        Agent("a", model="openai:gpt-5", capabilities=capabilities)


def test_words_of_other_libraries_for_capabilities_are_understood() -> None:
    """The error names the option."""
    with pytest.raises(UnknownOptionError, match="did you mean capabilities"):
        Agent("a", guardrails=[])  # type: ignore[call-arg]
