"""Make a tool of a typed Python function: `@tool`, or `register_function` straight into a catalog.

An async function runs on the loop; any other runs in a worker thread with the caller's context variables, so that it
never holds up the loop. A tool that hangs in such a thread does not keep the process from ending, as it would in the
event loop's own pool, which is joined at exit. This file does not retry, time or report; that is `invoke`.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, overload

from msgspec.structs import asdict, replace

from harborage import codec
from harborage.errors import HarborageError, InvalidOptionError, known_options
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

if TYPE_CHECKING:
    from harborage.tools.catalog import ToolCatalog

T = TypeVar("T")

MOST_THREADS = 64
"""Calls of synchronous tools that run at the same time in one process."""
IDLE_S = 10.0
"""Seconds after which a thread without work ends."""

_log = logging.getLogger(__name__)


class ThreadsExhaustedError(HarborageError):
    """Every thread for synchronous tools runs a call whose caller has given up. `names` are the tools."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names
        super().__init__(
            f"all {len(names)} threads for synchronous tools run calls whose callers have given up: "
            f"{', '.join(sorted(set(names)))}; give these tools timeouts of their own or make them async, and restart "
            "the process"
        )


class _Job:
    """One call: the work, its name, its start, and whether its caller has given up."""

    __slots__ = ("future", "is_abandoned", "name", "since", "work")

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.work = work
        self.future: Future[Any] = Future()
        self.since = 0.0
        self.is_abandoned = False

    def __call__(self) -> Any:
        return self.work()

    def run(self, on_end: Callable[[_Job], None]) -> None:
        """Make the call, unless it was cancelled; `on_end` is called before the caller sees the result."""
        if not self.future.set_running_or_notify_cancel():
            on_end(self)
            return
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - it is the outcome of the call
            on_end(self)
            self.future.set_exception(error)
        else:
            on_end(self)
            self.future.set_result(result)


class ToolThreads(Executor):
    """At most `most` daemon threads. Further calls wait for one, which is logged with the names of the running calls.

    The process does not wait for these threads at exit.
    """

    def __init__(self, most: int = MOST_THREADS, *, idle_s: float = IDLE_S) -> None:
        self._most = most
        self._idle_s = idle_s
        self._reset()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the calls that run, longest first."""
        with self._changed:
            return tuple(job.name for job in sorted(self._running, key=lambda job: job.since))

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in a thread.

        Raises:
            ThreadsExhaustedError: every thread runs a call whose caller has given up.
        """
        job = fn if isinstance(fn, _Job) else _Job(getattr(fn, "__name__", "call"), partial(fn, *args, **kwargs))
        if os.getpid() != self._pid:
            self._reset()  # a forked process has none of the threads of its parent
        with self._changed:
            is_full = self._count >= self._most and self._idle <= len(self._queue)
            if is_full and len(self._running) >= self._most and all(one.is_abandoned for one in self._running):
                raise ThreadsExhaustedError(tuple(one.name for one in self._running))
            self._queue.append(job)
            if is_full:
                self._warn(job)
            elif self._idle >= len(self._queue):
                self._changed.notify()
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"tool-{self._count}", daemon=True).start()
            self._is_warned = is_full
        return job.future

    def _warn(self, job: _Job) -> None:
        """Log once that calls wait, and again after a time in which none did."""
        if not self._is_warned:
            names = ", ".join(sorted({one.name for one in self._running}))
            text = "the call of %r waits: all %d threads for synchronous tools run others (%s); make these tools async"
            _log.warning(text, job.name, self._most, names)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._count = 0
        self._idle = 0
        self._is_warned = False

    def _serve(self) -> None:
        while (job := self._take_job()) is not None:
            job.run(self._discard)

    def _take_job(self) -> _Job | None:
        """Return the next call; None when there was none for a while and this thread ends."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: bool(self._queue), self._idle_s)
            self._idle -= 1
            if not self._queue:
                self._count -= 1
                return None
            job = self._queue.popleft()
            job.since = time.monotonic()
            self._running.add(job)
        return job

    def _discard(self, job: _Job) -> None:
        with self._changed:
            self._running.discard(job)


_THREADS = ToolThreads()


async def run_in_thread(name: str, work: Callable[[], T], threads: ToolThreads = _THREADS) -> T:
    """Run `work` in a thread with the caller's context variables, and return its result.

    Python cannot stop a thread: after a cancellation the work runs on, and its result is dropped.

    Raises:
        ThreadsExhaustedError: every thread runs a call whose caller has given up.
        Exception: what the work raised.
    """
    job = _Job(name, partial(contextvars.copy_context().run, work))
    try:
        result: T = await asyncio.get_running_loop().run_in_executor(threads, job)
    except asyncio.CancelledError:
        job.is_abandoned = True
        raise
    return result


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
    if getattr(fn, "__name__", "") == "<lambda>" and not (name and options.get("description")):
        raise UnsupportedTypeError("tool", "a lambda needs name= and description=")
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
