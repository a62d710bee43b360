"""What is langgraph's own: prebuilt graphs, typed output, direct answers, middleware, injection, what is refused."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import ToolRuntime
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState, create_react_agent
from langgraph.types import Command
from pydantic import BaseModel

from harborage import FinishReason, Identity, Runtime
from harborage.llm import Role
from harborage.planner.adapters import AdapterUnsupportedError, adapt_langgraph
from harborage.testing.conformance.adapters import ScriptedModel, texts_of
from harborage.testing.llm import calls_tools, says

pytestmark = pytest.mark.anyio

ME = Identity("tenant", "user", "session")


class Sum(BaseModel):
    """A typed answer."""

    total: int


@tool
def note(word: str) -> str:
    """Take a note."""
    return f"noted {word}"


async def outcome(adapted: Any, goal: str = "go") -> tuple[Any, list[bytes]]:
    """How a run of an adapted agent finished, and its record."""
    async with Runtime(planner=adapted.planner, tools=adapted.tools, approvals=adapted.approvals) as runtime:
        run = await runtime.start(goal, who=ME)
        return await run.finished(), await run.history()


async def test_typed_output_is_the_payload(brain_model: Any) -> None:
    """The output's own tool is no tool of the run; a slip in it is asked again within the step."""
    brain = ScriptedModel([calls_tools(("Sum", {"total": "x"})), calls_tools(("Sum", {"total": 3}))])
    graph = create_agent(brain_model(brain=brain), [note], response_format=ToolStrategy(Sum))
    finish, history = await outcome(adapt_langgraph(graph))
    assert (finish.reason, finish.payload) == (FinishReason.GOAL, {"total": 3})
    assert sum(b'"name":"plan"' in entry for entry in history) == 1
    assert not any(b'"name":"tool.' in entry for entry in history)


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
async def test_the_older_prebuilt_agent_works_too(brain_model: Any) -> None:
    """`create_react_agent` has the same shape under other names."""
    brain = ScriptedModel([calls_tools(("note", {"word": "a"}), ("note", {"word": "b"})), says("done")])
    graph = create_react_agent(brain_model(brain=brain), [note], prompt="be brief", checkpointer=InMemorySaver())
    finish, _ = await outcome(adapt_langgraph(graph))
    assert finish.payload == "done"
    assert texts_of(brain.requests[1].messages, Role.TOOL) == ["noted a", "noted b"]
    assert [seen.system for seen in brain.requests] == ["be brief"] * 2


async def test_an_agent_without_tools_answers(brain_model: Any) -> None:
    """A graph that only has a model is one turn."""
    finish, _ = await outcome(adapt_langgraph(create_agent(brain_model(brain=ScriptedModel([says("hi")])))))
    assert finish.payload == "hi"


async def test_a_direct_answer_ends_the_run(brain_model: Any) -> None:
    """The result of a tool that answers by itself is the finish, without another turn; a failure is none."""

    @tool(return_direct=True)
    def direct(word: str) -> str:
        """Answer."""
        if word == "bad":
            raise LookupError("no answer")
        return f"straight {word}"

    brain = ScriptedModel([calls_tools(("direct", {"word": "bad"})), calls_tools(("direct", {"word": "x"}))])
    graph = create_agent(brain_model(brain=brain), [direct])
    finish, _ = await outcome(adapt_langgraph(graph))
    assert (finish.payload, len(brain.requests)) == ("straight x", 2)


async def test_the_graphs_own_memory_is_not_used(brain_model: Any) -> None:
    """A checkpointer adds nothing: the history is the run's record, once."""
    brain = ScriptedModel([calls_tools(("note", {"word": "a"})), says("done")])
    saver = InMemorySaver()
    adapted = adapt_langgraph(create_agent(brain_model(brain=brain), [note], checkpointer=saver))
    await outcome(adapted)
    assert texts_of(brain.requests[1].messages, Role.USER) == ["go"]
    assert list(saver.list(None)) == []


async def test_middleware_around_the_model_works(brain_model: Any) -> None:
    """What runs before and after the model runs at every step."""
    seen: list[str] = []

    class Watch(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> None:
            seen.append("before")

        def after_model(self, state: Any, runtime: Any) -> None:
            seen.append("after")

    brain = ScriptedModel([calls_tools(("note", {"word": "a"})), says("done")])
    await outcome(adapt_langgraph(create_agent(brain_model(brain=brain), [note], middleware=[Watch()])))
    assert seen == ["before", "after"] * 2


async def test_a_tool_gets_what_the_framework_injects(brain_model: Any) -> None:
    """A tool sees its run's context and its call's id, which no model can forge; the graph's state is not there."""

    @tool
    def whoami(runtime: ToolRuntime[dict[str, str], Any], id: Annotated[str, InjectedToolCallId]) -> str:
        """Say who asks."""
        return f"{runtime.context['user']} {id} {runtime.tool_call_id}"

    @tool
    def peek(runtime: ToolRuntime[dict[str, str], Any]) -> str:
        """Look into the state."""
        return str(runtime.state["messages"])

    forged = {"id": "forged", "runtime": {"context": "root"}}
    brain = ScriptedModel([calls_tools(("whoami", forged), ("peek", {}), ids=["c1", "c2"]), says("ok")])
    graph = create_agent(brain_model(brain=brain), [whoami, peek], context_schema=dict)
    adapted = adapt_langgraph(graph, context_for=lambda who: {"user": who.user_id})
    assert adapted.tools[0].tool.args_schema["properties"] == {}
    await outcome(adapted)
    who, peeked = texts_of(brain.requests[1].messages, Role.TOOL)
    assert who == "user c1 c1"
    assert "the graph's state, which the runtime does not have" in peeked


async def test_what_a_tool_says_went_wrong_is_a_failure(brain_model: Any) -> None:
    """An error that a tool turned into a message is an error; a command to the graph is refused and says so."""

    @tool
    def steer() -> Command[Any]:
        """Steer the graph."""
        return Command(goto="model")

    @tool
    def sorry() -> str:
        """Fail."""
        raise ToolException("closed today")

    sorry.handle_tool_error = True
    brain = ScriptedModel([calls_tools(("steer", {}), ("sorry", {})), says("ok")])
    await outcome(adapt_langgraph(create_agent(brain_model(brain=brain), [steer, sorry])))
    steered, failed = texts_of(brain.requests[1].messages, Role.TOOL)
    assert "return a value instead" in steered
    assert "error" in failed
    assert "closed today" in failed


class Counting(AgentState[Any]):
    """A state with something of its own."""

    count: int


class Once(AgentMiddleware):
    """Something that is meant to run once."""

    def before_agent(self, state: Any, runtime: Any) -> None:
        """Do nothing."""


@tool
def stateful(count: Annotated[int, InjectedState("count")]) -> str:
    """Read the state."""
    return str(count)


def free_graph() -> Any:
    """A graph that was built freely."""
    builder = StateGraph(AgentState)
    builder.add_node("think", lambda state: state)
    builder.add_edge(START, "think")
    return builder.compile()


def with_node(model: Any) -> Any:
    """A prebuilt agent's shape with one node more."""
    builder = create_agent(model, [note]).builder
    builder.add_node("extra", lambda state: state)
    return builder.compile()


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda model: free_graph(), "no prebuilt agent"),
        (with_node, "'extra'"),
        (lambda model: object(), "no compiled StateGraph"),
        (
            lambda model: create_agent(
                model, [note], middleware=[HumanInTheLoopMiddleware(interrupt_on={"note": True})]
            ),
            "approvals",
        ),
        (lambda model: create_agent(model, [note], middleware=[Once()]), "before_agent"),
        (lambda model: create_agent(model, [note], middleware=[ToolRetryMiddleware()]), "wraps tool calls"),
        (lambda model: create_agent(model, [note], middleware=[TodoListMiddleware()]), "todos"),
        (lambda model: create_agent(model, [note], state_schema=Counting), "count"),
        (lambda model: create_agent(model, [stateful]), "'stateful'"),
    ],
)
def test_what_cannot_be_cut_is_refused(brain_model: Any, build: Any, what: str) -> None:
    """A graph whose steps nobody can hold, record or make again is refused, and the message names the part."""
    with pytest.raises(AdapterUnsupportedError, match=what):
        adapt_langgraph(build(brain_model(brain=ScriptedModel([]))))
