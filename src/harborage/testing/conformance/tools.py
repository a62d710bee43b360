"""What every tool transport must do: remote tools are listed and called like those of this process.

Pass a function that opens a bench:

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`.

A bench is your transport, connected to a server of your protocol on this machine. That server offers `PEER_TOOLS` and
passes each call to `Peer.call`; a `PeerError` becomes a failure in the form of your protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.concurrency import Crew
from harborage.errors import HarborageError, error_reason
from harborage.identity import Identity, Quadruple
from harborage.testing.conformance.checks import (
    ConformanceError,
    check_scenario,
    expect,
    expect_equal,
    expect_raises,
    run_scenarios,
)
from harborage.tools import (
    CallContext,
    ErrorClass,
    Invoker,
    SideEffect,
    Tool,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolPolicy,
    ToolPolicyExhaustedError,
    Transport,
    classify,
)
from harborage.tools.errors import is_unanswered

WHO: Final = Identity("tenant", "user", "session").with_run("run")
TEXT: Final = 'naïve – "quoted"\n\t🙂'
CALLERS: Final = 64
_PATIENCE_S: Final = 20.0
_SHORT_S: Final = 0.3
_LONG_BYTES: Final = 48 * 1024
_REFUSAL: Final = "there is no account 7"
_MAY_PASS: Final = (ErrorClass.TRANSIENT, ErrorClass.SERVER, ErrorClass.TIMEOUT)

PEER_TOOLS: Final = (
    Tool(
        "echo",
        "Return the text.",
        {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        side_effects=SideEffect.READ,
    ),
    Tool("note", "Note something down.", {"type": "object"}, side_effects=SideEffect.EXTERNAL),
    Tool("refuse", "Refuse the call.", {"type": "object"}, side_effects=SideEffect.READ),
    Tool("overload", "Fail, since there is too much to do.", {"type": "object"}, side_effects=SideEffect.READ),
    Tool("wait", "Answer nothing until the caller gives up.", {"type": "object"}, side_effects=SideEffect.READ),
)
"""The tools that the server of a bench offers."""


class Ability(StrEnum):
    """What some protocols lack; the suite leaves out what a bench is `without`."""

    KEY = "key"  # calls have an idempotency key
    CANCEL = "cancel"  # the server learns that a caller has given up


class PeerError(HarborageError):
    """The peer fails a call. `error_class` says whether another attempt may help."""

    def __init__(self, text: str = "", error_class: ErrorClass = ErrorClass.PERMANENT) -> None:
        self.error_class = error_class
        super().__init__(text)


class PeerCall(NamedTuple):
    """A call as it reached the peer."""

    tool: str
    args: Mapping[str, Any]
    key: str


class Peer:
    """The tools behind the server of a bench. `calls` are those that reached it, `given_up` counts cancelled ones."""

    def __init__(self) -> None:
        self.calls: list[PeerCall] = []
        self.given_up = 0
        self._changed = asyncio.Event()

    async def call(self, tool: str, args: Mapping[str, Any], key: str = "") -> Any:
        """Return the value of a call; cancel it when its caller has given up.

        Raises:
            PeerError: the call fails.
        """
        self.calls.append(PeerCall(tool, args, key))
        self._changed.set()
        match tool:
            case "echo" if "text" in args:
                return args["text"]
            case "note":
                return "noted"
            case "refuse":
                raise PeerError(_REFUSAL)
            case "overload":
                raise PeerError("too many calls", ErrorClass.TRANSIENT)
            case "wait":
                return await self._wait()
            case _:
                raise PeerError(f"there is no tool {tool} that takes {args}")

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Return when `holds()` does.

        Raises:
            ConformanceError: it does not come true; `what` says what should have.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise ConformanceError(f"{what}: not within {_PATIENCE_S:g} s") from error

    async def _wait(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up += 1
            self._changed.set()


class TransportBench(Protocol):
    """A transport that is connected to a peer. Closing it closes the transport and the peer's server."""

    peer: Peer
    tools: Sequence[ToolDescriptor]
    without: Collection[Ability]

    async def disconnect(self) -> None:
        """End the peer's server and its connections, as a crash of its process would."""
        ...

    async def aclose(self) -> None:
        """Close everything that was opened."""
        ...


OpenBench: TypeAlias = Callable[[], Awaitable[TransportBench]]
Scenario: TypeAlias = Callable[[TransportBench], Awaitable[None]]


def named(bench: TransportBench, name: str) -> ToolDescriptor:
    """Return the descriptor of this name.

    Raises:
        ConformanceError: the transport lists no such tool.
    """
    for one in bench.tools:
        if one.tool.name == name:
            return one
    raise ConformanceError(f"the transport does not list the peer's tool {name}")


async def call(
    bench: TransportBench,
    name: str,
    args: bytes = b"{}",
    *,
    key: str = "",
    who: Quadruple = WHO,
    timeout_s: float = 30.0,
) -> Any:
    """Make one attempt as the runtime does and return its value, within a bound for transports that hang.

    Raises:
        ConformanceError: it hangs.
        Exception: the call fails.
    """
    descriptor = named(bench, name)
    policy = ToolPolicy(max_retries=0, timeout_ms=timeout_s * 1000)
    once = replace(descriptor, tool=replace(descriptor.tool, policy=policy))
    context = CallContext(who, call_id="call", idempotency_key=key)
    limit = asyncio.timeout(_PATIENCE_S)
    try:
        async with limit:
            return (await Invoker().invoke(once, args, context)).value
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ConformanceError(f"a call of {name} did not end within {_PATIENCE_S:g} s") from error


@asynccontextmanager
async def callers() -> AsyncIterator[Crew]:
    """Start callers in the background; those that still wait at the end of the block are cancelled."""
    crew = Crew(lambda name, error: None)
    try:
        yield crew
    finally:
        await crew.aclose()


@contextmanager
def fails(what: str, *classes: ErrorClass, text: str = "") -> Iterator[None]:
    """Accept a block that raises an error of one of these classes, with this text in it.

    Raises:
        ConformanceError: it does not.
    """
    try:
        yield
    except ConformanceError:
        raise
    except Exception as error:
        root = error.__cause__ if isinstance(error, ToolPolicyExhaustedError) and error.__cause__ else error
        found = classify(root)
        if found not in classes:
            wanted = " or ".join(classes)
            raise ConformanceError(f"{what}: {error_reason(root)!r} is {found}, expected {wanted}") from error
        expect(text in str(root), f"{what}: the error says what the peer said: got {str(root)!r}")
        return
    raise ConformanceError(f"{what}: the call ended well")


async def tools_are_listed_as_the_peer_describes_them(bench: TransportBench) -> None:
    """Every tool has the peer's name, description and schema, and says that it is not of this process."""
    expect_equal(sorted(one.tool.name for one in bench.tools), sorted(one.name for one in PEER_TOOLS), "the names")
    for wanted in PEER_TOOLS:
        found = named(bench, wanted.name).tool
        expect_equal(found.description, wanted.description, f"the description of {wanted.name}")
        for part, empty in (("properties", {}), ("required", [])):
            said, given = wanted.args_schema.get(part, empty), found.args_schema.get(part, empty)
            expect_equal(given, said, f"the {part} in the schema of {wanted.name}")
        expect(found.transport is not Transport.INPROCESS, f"{wanted.name} says how it is reached")


async def a_tool_that_may_write_is_not_called_twice(bench: TransportBench) -> None:
    """A tool that the peer does not declare harmless counts as having effects."""
    found = named(bench, "note").tool
    expect(found.has_effects and not found.idempotent, "a tool that writes is declared so")


async def a_call_gives_what_the_peer_gives(bench: TransportBench) -> None:
    """Arguments and value are the same on both sides, with any characters."""
    got = await call(bench, "echo", b'{"text": "na\\u00efve \\u2013 \\"quoted\\"\\n\\t\\ud83d\\ude42"}')
    expect_equal(got, TEXT, "the value")
    expect_equal([(one.tool, dict(one.args)) for one in bench.peer.calls], [("echo", {"text": TEXT})], "the call")


async def arguments_that_do_not_fit_never_reach_the_peer(bench: TransportBench) -> None:
    """They are refused here, by the peer's own schema."""
    for args in (b"{}", b'{"text": 7}', b'{"text": "a", "more": 1}', b"[]", b"{"):
        await expect_raises(ToolInvalidArgsError, call(bench, "echo", args), f"arguments {args.decode()}")
    expect_equal(bench.peer.calls, [], "the calls that reached the peer")


async def the_key_of_a_call_reaches_the_peer(bench: TransportBench) -> None:
    """The peer gets the key, which distinguishes a second attempt from a second call; a call without one has none."""
    if Ability.KEY in bench.without:
        return
    for key in ("key-1", "key-1", ""):
        await call(bench, "note", key=key)
    expect_equal([one.key for one in bench.peer.calls], ["key-1", "key-1", ""], "the keys")


async def a_refusal_is_for_good(bench: TransportBench) -> None:
    """A call that the peer refuses is not tried again, and the planner gets the reason."""
    with fails("a refusal", ErrorClass.PERMANENT, text=_REFUSAL):
        await call(bench, "refuse")
    expect_equal(len(bench.peer.calls), 1, "calls that reached the peer")


async def an_overload_may_pass(bench: TransportBench) -> None:
    """A failure that may pass is of a class that is tried again."""
    with fails("an overload", *_MAY_PASS):
        await call(bench, "overload")


async def every_caller_gets_their_own_answer(bench: TransportBench) -> None:
    """Many calls at once do not mix, and one that waits holds up none of them."""
    async with callers() as crew:
        crew.start(call(bench, "wait"), "a caller who waits")
        texts = [f"text {number}" for number in range(CALLERS)]
        calls = [
            crew.start(call(bench, "echo", f'{{"text": "{text}"}}'.encode()), f"caller of {text}") for text in texts
        ]
        await asyncio.wait(calls)
        expect_equal([one.result() for one in calls], texts, "the answers")


async def a_cancelled_call_ends_here_and_there(bench: TransportBench) -> None:
    """The caller is free at once, the peer stops working for it, and the next call is served."""
    async with callers() as crew:
        calling = crew.start(call(bench, "wait"), "a caller who gives up")
        await bench.peer.until(lambda: bool(bench.peer.calls), "the call reaches the peer")
        calling.cancel()
        done, _ = await asyncio.wait([calling], timeout=_PATIENCE_S)
        expect(bool(done) and calling.cancelled(), "a cancelled call is cancelled")
    if Ability.CANCEL not in bench.without:
        await bench.peer.until(lambda: bench.peer.given_up == 1, "the peer learns that the caller has given up")
    expect_equal(await call(bench, "echo", b'{"text": "next"}'), "next", "the next call")


async def a_connection_that_is_lost_fails_the_call(bench: TransportBench) -> None:
    """The call may have had an effect, and another attempt may help; so may one of a call after it."""
    async with callers() as crew:
        calling = crew.start(call(bench, "wait"), "a caller who loses the connection")
        await bench.peer.until(lambda: bool(bench.peer.calls), "the call reaches the peer")
        await bench.disconnect()
        with fails("a lost connection", *_MAY_PASS):
            await calling
    expect(not _claims_no_effect(calling.exception()), "a call whose answer is lost may have had an effect")
    expect(is_unanswered(calling.exception()), "a call whose answer is lost raises ToolUnansweredError")
    with fails("a peer that is gone", *_MAY_PASS):
        await call(bench, "echo", b'{"text": "are you there?"}')


async def a_call_ends_by_its_deadline(bench: TransportBench) -> None:
    """A peer that answers nothing costs as long as the tool's policy says; the next call is served."""
    with fails("a call that takes too long", ErrorClass.TIMEOUT):
        await call(bench, "wait", timeout_s=_SHORT_S)
    expect_equal(await call(bench, "echo", b'{"text": "next"}'), "next", "the next call")


async def a_long_text_comes_whole(bench: TransportBench) -> None:
    """What is too long for a prompt is for the runtime to keep, so nothing of it is lost on the way."""
    text = TEXT * (_LONG_BYTES // len(TEXT.encode()))
    got = await call(bench, "echo", msgspec.json.encode({"text": text}))
    expect(got == text, f"a text of {len(text)} characters comes whole")


async def names_differ_and_can_be_shown(bench: TransportBench) -> None:
    """No two tools share a name, and each name is one of printable characters."""
    names = [one.tool.name for one in bench.tools]
    expect_equal(len(set(names)), len(names), "distinct names")
    expect(all(name.strip() and name.isprintable() for name in names), "every name can be shown")


async def one_identity_does_not_hold_up_another(bench: TransportBench) -> None:
    """A call of another person is served while one of the first waits, and each is asked for by its own key."""
    other = Identity("other", "bob", "session").with_run("run-2")
    async with callers() as crew:
        crew.start(call(bench, "wait", key="mine"), "a caller who waits")
        await bench.peer.until(lambda: bool(bench.peer.calls), "the call reaches the peer")
        got = await call(bench, "echo", b'{"text": "bob"}', key="theirs", who=other)
    expect_equal(got, "bob", "the answer")
    if Ability.KEY not in bench.without:
        expect_equal([one.key for one in bench.peer.calls], ["mine", "theirs"], "the keys")


def _claims_no_effect(error: BaseException | None) -> bool:
    causes = (error, None if error is None else error.__cause__)
    return any(getattr(one, "had_no_effect", False) for one in causes)


SCENARIOS: tuple[Scenario, ...] = (
    tools_are_listed_as_the_peer_describes_them,
    a_tool_that_may_write_is_not_called_twice,
    a_call_gives_what_the_peer_gives,
    arguments_that_do_not_fit_never_reach_the_peer,
    the_key_of_a_call_reaches_the_peer,
    a_refusal_is_for_good,
    an_overload_may_pass,
    every_caller_gets_their_own_answer,
    a_cancelled_call_ends_here_and_there,
    a_connection_that_is_lost_fails_the_call,
    a_call_ends_by_its_deadline,
    a_long_text_comes_whole,
    names_differ_and_can_be_shown,
    one_identity_does_not_hold_up_another,
)


async def check(scenario: Scenario, open_bench: OpenBench) -> None:
    """Run one scenario on a fresh bench, close it, and check that no task is left.

    Raises:
        ConformanceError: the transport breaks a promise.
    """
    await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenBench) -> None:
    """Run every scenario, each on a fresh bench.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_bench)
