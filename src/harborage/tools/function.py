"""Make a tool of a typed Python function: `@tool`, or `register_function` straight into a catalog.

An async function runs on the loop; any other runs in a worker thread with the caller's context variables, so that it
never holds up the loop. This file does not retry, time or report; that is `invoke`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, Protocol, TypeAlias, TypedDict, Unpack, overload

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace
from typing_extensions import ParamSpec, TypeVar

from harborage import codec
from harborage.artifacts import ArtifactScope
from harborage.artifacts.media import MediaError, media_in
from harborage.errors import InvalidOptionError, at_least, known_options, one_of
from harborage.tools.arguments import make_argument_decoder, make_result_checker
from harborage.tools.enums import Loading, OnUnknown, SideEffect
from harborage.tools.errors import ToolCrashedError, ToolDuplicateNameError, ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.model import CallContext, Probed, Tool, ToolBody, ToolExample, ToolProbe, ToolResult
from harborage.tools.policy import ToolPolicy, is_guarded, resolve_policy
from harborage.tools.signature import Signature, read_signature
from harborage.tools.threads import run_in_thread
from harborage.tools.typed import AsyncTool, SyncTool
from harborage.tools.values import MEDIA_FORMAT, make_reader

if TYPE_CHECKING:
    from harborage.tools.catalog import ToolCatalog

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
SelfT = TypeVar("SelfT")
DepsT = TypeVar("DepsT", default=object)

_NOT_FIELDS: Final = frozenset({"effects", "approval", "retries", "timeout", "when"})
_MEANT: Final = {
    "side_effects": "effects",
    "max_retries": "retries",
    "timeout_ms": "timeout, in seconds",
    "requires_approval": 'approval="always"',
    "needs_approval": 'approval="always"',
    "enabled": "when",
    "is_enabled": "when",
    "prepare": "when",
}
"""What names mean that other libraries use for such options."""

Effects: TypeAlias = Literal["pure", "read", "write", "external", "stateful"] | SideEffect
When: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
Approval: TypeAlias = Literal["always", "never"] | Callable[[Any], Any]


class ToolOptions(TypedDict, total=False):
    """The options of a tool besides its function and its name.

    `effects` is what a call does to the world: "pure", "read", "write", "external" or "stateful" (the default). A tool
    that only reads, or that is `idempotent`, acts once per `CallContext.idempotency_key` and may be tried again:
    `retries` is how often, `timeout` the seconds of one attempt; `policy` has the rest and takes the place of both.
    `approval` says which calls a person must approve: "always", "never", or a function, sync or async, that gets the
    `ApprovalRequest` of a call and answers True or False, or with a reason: `(True, "a large sum")`. `when` says
    whether a run is offered the tool: a function, sync or async, that gets the `AgentContext` when the run begins; its
    answer is recorded. The others are the fields of `Tool` of that name.
    """

    description: str
    effects: Effects
    approval: Approval
    retries: int
    timeout: float
    when: When
    idempotent: bool
    tags: tuple[str, ...]
    auth_scopes: tuple[str, ...]
    cost_hint: str
    latency_hint: str
    safety_notes: str
    loading: Loading
    examples: tuple[ToolExample, ...]
    source: str
    policy: ToolPolicy
    handles_mime: tuple[str, ...]


class _ToolOf(Protocol):
    """Makes a tool of a function: what `tool` returns when it is given options alone."""

    @overload
    def __call__(  # type: ignore[overload-overlap] # a coroutine function is never taken for one that returns a value
        self, fn: Callable[Concatenate[CallContext[DepsT], P], Coroutine[Any, Any, T]], /
    ) -> AsyncTool[P, T, DepsT]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[SelfT, CallContext[DepsT], P], Coroutine[Any, Any, T]], /
    ) -> AsyncTool[Concatenate[SelfT, P], T, DepsT]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, T]], /
    ) -> AsyncTool[P, T, object]: ...

    @overload
    def __call__(self, fn: Callable[Concatenate[CallContext[DepsT], P], T], /) -> SyncTool[P, T, DepsT]: ...

    @overload
    def __call__(
        self, fn: Callable[Concatenate[SelfT, CallContext[DepsT], P], T], /
    ) -> SyncTool[Concatenate[SelfT, P], T, DepsT]: ...

    @overload
    def __call__(self, fn: Callable[P, T], /) -> SyncTool[P, T, object]: ...


@overload
def tool(  # type: ignore[overload-overlap] # a coroutine function is never taken for one that returns a value
    fn: Callable[Concatenate[CallContext[DepsT], P], Coroutine[Any, Any, T]],
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> AsyncTool[P, T, DepsT]: ...


@overload
def tool(  # type: ignore[overload-overlap]
    fn: Callable[Concatenate[SelfT, CallContext[DepsT], P], Coroutine[Any, Any, T]],
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> AsyncTool[Concatenate[SelfT, P], T, DepsT]: ...


@overload
def tool(  # type: ignore[overload-overlap]
    fn: Callable[P, Coroutine[Any, Any, T]],
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> AsyncTool[P, T, object]: ...


@overload
def tool(
    fn: Callable[Concatenate[CallContext[DepsT], P], T],
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> SyncTool[P, T, DepsT]: ...


@overload
def tool(
    fn: Callable[Concatenate[SelfT, CallContext[DepsT], P], T],
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> SyncTool[Concatenate[SelfT, P], T, DepsT]: ...


@overload
def tool(
    fn: Callable[P, T],
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> SyncTool[P, T, object]: ...


@overload
def tool(*, name: str = "", probe: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]) -> _ToolOf: ...


def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> Any:
    """Make a tool of a typed function, with or without options: `@tool` and `@tool(effects="read")`.

    Name, description, schemas and parameter descriptions come from the function. A first parameter annotated
    `CallContext` gets the call's context and is no argument of the model. The tool stays a function: calling it calls
    the function, outside every run. On a method it is bound as methods are: `tools=[desk.open]`.

    A function that is not async runs in a thread. Python cannot stop a thread: after a timeout or a cancellation it
    runs on and its result is dropped, so slow work that must not overlap with its own retry needs `retries=0`.

    `probe` is a function that finds the outcome of an interrupted call, whose worker died in it: it takes some of the
    tool's parameters, and the call's context with the same key, changes nothing and returns a `Probed`. It makes
    `on_unknown` probe, unless the policy says otherwise.

    Raises:
        UnsupportedTypeError: the signature has no JSON Schema, or the probe takes an argument that the tool lacks.
        InvalidOptionError: an option has a value that it cannot have, or retries are asked for where a second attempt
            might act a second time.
        UnknownOptionError: there is no such option.
    """
    if fn is None:
        return partial(_make_tool, name=name, options=options, probe=probe)
    return _make_tool(fn, name, options, probe)


def register_function(catalog: ToolCatalog, name: str, fn: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
    """Register `fn` as a tool in `catalog` under `name`, and return the tool.

    Raises:
        UnsupportedTypeError: the signature has no JSON Schema; nothing is registered.
        ToolDuplicateNameError, ToolExampleInvalidError, ToolInvalidError: as for `ToolCatalog.register`.
    """
    if not name:
        raise ToolDuplicateNameError(name)
    made = _make_tool(fn, name, options)
    catalog.register(made)
    return made.tool


def _make_tool(
    fn: Callable[..., Any], name: str, options: ToolOptions, probe: Callable[..., Any] | None = None
) -> AsyncTool[..., Any, Any] | SyncTool[..., Any, Any]:
    _check_options(fn, name, options, probe)
    signature = read_signature(fn, name)
    if not (options.get("description") or signature.description):
        _log.warning("%s has no description: models choose tools by it", signature.name)
    described = _describe_tool(signature, options)  # refuses options that do not fit, before they are used
    if probe is not None:
        described = replace(described, policy=_set_probe(described.policy))
    decode = make_argument_decoder(
        signature.name,
        signature.arguments,
        find_unknown=signature.find_unknown,
        accepts_null=not resolve_policy(described.policy).validates_in,
    )
    returns, result = signature.returns, f"{signature.name} -> result"
    kind: type[AsyncTool[..., Any, Any] | SyncTool[..., Any, Any]] = AsyncTool if _is_async(fn) else SyncTool
    return kind(
        tool=described,
        body=_make_body(fn, signature, decode),
        validate_args=lambda args: _discard(decode(args)),
        validate_result=None if returns is Any else make_result_checker(returns),
        body_validates=True,
        decode_result=None if returns is Any else make_reader(returns, result),
        function=fn,
        probe=None if probe is None else _make_probe(probe, signature),
        approval=options.get("approval"),
        when=options.get("when"),
        bind=partial(_make_body, signature=signature, decode=decode) if signature.is_method else None,
        takes_context=bool(signature.context_name),
    )


def _check_options(fn: object, name: object, options: ToolOptions, probe: object) -> None:
    """Refuse options that are none, or of another kind.

    Raises:
        InvalidOptionError, UnsupportedTypeError: with the fix.
    """
    if not callable(fn):
        raise InvalidOptionError("tool", fn, "a function; options have names, such as @tool(effects='read')")
    if not isinstance(name, str):
        raise InvalidOptionError("name", name, "a text")
    if probe is not None and not callable(probe):
        raise InvalidOptionError("probe", probe, "a function")
    approval = options.get("approval", "never")
    if approval not in ("always", "never") and not callable(approval):
        raise InvalidOptionError("approval", approval, "'always', 'never', or a function of the call")
    if "when" in options and not callable(options["when"]):
        raise InvalidOptionError("when", options["when"], "a function of the AgentContext that answers True or False")
    if getattr(fn, "__name__", "") == "<lambda>" and not (name and options.get("description")):
        raise UnsupportedTypeError("tool", "a lambda needs name= and description=")


def _set_probe(policy: ToolPolicy) -> ToolPolicy:
    """Return the policy of a tool that has a probe."""
    return policy if policy.on_unknown is not None else replace(policy, on_unknown=OnUnknown.PROBE)


def _make_probe(fn: Callable[..., Any], of: Signature) -> ToolProbe:
    """Make a probe of a function that takes some of the arguments of the tool."""
    signature = read_signature(fn, f"{of.name}.probe")
    wanted = {each.name for each in signature.arguments}
    foreign = sorted(wanted - {each.name for each in of.arguments})
    if foreign:
        raise UnsupportedTypeError(signature.name, f"the tool has no argument {', '.join(foreign)}; a probe takes its")
    ask = _make_body(
        fn, signature, make_argument_decoder("probe", signature.arguments, find_unknown=signature.find_unknown)
    )

    async def probe(args: bytes, call: CallContext) -> Probed:
        given = codec.decode(args.strip() or b"{}")
        passed = {name: value for name, value in given.items() if name in wanted}
        answer = (await ask(codec.encode(passed), call)).value
        if not isinstance(answer, Probed):
            raise ToolInvalidArgsError(
                f"output: the probe of {of.name!r} returned {type(answer).__name__}, expected Probed"
            )
        return answer

    return probe


def _describe_tool(signature: Signature, options: ToolOptions) -> Tool:
    given = tool_fields(signature.name, options)
    given["description"] = options.get("description") or signature.description
    if not isinstance(given.get("examples", ""), str):
        given["examples"] = tuple(given.get("examples", ()))
    return Tool(signature.name, args_schema=signature.args_schema, out_schema=signature.out_schema, **given)


def tool_fields(name: str, options: ToolOptions) -> dict[str, Any]:
    """The fields of `Tool` that the options of a tool set; `approval` is none of them.

    Raises:
        InvalidOptionError: an option has a value that it cannot have, or two say the same.
        UnknownOptionError: there is no such option.
    """
    known_options(options, (*ToolOptions.__annotations__, "transport"), _MEANT)
    fields: dict[str, Any] = {key: value for key, value in options.items() if key not in _NOT_FIELDS}
    if "effects" in options:
        fields["side_effects"] = one_of(SideEffect, options["effects"], "effects")
    retries, timeout = options.get("retries"), options.get("timeout")
    if retries is None and timeout is None:
        return fields
    if "policy" in options:
        raise InvalidOptionError("policy", options["policy"], "not beside retries or timeout, which it has as well")
    if retries is not None:
        at_least(0, retries, "retries", is_whole=True)
        if retries and is_guarded(fields.get("side_effects", SideEffect.STATEFUL), fields.get("idempotent", False)):
            text = f'{name}: retries= needs effects="read" or idempotent=True: a second attempt might act a second time'
            raise InvalidOptionError("retries", retries, message=text)
    if timeout is not None:
        at_least(0, timeout, "timeout")
    fields["policy"] = ToolPolicy(max_retries=retries, timeout_ms=None if timeout is None else timeout * 1000)
    return fields


def _discard(_value: object) -> None:
    """Drop the result of a decoder, to use it as a check."""


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def _make_body(fn: Callable[..., Any], signature: Signature, decode: Callable[[bytes], Any]) -> ToolBody:
    context_name = signature.context_name
    takes_media = MEDIA_FORMAT in str(signature.args_schema)

    async def call_async(args: bytes, call: CallContext) -> ToolResult:
        given = _passed(decode(args))
        if takes_media:
            await _load_media(given, call)
        if context_name:
            given[context_name] = call
        value = await fn(**given)
        return value if type(value) is ToolResult else ToolResult(value)

    async def call_in_thread(args: bytes, call: CallContext) -> ToolResult:
        given = _passed(decode(args))
        if takes_media:
            await _load_media(given, call)
        if context_name:
            given[context_name] = call
        value = await run_in_thread(signature.name, partial(_call_contained, fn, given))
        if inspect.isawaitable(value):
            value = await value
        return value if type(value) is ToolResult else ToolResult(value)

    return call_async if _is_async(fn) else call_in_thread


def _passed(decoded: Struct) -> dict[str, Any]:
    """The arguments by name, without those of an unpacked TypedDict that were left out."""
    return {name: value for name, value in asdict(decoded).items() if value is not UNSET}


async def _load_media(given: dict[str, Any], call: CallContext) -> None:
    """Read the bytes of the artifacts that a model named.

    Raises:
        ToolInvalidArgsError: one is not there, or is of another kind.
    """
    for one in media_in(given):
        if one.is_loaded:
            continue
        if call.artifacts is None:
            raise ToolInvalidArgsError("there is no artifact store to read it from")
        try:
            await one.load(call.artifacts, ArtifactScope.of(call.who))
        except MediaError as error:
            raise ToolInvalidArgsError(str(error)) from error


def _call_contained(fn: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call `fn` in a thread; an exception that would end the process or break a future becomes an error."""
    try:
        return fn(**given)
    except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise ToolCrashedError(f"the tool raised {type(error).__name__} in its thread") from error
