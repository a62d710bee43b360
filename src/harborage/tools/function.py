"""Make a tool of a typed Python function: `@tool`, or `register_function` straight into a catalog.

An async function runs on the loop; any other runs in a worker thread with the caller's context variables, so that it
never holds up the loop. This file does not retry, time or report; that is `invoke`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, overload

from msgspec.structs import asdict, replace

from harborage import codec
from harborage.errors import InvalidOptionError, known_options
from harborage.tools.arguments import make_argument_decoder, make_result_checker
from harborage.tools.enums import Loading, OnUnknown, SideEffect
from harborage.tools.errors import ToolCrashedError, ToolDuplicateNameError, ToolInvalidArgsError, UnsupportedTypeError
from harborage.tools.model import (
    CallContext,
    Probed,
    Tool,
    ToolBody,
    ToolDescriptor,
    ToolExample,
    ToolProbe,
    ToolResult,
)
from harborage.tools.policy import ToolPolicy, resolve_policy
from harborage.tools.signature import Signature, read_signature
from harborage.tools.threads import run_in_thread

if TYPE_CHECKING:
    from harborage.tools.catalog import ToolCatalog

_MEANT: Final = {
    "effects": f"side_effects, one of {', '.join(repr(str(one)) for one in SideEffect)}",
    "retries": "policy=ToolPolicy(max_retries=…)",
    "timeout": "policy=ToolPolicy(timeout_ms=…)",
    "approval": "Runtime(approvals={name: policy})",
}
"""What names mean that other libraries use for such options."""


class ToolOptions(TypedDict, total=False):
    """The options of a tool besides its function and its name; each is the field of `Tool` of that name."""

    description: str
    side_effects: SideEffect
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


@overload
def tool(
    fn: Callable[..., Any], *, name: str = "", probe: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]
) -> ToolDescriptor: ...


@overload
def tool(
    fn: None = None, *, name: str = "", probe: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[..., Any]], ToolDescriptor]: ...


def tool(
    fn: Callable[..., Any] | None = None,
    *,
    name: str = "",
    probe: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> ToolDescriptor | Callable[[Callable[..., Any]], ToolDescriptor]:
    """Make a tool of a typed function, with or without options: `@tool` and `@tool(side_effects=SideEffect.READ)`.

    Name, description, schemas and parameter descriptions come from the function. A parameter annotated `CallContext`
    gets the call's context and is no argument of the tool. The function itself stays at `.function`.

    A function that is not async runs in a thread. Python cannot stop a thread: after a timeout or a cancellation it
    runs on and its result is dropped, so give slow work that must not overlap with its own retry
    `ToolPolicy(max_retries=0)`.

    `probe` is a function that finds the outcome of an interrupted call, whose worker died in it: it takes some of the
    tool's parameters, and the call's context with the same key, changes nothing and returns a `Probed`. It makes
    `on_unknown` probe, unless the policy says otherwise.

    Raises:
        UnsupportedTypeError: the signature has no JSON Schema, or the probe takes an argument that the tool lacks.
        InvalidOptionError: an option has a value that it cannot have.
        UnknownOptionError: there is no such option.
    """
    if fn is None:
        return partial(_make_descriptor, name=name, options=options, probe=probe)
    return _make_descriptor(fn, name, options, probe)


def register_function(catalog: ToolCatalog, name: str, fn: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
    """Register `fn` as a tool in `catalog` under `name`, and return the tool.

    Raises:
        UnsupportedTypeError: the signature has no JSON Schema; nothing is registered.
        ToolDuplicateNameError, ToolExampleInvalidError, ToolInvalidError: as for `ToolCatalog.register`.
    """
    if not name:
        raise ToolDuplicateNameError(name)
    descriptor = _make_descriptor(fn, name, options)
    catalog.register(descriptor)
    return descriptor.tool


def _make_descriptor(
    fn: Callable[..., Any], name: str, options: ToolOptions, probe: Callable[..., Any] | None = None
) -> ToolDescriptor:
    known_options(options, (*ToolOptions.__annotations__, "transport"), _MEANT)
    if not callable(fn):
        raise InvalidOptionError("tool", fn, "a function; options have names, such as @tool(side_effects='read')")
    if not isinstance(name, str):
        raise InvalidOptionError("name", name, "a text")
    if probe is not None and not callable(probe):
        raise InvalidOptionError("probe", probe, "a function")
    signature = read_signature(fn, name)
    described = _describe_tool(signature, options)  # refuses options that do not fit, before they are used
    if probe is not None:
        described = replace(described, policy=_set_probe(described.policy))
    decode = make_argument_decoder(
        signature.name,
        signature.arguments,
        find_unknown=signature.find_unknown,
        accepts_null=not resolve_policy(described.policy).validates_in,
    )
    return ToolDescriptor(
        tool=described,
        body=_make_body(fn, signature, decode),
        validate_args=lambda args: _discard(decode(args)),
        validate_result=None if signature.returns is Any else make_result_checker(signature.returns),
        body_validates=True,
        function=fn,
        probe=None if probe is None else _make_probe(probe, signature),
    )


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
    given: dict[str, Any] = {**options, "description": options.get("description") or signature.description}
    if not isinstance(given.get("examples", ""), str):
        given["examples"] = tuple(given["examples"])
    return Tool(signature.name, args_schema=signature.args_schema, out_schema=signature.out_schema, **given)


def _discard(_value: object) -> None:
    """Drop the result of a decoder, to use it as a check."""


def _make_body(fn: Callable[..., Any], signature: Signature, decode: Callable[[bytes], Any]) -> ToolBody:
    context_name = signature.context_name
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004

    async def call_async(args: bytes, call: CallContext) -> ToolResult:
        given = asdict(decode(args))
        if context_name:
            given[context_name] = call
        value = await fn(**given)
        return value if type(value) is ToolResult else ToolResult(value)

    async def call_in_thread(args: bytes, call: CallContext) -> ToolResult:
        given = asdict(decode(args))
        if context_name:
            given[context_name] = call
        value = await run_in_thread(signature.name, partial(_call_contained, fn, given))
        if inspect.isawaitable(value):
            value = await value
        return value if type(value) is ToolResult else ToolResult(value)

    return call_async if is_async else call_in_thread


def _call_contained(fn: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call `fn` in a thread; an exception that would end the process or break a future becomes an error."""
    try:
        return fn(**given)
    except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise ToolCrashedError(f"the tool raised {type(error).__name__} in its thread") from error
