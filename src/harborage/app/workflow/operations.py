"""What a workflow can await: each operation is one decision of its run, and its result is read from the record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload
from uuid import UUID

from typing_extensions import ParamSpec, TypeForm
from typing_extensions import TypeVar as DefaultTypeVar

from harborage import codec
from harborage.app.workflow.errors import WorkflowInvalidError
from harborage.app.workflow.moments import Spawning
from harborage.planner import AwaitTask, CallParallel, CallTool, SpawnSpec, SpawnTask
from harborage.planner.answers import AnswerInvalidError, AnswerSchema
from harborage.runtime.effects.agent_setup import tool_name
from harborage.runtime.loop.agent_calls import outcome_of
from harborage.runtime.loop.outcome import OutcomeStatus
from harborage.runtime.loop.workflow_waits import ASK, RECEIVE, SLEEP, Answered, Question, Receive, Sleep
from harborage.runtime.outputs import output_type
from harborage.tools import ToolDescriptor
from harborage.tools.errors import QuestionExpiredError, QuestionRejectedError, ToolFailedError, ToolRejectedError
from harborage.tools.schema import make_object_schema

if TYPE_CHECKING:
    from random import Random

    from harborage.app.agent import Agent
    from harborage.app.workflow.moments import Moment
    from harborage.tools.typed import AsyncTool, SyncTool

P = ParamSpec("P")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
DepsT = DefaultTypeVar("DepsT", default=None)

MODEL: Final = "model"
"""The name of the agent that is the model of a workflow alone."""

_TEXT: Final = AnswerSchema(make_object_schema({"value": {"type": "string"}}, ["value"]), True, True)

Operation: TypeAlias = CallTool | CallParallel | SpawnTask | AwaitTask


class Outcome(NamedTuple):
    """How one operation ended: its result as plain JSON, or its status and why it has none."""

    value: Any = None
    error: str = ""
    status: str = ""


class Wanted:
    """Awaiting this gives the outcomes of an operation; only the execution of a workflow can."""

    __slots__ = ("operation",)

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def __await__(self) -> Generator[Wanted, list[Outcome], list[Outcome]]:
        return (yield self)


class Child(Generic[T]):
    """A run that a workflow has started: `await child.result()` gives what it gave."""

    def __init__(self, agent: Agent[Any, T], task_id: str) -> None:
        self._agent = agent
        self.run_id = task_id

    async def result(self) -> T:
        """What the run gave, once it has ended.

        Raises:
            ToolFailedError: it ended without reaching its goal.
        """
        [outcome] = await Wanted(AwaitTask(self.run_id))
        if outcome.error:
            raise _error_of(self._agent.name, outcome)
        ended = outcome_of(self._agent.name, outcome.value)
        if ended.status is not OutcomeStatus.DONE:
            raise ToolFailedError(self._agent.name, ended.error)
        value: T = _read_output(self._agent, ended.observation)
        return value


class WorkflowContext(Generic[DepsT]):
    """What the function of a workflow works with; each await of one of its methods is one recorded step of the run.

    The type variable is what the tools that it calls depend on.
    """

    def __init__(self, run_id: str, known: frozenset[str]) -> None:
        self.run_id = run_id
        self._known = known
        self._moment: Moment | None = None

    @overload
    def call(self, tool: AsyncTool[P, T, DepsT], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...

    @overload
    def call(self, tool: SyncTool[P, T, DepsT], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...

    def call(self, tool: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Call a tool; returns its result, of the type that it declares.

        Raises:
            ToolFailedError: it gave no result after its retries; `is_unknown` says that it may have acted.
            ToolRejectedError: a person refused the call.
            WorkflowInvalidError: the workflow does not know the tool, or it is called with other arguments.
        """
        return self._call(tool, args, kwargs)

    async def _call(self, tool: ToolDescriptor[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(tool, ToolDescriptor):
            raise WorkflowInvalidError(f"ctx.call: {tool!r} is no tool; put @tool above it")
        name = tool.tool.name
        self._require(name, f"@workflow(tools=[{name}])")
        [outcome] = await Wanted(CallTool(name, _encoded(tool, args, kwargs)))
        if outcome.error:
            raise _error_of(name, outcome)
        return tool.read_result(outcome.value)

    @overload
    async def gather(self, a: Coroutine[Any, Any, T1], b: Coroutine[Any, Any, T2], /) -> tuple[T1, T2]: ...

    @overload
    async def gather(
        self, a: Coroutine[Any, Any, T1], b: Coroutine[Any, Any, T2], c: Coroutine[Any, Any, T3], /
    ) -> tuple[T1, T2, T3]: ...

    @overload
    async def gather(
        self,
        a: Coroutine[Any, Any, T1],
        b: Coroutine[Any, Any, T2],
        c: Coroutine[Any, Any, T3],
        d: Coroutine[Any, Any, T4],
        /,
    ) -> tuple[T1, T2, T3, T4]: ...

    @overload
    async def gather(self, *operations: Coroutine[Any, Any, T]) -> tuple[T, ...]: ...

    async def gather(self, *operations: Coroutine[Any, Any, Any]) -> tuple[Any, ...]:
        """Await several operations of the workflow at once; returns their results in order, once all have ended.

        Raises:
            WorkflowInvalidError: one is no operation of the workflow, such as a coroutine of asyncio.
            Exception: of the first one that failed.
        """
        if not operations:
            return ()
        wanted = _begin_all(operations)
        if len(wanted) == 1:
            return (_finish(operations[0], await Wanted(wanted[0])),)
        outcomes = await Wanted(CallParallel(tuple(wanted)))
        ended = [_ended(one, [outcome]) for one, outcome in zip(operations, outcomes, strict=True)]
        for one in ended:
            if isinstance(one, _Raised):
                raise one.error
        return tuple(ended)

    async def sleep(self, time: timedelta) -> None:
        """Wait for a while, of days too; the run holds no memory meanwhile.

        Raises:
            WorkflowInvalidError: it is no timedelta, or negative.
        """
        await self.until(self.now() + _duration(time, "ctx.sleep"))

    async def until(self, time: datetime) -> None:
        """Wait until a time, which has a zone; one that has passed is no wait.

        Raises:
            WorkflowInvalidError: it is no datetime, or has no zone.
        """
        [outcome] = await Wanted(CallTool(SLEEP, codec.encode(Sleep(_in_utc(time)))))
        if outcome.error:
            raise _error_of(SLEEP, outcome)

    @overload
    async def ask(self, question: str, type: TypeForm[T], *, expires: timedelta | None = None) -> T: ...

    @overload
    async def ask(self, question: str, type: TypeForm[T], *, expires: timedelta | None = None, default: T) -> T: ...

    async def ask(self, question: str, type: Any, *, expires: timedelta | None = None, default: Any = ...) -> Any:
        """Ask a person; returns the answer, which has been checked against `type`.

        `run.answer(value)` and `harborage answer` give it; of a yes-or-no question `approve` is True, and `reject` is
        False. Until then the run holds no memory.

        Raises:
            QuestionExpiredError: nobody answered within `expires`, and there is no `default`.
            QuestionRejectedError: a person refused to answer; a yes-or-no question is answered False by that.
            WorkflowInvalidError: the question is no text, or the type has no JSON form.
        """
        _check_question(question)
        reader = _Answers(type)
        until = None if expires is None else self.now() + _duration(expires, "ctx.ask: expires")
        asked = Question(question=question, schema=reader.schema, expires=until)
        [outcome] = await Wanted(CallTool(ASK, codec.encode(asked)))
        if outcome.error:
            raise _error_of(ASK, outcome)
        answered: Answered = codec.decode(codec.encode(outcome.value), Answered)
        if answered.is_expired:
            if default is ...:
                raise QuestionExpiredError(question)
            return default
        if answered.is_rejected:
            if type is bool:
                return False
            raise QuestionRejectedError(question, answered.reason)
        return reader.read(answered.value)

    async def receive(self, *, timeout: timedelta | None = None) -> str | None:
        """Wait for a message of the user, as `run.message` sends it; None if none comes in time.

        Messages are received in the order in which they came, each once; until then the run holds no memory.

        Raises:
            WorkflowInvalidError: `timeout` is no timedelta, or negative.
        """
        until = None if timeout is None else self.now() + _duration(timeout, "ctx.receive: timeout")
        while (message := self._present.next_message()) is None:
            [outcome] = await Wanted(CallTool(RECEIVE, codec.encode(Receive(until))))
            if outcome.error:
                raise _error_of(RECEIVE, outcome)
            if not outcome.value:
                return self._present.next_message()
        return message

    @overload
    def run(self, agent: Agent[Any, T], goal: str) -> Coroutine[Any, Any, T]: ...

    @overload
    def run(self, agent: Agent[Any, Any], goal: str, *, output: TypeForm[T]) -> Coroutine[Any, Any, T]: ...

    def run(self, agent: Any, goal: str, *, output: Any = None) -> Coroutine[Any, Any, Any]:
        """Run an agent to its goal, as a child of this run; returns its output, or one of the type `output`.

        Raises:
            ToolFailedError: it ended without reaching its goal.
            WorkflowInvalidError: the workflow does not know the agent, or it takes no other output.
        """
        return self._run(agent, goal, output)

    async def _run(self, agent: Agent[Any, Any], goal: str, output: Any) -> Any:
        if not hasattr(agent, "setup") or not _is_text(goal):
            raise WorkflowInvalidError(f"ctx.run takes an agent and its goal as a text, not {agent!r} and {goal!r}")
        name = tool_name(agent.name)
        self._require(name, f"@workflow(agents=[{agent.name}])")
        output = None if output is agent.output else output
        if output is not None and agent.planner is not None:
            raise WorkflowInvalidError(
                f"ctx.run: {agent.name!r} decides by a planner of its own, which takes no output="
            )
        args, read = _called_with(goal, output)
        [outcome] = await Wanted(CallTool(name, codec.encode(args)))
        if outcome.error:
            raise _error_of(agent.name, outcome)
        return _read_output(agent, outcome.value) if output is None else read(outcome.value)

    @overload
    def model(self, prompt: str) -> Coroutine[Any, Any, str]: ...

    @overload
    def model(self, prompt: str, *, output: TypeForm[T]) -> Coroutine[Any, Any, T]: ...

    def model(self, prompt: str, *, output: Any = None) -> Coroutine[Any, Any, Any]:
        """Ask the model of the workflow, which `@workflow(model=…)` names; returns its text, or a value of `output`.

        It is a child run without tools, so that it is recorded, counted, and asked again like every answer.

        Raises:
            ToolFailedError: the model gave no such answer.
            WorkflowInvalidError: the workflow has no model.
        """
        return self._model(prompt, output)

    async def _model(self, prompt: str, output: Any) -> Any:
        if not _is_text(prompt):
            raise WorkflowInvalidError(f"ctx.model takes what is asked as a text first, not {prompt!r}")
        if MODEL not in self._known:
            raise WorkflowInvalidError('ctx.model: the workflow has no model; write @workflow(model="openai:gpt-5")')
        args, read = _called_with(prompt, None if output is str else output)
        [outcome] = await Wanted(CallTool(MODEL, codec.encode(args)))
        if outcome.error:
            raise _error_of(MODEL, outcome)
        return read(outcome.value)

    def spawn(self, agent: Agent[Any, T], goal: str) -> Coroutine[Any, Any, Child[T]]:
        """Start a run of an agent as a child of this run, and go on; `await child.result()` gives what it gave.

        Raises:
            ToolFailedError: it was not started.
            WorkflowInvalidError: the workflow does not know the agent, or what this gives is used without `await`.
        """
        return Spawning(self._spawn(agent, goal), agent.name)

    async def _spawn(self, agent: Agent[Any, T], goal: str) -> Child[T]:
        self._require(tool_name(agent.name), f"@workflow(agents=[{agent.name}])")
        spec = SpawnSpec(description=f"{agent.name}: {goal}"[:200], query=goal, agent=agent.name)
        [outcome] = await Wanted(SpawnTask("background", spec))
        if outcome.error:
            raise _error_of(agent.name, outcome)
        return Child(agent, str(outcome.value["task_id"]))

    def now(self) -> datetime:
        """The time, in UTC; the same one whenever this code is executed again."""
        return self._present.at

    @property
    def random(self) -> Random:
        """Random numbers; the same ones whenever this code is executed again."""
        return self._present.random

    def uuid(self) -> UUID:
        """A random UUID; the same one whenever this code is executed again."""
        return UUID(int=self._present.random.getrandbits(128), version=4)

    def patched(self, change: str) -> bool:
        """Whether this run takes the change of that name: False for one that was here before the change was made."""
        return self._present.takes(change)

    @property
    def _present(self) -> Moment:
        if self._moment is None:
            raise WorkflowInvalidError("a workflow's context is used by its function alone, while it is executed")
        return self._moment

    def _require(self, name: str, fix: str) -> None:
        if name not in self._known:
            raise WorkflowInvalidError(f"the workflow does not know {name!r}: name it in {fix}")


class _Answers:
    """The type of an answer: its schema for the person, and the way to the value."""

    def __init__(self, type: Any) -> None:
        self._type = None if type is str else output_type(type)
        self.schema = {"type": "string"} if self._type is None else self._type.inner_schema

    def read(self, value: Any) -> Any:
        try:
            return value if self._type is None else self._type.decode(value)
        except AnswerInvalidError as error:
            raise WorkflowInvalidError(f"ctx.ask: the answer does not fit: {error}") from error


def _duration(time: object, what: str) -> timedelta:
    if not isinstance(time, timedelta) or time < timedelta():
        raise WorkflowInvalidError(f"{what} takes a timedelta, such as timedelta(days=3), not {time!r}")
    return time


def _in_utc(time: object) -> datetime:
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise WorkflowInvalidError(f"ctx.until takes a datetime with a time zone, not {time!r}")
    return time.astimezone(UTC)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_question(question: object) -> None:
    if not _is_text(question):
        raise WorkflowInvalidError(f"ctx.ask takes the question as a text first, not {question!r}")


class _Raised(NamedTuple):
    error: Exception


def _begin_all(operations: tuple[Any, ...]) -> list[CallTool]:
    wanted: list[CallTool] = []
    try:
        for one in operations:
            if not inspect.iscoroutine(one) or one.cr_code not in _OPERATIONS:
                name = getattr(one, "__qualname__", type(one).__name__)
                raise WorkflowInvalidError(f"ctx.gather takes operations such as ctx.call(…), not {name}")
            asked = one.send(None)
            if not isinstance(asked.operation, CallTool):
                raise WorkflowInvalidError(f"ctx.gather cannot await {one.__qualname__}; await it by itself")
            wanted.append(asked.operation)
    except BaseException:
        for one in operations:
            if inspect.iscoroutine(one):
                one.close()
        raise
    return wanted


def _ended(operation: Coroutine[Any, Any, Any], outcomes: list[Outcome]) -> Any:
    """What an operation gives for its outcome; an error as a value, so that the others end, too."""
    try:
        return _finish(operation, outcomes)
    except Exception as error:  # noqa: BLE001 - raised once all have ended
        return _Raised(error)


def _finish(operation: Coroutine[Any, Any, Any], outcomes: list[Outcome]) -> Any:
    try:
        operation.send(outcomes)
    except StopIteration as stop:
        return stop.value
    raise WorkflowInvalidError("an operation awaits twice")


def _error_of(name: str, outcome: Outcome) -> Exception:
    if outcome.status in (OutcomeStatus.REJECTED, OutcomeStatus.HELD_BACK):
        return ToolRejectedError(name, outcome.error)
    return ToolFailedError(name, outcome.error, is_unknown=outcome.status == OutcomeStatus.UNKNOWN)


def _called_with(goal: str, output: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The arguments of a call of an agent, and how its answer is read.

    Raises:
        UnsupportedTypeError: the output is no type, or has no JSON form.
    """
    if output is None:
        return {"goal": goal}, _as_it_is
    form = output_type(output)
    if form is None:
        return {"goal": goal, "output": codec.to_plain(_TEXT)}, _as_it_is
    return {"goal": goal, "output": codec.to_plain(form.for_record)}, form.decode


def _as_it_is(value: Any) -> Any:
    return value


def _read_output(agent: Agent[Any, Any], value: Any) -> Any:
    read = agent.setup().decode
    return value if read is None else read(value)


def _encoded(tool: ToolDescriptor[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments of a call as JSON, by the names of the parameters.

    Raises:
        WorkflowInvalidError: they do not fit the function.
    """
    given = dict(kwargs)
    if args:
        names = list((tool.tool.args_schema or {}).get("properties", {}))
        if len(args) > len(names):
            raise WorkflowInvalidError(f"ctx.call({tool.tool.name}): it takes {len(names)} arguments, not {len(args)}")
        given |= dict(zip(names, args, strict=False))
    try:
        encoded = codec.encode(given, tool.tool.name)
        if tool.validate_args is not None:
            tool.validate_args(encoded)
    except Exception as error:
        raise WorkflowInvalidError(f"ctx.call({tool.tool.name}): {error}") from error
    return encoded


_OPERATIONS: frozenset[Any] = frozenset(
    one.__code__
    for one in (
        WorkflowContext._call,
        WorkflowContext._run,
        WorkflowContext._model,
        WorkflowContext.sleep,
        WorkflowContext.until,
        WorkflowContext.ask,
    )
)
