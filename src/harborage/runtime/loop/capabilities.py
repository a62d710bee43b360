"""Capabilities: tools, instructions and hooks as one value, and the verdicts that hooks return. No I/O.

A hook is asked once, by the worker that executes the run, and its answer is recorded: a run that goes on elsewhere, or
is replayed, takes the recorded one.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias

import msgspec
from typing_extensions import TypeVar

from harborage.callables import require_async
from harborage.errors import InvalidOptionError
from harborage.identity import Identity
from harborage.planner import CallTool

if TYPE_CHECKING:
    from harborage.llm import CompleteRequest, CompleteResponse
    from harborage.tools import ToolDescriptor

DepsT_co = TypeVar("DepsT_co", covariant=True, default=Any)


class Proceed(msgspec.Struct, frozen=True):
    """Go on with it as it is."""


class Deny(msgspec.Struct, frozen=True):
    """Do not: a call is not made, a result is withheld, and an answer fails the run. The model reads the reason of the
    first two."""

    reason: str

    def __post_init__(self) -> None:
        _check_text("Deny", "reason", self.reason)


class Guide(msgspec.Struct, frozen=True):
    """Not like this: the model reads the advice instead of the result, or is asked for another answer with it."""

    advice: str

    def __post_init__(self) -> None:
        _check_text("Guide", "advice", self.advice)


class Confirm(msgspec.Struct, frozen=True):
    """Ask a person first, as for an approval; only `before_tool` may."""

    question: str

    def __post_init__(self) -> None:
        _check_text("Confirm", "question", self.question)


class Transform(msgspec.Struct, frozen=True):
    """Go on with this instead: other arguments, another result for the model, or another output."""

    value: Any


Verdict: TypeAlias = Proceed | Deny | Guide | Confirm | Transform
"""What a hook returns."""


def _check_text(verdict: str, field: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidOptionError(f"{verdict}: {field}", text, "a text that says why")


class AgentContext(msgspec.Struct, Generic[DepsT_co], frozen=True):
    """Whose run it is and how far it has come: what hooks may know of it.

    `deps` are the dependencies that the run was given, of the type that its agent declares; they are never recorded.
    `goal` is the present one, after redirects. `step` counts the planner's calls so far.
    """

    who: Identity
    run_id: str
    deps: DepsT_co
    goal: str
    step: int


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the planner decided on: the name of the tool, the arguments by name, and the id of the call."""

    tool: str
    args: dict[str, Any]
    call_id: str = ""


class Ending(msgspec.Struct, frozen=True):
    """How a run ends: its output, or why it has none. `reason` is that of its finish, empty after an error."""

    output: Any = None
    error: str = ""
    reason: str = ""


class Capability:
    """Tools, instructions and hooks that agents get as one value: `Agent(…, capabilities=[Moderation()])`.

    Derive a class of it, with `tools` and `instructions` as attributes and async methods for its hooks, or give both
    here for one without hooks. A tool that is a method of the class is bound to the value. Hooks of several
    capabilities are asked in the order of the agent's list; the first refusal ends it, and what one transforms the next
    one sees. A hook that raises, returns something else or takes longer than 60 s refuses, and says so.

    A worker that dies before a hook's answer is recorded asks it again; afterwards it is never asked again.

    Raises:
        CallbackKindError: a hook is no async function.
        InvalidOptionError: a method is named like a hook and is none, or takes other arguments; the text says which one
            may be meant.
    """

    tools: Sequence[ToolDescriptor[Any]] = ()
    instructions: str = ""

    def __init__(self, *, tools: Sequence[ToolDescriptor[Any]] | None = None, instructions: str | None = None) -> None:
        if tools is not None:
            self.tools = tools  # what is none is refused by the agent, which says so
        if instructions is not None:
            self.instructions = instructions

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in vars(cls).items():
            if name in HOOKS:
                _check_hook(f"{cls.__name__}.{name}", value, HOOKS[name])
            elif inspect.isfunction(value):
                _check_helper(cls.__name__, name)

    async def before_model(self, ctx: AgentContext[Any], request: CompleteRequest) -> Verdict:
        """Say whether the model is called, and with what: `Transform(request)` changes it, `Guide` adds its advice.

        After `Deny` the run fails. The record has the request as the planner made it.
        """
        return Proceed()

    async def after_model(self, ctx: AgentContext[Any], response: CompleteResponse) -> Verdict:
        """Say what the planner gets of an answer; with `Guide` the model is asked again, at most 3 times.

        After `Deny` the run fails. The record has the answer as the planner got it.
        """
        return Proceed()

    async def before_tool(self, ctx: AgentContext[Any], call: ToolCall) -> Verdict:
        """Say whether a call is made, and how: `Transform(arguments)` changes it, `Confirm` asks a person first."""
        return Proceed()

    async def after_tool(self, ctx: AgentContext[Any], call: ToolCall, result: Any) -> Verdict:
        """Say what the model sees of a call that was made; `result` is `{"error": …}` for one that failed.

        The record keeps what the tool gave.
        """
        return Proceed()

    async def before_finish(self, ctx: AgentContext[Any], output: Any) -> Verdict:
        """Say whether the output may go out; the model is asked again with the advice of `Guide`, at most 3 times."""
        return Proceed()

    async def after_run(self, ctx: AgentContext[Any], ending: Ending) -> None:
        """Learn how the run ends, before anybody else does; an error here is logged and changes nothing."""


InstructionsFunction: TypeAlias = Callable[[AgentContext[Any]], str | Awaitable[str]]
"""Gives the instructions of one run, when it begins; what it gave is recorded."""

INSTRUCTIONS: Final = "instructions"
"""Among the recorded hooks of a run: its instructions come from a function, which is asked once."""

OFFERED: Final = "offered"
"""Among the recorded hooks of a run: tools say when they are offered, which is asked once."""

HOOKS: Final[Mapping[str, tuple[str, ...]]] = {
    "before_model": ("ctx", "request"),
    "after_model": ("ctx", "response"),
    "before_tool": ("ctx", "call"),
    "after_tool": ("ctx", "call", "result"),
    "before_finish": ("ctx", "output"),
    "after_run": ("ctx", "ending"),
}
"""The hooks, and what each is called with."""


def has_hook(capability: Capability, hook: str) -> bool:
    """Whether a capability has a hook of its own."""
    return getattr(type(capability), hook) is not getattr(Capability, hook)


def has_model_hook(capability: Capability) -> bool:
    """Whether a capability has a hook around the calls of the model."""
    return has_hook(capability, "before_model") or has_hook(capability, "after_model")


def hooks_of(capabilities: Iterable[Capability]) -> tuple[str, ...]:
    """The hooks that any of these capabilities has."""
    given = tuple(capabilities)
    return tuple(hook for hook in HOOKS if any(has_hook(one, hook) for one in given))


def _check_hook(where: str, hook: Any, takes: tuple[str, ...]) -> None:
    signature = f"async def {where.rpartition('.')[2]}(self, {', '.join(takes)})"
    if hook is None:
        raise InvalidOptionError(where, hook, signature)
    require_async(hook, where)
    if inspect.isfunction(hook):
        try:
            inspect.signature(hook).bind(None, *takes)
        except TypeError as error:
            text = f"{where} takes other arguments than a hook is called with: write {signature}"
            raise InvalidOptionError(where, hook, message=text) from error


def _check_helper(owner: str, name: str) -> None:
    """Refuse a method that would never be called as the hook that it looks like."""
    is_like = name.startswith(("before_", "after_", "on_"))
    meant = get_close_matches(name, HOOKS, n=1, cutoff=0.5 if is_like else 0.85)
    if is_like or (meant and not name.startswith("_")):
        guess = f"did you mean {meant[0]}?" if meant else f"the hooks are {', '.join(HOOKS)};"
        text = f"{owner}.{name} is no hook, and would never be called; {guess} begin the name of a helper with _"
        raise InvalidOptionError(f"{owner}.{name}", name, message=text)


class HookAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the hooks at one place said together, as it is recorded: a value in place of the given one, or why it is
    refused, or the advice to do it differently, or what a person is asked first. `code` is the kind of a refusal."""

    value: Any = msgspec.UNSET
    refusal: str = ""
    advice: str = ""
    confirm: str = ""
    code: str = ""


class Confirmation(msgspec.Struct, frozen=True):
    """A call that a person is asked about because a hook wants it."""

    call: CallTool
    question: str
