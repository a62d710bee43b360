"""`@workflow`: an async function as an agent, with the tools and agents that its code names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack, get_args, get_origin, get_type_hints

import msgspec
from typing_extensions import TypeVar as DefaultTypeVar

from harborage import codec
from harborage.app.agent import Agent
from harborage.app.sub_agents import named_in, names_in, setups_below
from harborage.app.workflow.errors import WorkflowInvalidError
from harborage.app.workflow.execution import Function, WorkflowPlanner
from harborage.app.workflow.operations import MODEL, WorkflowContext
from harborage.errors import known_options
from harborage.llm.model import check_model
from harborage.planner.answers import AnswerInvalidError
from harborage.runtime.effects.agent_setup import AgentSetup, tool_name
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.outputs import output_type
from harborage.tools import ToolDescriptor

if TYPE_CHECKING:
    from typing import overload

    from harborage.app.agent_options import ApprovalChoice
    from harborage.runtime.effects.model import ModelChoice
    from harborage.runtime.loop.limits import Limits

GoalT = TypeVar("GoalT")
OutT = DefaultTypeVar("OutT", default=Any)
DepsT = DefaultTypeVar("DepsT", default=None)

_STEPS: Final = 1_000_000
"""A loop in a workflow is ended by its code, or by `limits`."""


class WorkflowOptions(TypedDict, total=False):
    """What `@workflow(…)` may say beside its function.

    `tools` and `agents` are those that the function reaches in a way that its code does not show, such as by a
    dictionary. `model` is what `ctx.model` asks, and of agents that name none. `approvals` and `limits` are as of
    `Agent`; `name` is the function's own without one.
    """

    name: str
    description: str
    model: ModelChoice | None
    tools: Sequence[ToolDescriptor[Any]]
    agents: Sequence[Agent[Any, Any]]
    approvals: ApprovalChoice | None
    limits: Limits | None
    options: RuntimeOptions


class Workflow(Agent[DepsT, OutT]):
    """An async function as an agent: `run`, `start`, `stream` and `Runtime([restock])` are as of every agent.

    Raises:
        WorkflowInvalidError: the function is not async, has other parameters than a context and a goal, or does not
            say what it returns; the text says what to write.
        UnknownOptionError: there is no such option.
    """

    __slots__ = ("_function", "_goal", "_model", "_said")

    if not TYPE_CHECKING:

        def __new__(cls, function: Any, **options: Any) -> Self:
            known_options(options, WorkflowOptions.__annotations__, {})
            return object.__new__(cls)

    def __init__(self, function: Function, **options: Unpack[WorkflowOptions]) -> None:
        goal, deps, output = _read_signature(function)
        object.__setattr__(self, "_function", function)
        object.__setattr__(self, "_goal", goal)
        object.__setattr__(self, "_said", dict(options))
        object.__setattr__(self, "_model", model := options.get("model"))
        if model is not None:
            check_model(model)
        super().__init__(
            options.get("name", function.__name__),
            planner=_Undecided(),
            output=output,
            deps=deps,
            tools=options.get("tools", ()),
            agents=options.get("agents", ()),
            limits=options.get("limits"),
            approvals=options.get("approvals"),
            description=options.get("description", inspect.getdoc(function) or ""),
            options=options.get("options", RuntimeOptions(max_steps=_STEPS)),
        )

    _function: Function
    _model: ModelChoice | None
    _goal: Any
    _said: dict[str, Any]

    def __repr__(self) -> str:
        return f"Workflow({self.name!r})"

    def replace(self, **changes: Any) -> Workflow[DepsT, OutT]:
        """Return the same workflow with other options.

        Raises:
            UnknownOptionError: there is no such option.
        """
        return Workflow(self._function, **(self._said | changes))

    @property
    def _asks_model(self) -> bool:
        return MODEL in names_in(self._function)

    @property
    def wants_model(self) -> bool:
        """Whether it asks a model, or runs an agent that names none, and names none itself."""
        found = named_in(self._function, (Agent,))
        return self._model is None and (self._asks_model or any(one.wants_model for one in found if one is not self))

    def setup(self) -> AgentSetup:
        """What a runtime opens for this workflow: the tools and agents that its code names, too."""
        found = list(named_in(self._function, (ToolDescriptor, Agent)))
        tools = _distinct([*self.tools, *(one for one in found if isinstance(one, ToolDescriptor))])
        named = [one.agent for one in self.agents] + [
            one for one in found if isinstance(one, Agent) and one is not self
        ]
        if self._asks_model and self._model is not None:
            named.append(Agent(MODEL, model=self._model, description="The model of the workflow, without tools."))
        below = Agent("below", agents=_distinct(named)).agents
        known = {one.tool.name for one in tools} | {tool_name(one.name) for one in below}
        planner = WorkflowPlanner(
            self.name, self._function, frozenset(known), read_goal=self._read_goal, write=self._write
        )
        setup = super().setup()
        return msgspec.structs.replace(
            setup, reasoner=planner, tools=tuple(tools), agents=setups_below(below, self._model), is_workflow=True
        )

    async def _started(self, goal: Any, deps: Any, choices: Any) -> Any:
        return await super()._started(self._write_goal(goal), deps, choices)

    def _write_goal(self, goal: Any) -> str:
        if self._goal is str:
            return goal  # type: ignore[no-any-return] # checked where every goal is
        return codec.encode_text(codec.to_plain(goal, "goal"), "goal")

    def _read_goal(self, goal: str) -> Any:
        if self._goal is str:
            return goal
        reader = output_type(self._goal)
        assert reader is not None
        try:
            return reader.decode(codec.decode(goal))
        except (msgspec.DecodeError, AnswerInvalidError) as error:
            what = getattr(self._goal, "__name__", str(self._goal))
            raise WorkflowInvalidError(f"the goal of {self.name!r} is the JSON of a {what}: {error}") from error

    def _write(self, value: Any) -> Any:
        """The payload of what the function returned.

        Raises:
            WorkflowInvalidError: it is not of the type that the function declares.
        """
        plain = codec.to_plain(value, f"what {self.name} returned")
        if self._output_type is None:
            if not isinstance(value, str):
                raise WorkflowInvalidError(f"{self.name!r} returned a {type(value).__name__}, not the str it declares")
            return plain
        try:
            return self._output_type.check(plain)
        except AnswerInvalidError as error:
            raise WorkflowInvalidError(f"{self.name!r} returned something else than it declares: {error}") from error


class _Undecided:
    """The planner of a workflow that no runtime has opened."""

    async def next(self, run: Any) -> Any:
        raise WorkflowInvalidError("this workflow was not opened by a runtime; give it to Runtime([…]) or run it")


if TYPE_CHECKING:

    @overload
    def workflow(
        function: Callable[[WorkflowContext[DepsT], Any], Coroutine[Any, Any, OutT]],
    ) -> Workflow[DepsT, OutT]: ...

    @overload
    def workflow(
        **options: Unpack[WorkflowOptions],
    ) -> Callable[[Callable[[WorkflowContext[DepsT], Any], Coroutine[Any, Any, OutT]]], Workflow[DepsT, OutT]]: ...


def workflow(function: Any = None, **options: Any) -> Any:
    """Make a workflow of an async function: `@workflow` or `@workflow(limits=…)`.

    The function gets a `WorkflowContext` and the goal, and says what it returns. Each await of a method of the context
    is one step of its run, which is recorded, so the run goes on after a crash, and waits for days without memory.

    Raises:
        WorkflowInvalidError: the function cannot be one; the text says why.
        UnknownOptionError: there is no such option.
    """
    if function is None:
        return lambda one: Workflow(one, **options)
    return Workflow(function, **options)


def _read_signature(function: Any) -> tuple[Any, Any, Any]:
    """The types of the goal, of the dependencies and of the result.

    Raises:
        WorkflowInvalidError: the function cannot be a workflow.
    """
    name = getattr(function, "__name__", repr(function))
    shape = f"async def {name}(ctx: WorkflowContext, goal: str) -> str"
    if not inspect.iscoroutinefunction(function):
        raise WorkflowInvalidError(f"@workflow: {name} is not async; write {shape}")
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 2 or any(one.kind is not one.POSITIONAL_OR_KEYWORD for one in parameters):
        raise WorkflowInvalidError(f"@workflow: {name} takes the context and the goal; write {shape}")
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise WorkflowInvalidError(f"@workflow: {name}: {error}; its types are imported at runtime") from error
    context = hints.get(parameters[0].name)
    if context is not WorkflowContext and get_origin(context) is not WorkflowContext:
        raise WorkflowInvalidError(f"@workflow: {name}: its first parameter is a WorkflowContext; write {shape}")
    if "return" not in hints or parameters[1].name not in hints:
        raise WorkflowInvalidError(f"@workflow: {name} does not say the types of its goal and result; write {shape}")
    [deps] = get_args(context) or (NoneType,)
    return hints[parameters[1].name], deps, hints["return"]


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({id(one): one for one in values}.values())
