"""The values of tools that catalogs hold, planners read and invokers call.

Everything here is frozen and may be shared by any number of runs; nothing here calls a tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, overload

import msgspec
from msgspec.structs import force_setattr
from typing_extensions import TypeForm, TypeVar

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import InvalidOptionError, names_of, one_of
from harborage.identity import Quadruple
from harborage.tools.enums import Loading, OnUnknown, SideEffect, Transport
from harborage.tools.errors import HandleUnknownError, ToolError
from harborage.tools.policy import EffectivePolicy, ToolPolicy, is_guarded, resolve_policy

if TYPE_CHECKING:
    from datetime import timedelta

    from harborage.artifacts import ArtifactStore
    from harborage.events import Event
    from harborage.tools.inputs import InputAnswer, InputGiven, InputQuestion
    from harborage.tools.invoke import AttemptScope

T = TypeVar("T")

DepsT_co = TypeVar("DepsT_co", covariant=True, default=object)
DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=object)
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Runnable(Protocol[ResultT_co]):
    """An agent, as far as a tool that runs it must know it."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def output(self) -> TypeForm[ResultT_co]:
        """The type of its output."""
        ...


class CallServices(Protocol):
    """What a run offers to a tool while it calls it; `CallContext` has the methods for tools."""

    def begin(self, scope: AttemptScope | None) -> None:
        """An attempt begins, whose time is limited by the scope; the questions of an earlier one are asked again."""
        ...

    def progress(self, message: str, done: float | None, total: float | None) -> None:
        """Show how far the call is."""
        ...

    async def ask(self, question: str, type: Any, expires: timedelta | None, default: Any) -> Any:
        """Ask a person; `default` is `...` where there is none."""
        ...

    async def run(self, agent: Runnable[Any], goal: str) -> Any:
        """Run an agent as a child of the run."""
        ...

    async def put(self, question: InputQuestion, source: str, tool: str, expires: timedelta) -> InputAnswer:
        """Put a question of a peer to a person, which waits on a connection of this process until it expires."""
        ...


class ToolExample(msgspec.Struct, frozen=True):
    """A call that shows how a tool is meant to be used. Tags such as `minimal` or `edge-case` say what it shows."""

    args: dict[str, Any] = {}
    description: str = ""
    tags: tuple[str, ...] = ()


class Tool(msgspec.Struct, frozen=True):
    """A tool as planners and people see it: its name, its schemas and what a call of it does to the world.

    `idempotent` promises that calls with the same `CallContext.idempotency_key` act once; it lets a call that failed
    in an unknown state be repeated although the tool writes. `handles_mime` entries are an exact type or `type/*`.

    Raises:
        InvalidOptionError: an option has a value that it cannot have, or the policy asks for retries of a tool whose
            calls may not be repeated.
    """

    name: str
    description: str = ""
    args_schema: dict[str, Any] = {}
    out_schema: dict[str, Any] = {}
    side_effects: SideEffect = SideEffect.STATEFUL
    idempotent: bool = False
    tags: tuple[str, ...] = ()
    auth_scopes: tuple[str, ...] = ()
    cost_hint: str = ""
    latency_hint: str = ""
    safety_notes: str = ""
    loading: Loading = Loading.ALWAYS
    examples: tuple[ToolExample, ...] = ()
    source: str = ""
    transport: Transport = Transport.INPROCESS
    policy: ToolPolicy = ToolPolicy()
    handles_mime: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "side_effects", one_of(SideEffect, self.side_effects, "side_effects"))
        force_setattr(self, "loading", one_of(Loading, self.loading, "loading"))
        force_setattr(self, "transport", one_of(Transport, self.transport, "transport"))
        for names in ("tags", "auth_scopes", "handles_mime"):
            force_setattr(self, names, names_of(getattr(self, names), names))
        if not all(isinstance(one, ToolExample) for one in self.examples):
            raise InvalidOptionError("examples", self.examples, "several ToolExamples")
        for name in ("name", "description", "cost_hint", "latency_hint", "safety_notes", "source"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOptionError(name, getattr(self, name), "a text")
        if not isinstance(self.idempotent, bool):
            raise InvalidOptionError("idempotent", self.idempotent, "True or False")
        if not isinstance(self.policy, ToolPolicy):
            raise InvalidOptionError("policy", self.policy, "a ToolPolicy")
        if self.policy.max_retries and is_guarded(self.side_effects, self.idempotent):
            raise InvalidOptionError(
                "max_retries",
                self.policy.max_retries,
                f"none for tool {self.name!r}, which is {self.side_effects}: a second attempt might act a second time; "
                "declare effects='read' if it changes nothing, or idempotent=True if it acts once per "
                "CallContext.idempotency_key",
            )

    @property
    def has_effects(self) -> bool:
        """Whether a call may change something outside the run."""
        return self.side_effects not in (SideEffect.PURE, SideEffect.READ)

    @property
    def is_repeatable(self) -> bool:
        """Whether a call whose outcome is unknown may be made again: it changes nothing, or it acts once per key."""
        return self.idempotent or not self.has_effects

    @property
    def on_unknown(self) -> OnUnknown:
        """How an interrupted call is resolved, whose worker died in it."""
        wanted = self.policy.on_unknown
        if wanted is not None:
            return wanted
        return OnUnknown.RETRY if self.is_repeatable else OnUnknown.REPORT

    def is_granted(self, scopes: frozenset[str]) -> bool:
        """Whether a caller with `scopes` may see and call this tool; a tool without scopes is open to all."""
        return not self.auth_scopes or scopes.issuperset(self.auth_scopes)

    def handles(self, mime: str) -> bool:
        """Whether the tool declares that it reads content of this type."""
        return any(mime_matches(pattern, mime) for pattern in self.handles_mime)


def mime_matches(pattern: str, mime: str) -> bool:
    """Whether `mime` is `pattern`, or of the family that a `type/*` pattern names. `*/*` matches nothing."""
    if not mime or pattern == "*/*":
        return False
    return pattern == mime or (pattern.endswith("/*") and len(pattern) > 2 and mime.startswith(pattern[:-1]))


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call: the value, and metadata of the transport."""

    value: Any = None
    meta: dict[str, Any] | None = None


class CallContext(msgspec.Struct, Generic[DepsT_co], frozen=True):
    """Everything that a tool may know about its call. A function gets it in a parameter of this type.

    `idempotency_key` is the same for every attempt at one call, also after a crash; `key_headers` and `key_meta` are
    how it travels further. `emit` publishes an event of the run; the Invoker publishes those of the call there.
    `tool_context` is the part of the run's context that only tools see; `handle` returns its live objects. `deps` are
    the dependencies that the run was given, of the type that its agent declares; they are never recorded. `services`
    are behind `ask`, `run` and `progress`. `approved` is the mark of the tool when a person approved the call.
    `given` are the answers that a call goes on with which returned that it
    needs them.
    """

    who: Quadruple
    call_id: str = ""
    idempotency_key: str = ""
    artifacts: ArtifactStore | None = None
    emit: Callable[[Event], object] | None = None
    clock: Clock = SYSTEM_CLOCK
    tool_context: Mapping[str, Any] = {}
    find_handle: Callable[[str], Any] | None = None
    deps: DepsT_co = None  # type: ignore[assignment] # of an agent without dependencies
    services: CallServices | None = None
    given: InputGiven | None = None
    approved: str = ""

    def progress(self, message: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Show how far the call is: a short text, and how much of how much is done.

        It is published at most ten times a second, and the last one always; nothing of it is recorded. Outside a run
        nobody is there to see it, and nothing happens.
        """
        if self.services is not None:
            self.services.progress(message, done, total)

    @overload
    async def ask(self, question: str, type: TypeForm[T], *, expires: timedelta | None = None) -> T: ...

    @overload
    async def ask(self, question: str, type: TypeForm[T], *, expires: timedelta | None = None, default: T) -> T: ...

    async def ask(self, question: str, type: Any, *, expires: timedelta | None = None, default: Any = ...) -> Any:
        """Ask a person; returns the answer, which has been checked against `type`.

        `run.answer(value)` and `harborage answer` give it. The time limit of the tool does not count meanwhile. When
        the process ends before the answer is there, a tool that only reads, or is idempotent, is called again from its
        beginning, and finds the answers that were given; the outcome of any other is unknown.

        Raises:
            QuestionExpiredError: nobody answered within `expires`, and there is no `default`.
            QuestionRejectedError: a person refused to answer; a yes-or-no question is answered False by that.
            ToolError: the call is made outside a run.
        """
        return await self._offered("ask").ask(question, type, expires, default)

    async def run(self, agent: Runnable[T], goal: str) -> T:
        """Run an agent to its goal, as a child of the run of this call; returns its output.

        The agent is one that the tool's code names, or that the runtime was given. It counts within the limits of the
        run; the time limit of the tool does not count meanwhile.

        Raises:
            ToolFailedError: it ended without reaching its goal, or was not started.
            ToolError: the call is made outside a run.
        """
        output: T = await self._offered("run").run(agent, goal)
        return output

    def _offered(self, what: str) -> CallServices:
        if self.services is None:
            raise ToolError(f"ctx.{what}: this call is made outside a run; a run of an agent offers it")
        return self.services

    def handle(self, name: str) -> Any:
        """Return the live object that the run's context has under `name`, the very one that was set.

        Raises:
            HandleUnknownError: the run's context has no such name, or the object is not in this process.
        """
        if self.find_handle is None:
            raise HandleUnknownError(name)
        return self.find_handle(name)

    @property
    def key_headers(self) -> dict[str, str]:
        """The idempotency key as HTTP headers; none when the call has none."""
        return {"Idempotency-Key": self.idempotency_key} if self.idempotency_key else {}

    @property
    def key_meta(self) -> dict[str, str]:
        """The idempotency key as metadata of an MCP request; none when the call has none."""
        return {"dev.harborage/idempotency-key": self.idempotency_key} if self.idempotency_key else {}


class Probed(msgspec.Struct, frozen=True):
    """The finding of a tool's probe about an interrupted call.

    `acted` is None when the probe cannot know, False when the call may be made again under the same key. `value` is the
    result that the interrupted call would have returned.
    """

    acted: bool | None = None
    value: Any = None


ToolBody: TypeAlias = Callable[[bytes, CallContext[Any]], Awaitable[ToolResult]]
ToolProbe: TypeAlias = Callable[[bytes, CallContext[Any]], Awaitable[Probed]]


class ToolDescriptor(msgspec.Struct, Generic[DepsT_contra], frozen=True, dict=True):
    """A tool and how to call it: `body` takes the arguments as JSON, exactly as the planner wrote them.

    `validate_args` and `validate_result` raise ToolInvalidArgsError. `body_validates` says that the body refuses
    invalid arguments by itself before it acts, so that checking them first would be checking them twice. `function`
    is the Python function behind the tool, when there is one. `probe` finds the outcome of an interrupted call
    with these arguments under the same key, without changing anything. `approval` says which calls a person must
    approve: "always", "never", a policy, or None where the tool says nothing. `decode_result` reads a recorded result;
    `read_result` calls it. `when` says whether a run is offered the tool. One that is `unavailable` is listed for
    people, with this reason, and offered to no run. The type variable is what its calls need as `CallContext.deps`.
    """

    tool: Tool
    body: ToolBody
    validate_args: Callable[[bytes], None] | None = None
    validate_result: Callable[[Any], None] | None = None
    body_validates: bool = False
    function: Callable[..., Any] | None = None
    probe: ToolProbe | None = None
    approval: str | Callable[[Any], Any] | None = None
    decode_result: Callable[[Any], Any] | None = None
    when: Callable[[Any], bool | Awaitable[bool]] | None = None
    unavailable: str = ""

    def read_result(self, recorded: Any) -> Any:
        """Return a result as the tool declares it, such as a dataclass or a Decimal, from its plain recorded JSON.

        A result of a tool that declares none is what was recorded. A result that was too large for the record is read
        from its artifact first.

        Raises:
            ToolInvalidArgsError: it does not fit the declared type, which has changed since.
        """
        return recorded if self.decode_result is None else self.decode_result(recorded)

    @cached_property
    def policy(self) -> EffectivePolicy:
        """The tool's policy with its defaults filled in."""
        return resolve_policy(self.tool.policy, is_repeatable=not self.is_guarded)

    @cached_property
    def is_guarded(self) -> bool:
        """Whether a call that failed in an unknown state must not be repeated."""
        return is_guarded(self.tool.side_effects, self.tool.idempotent)
