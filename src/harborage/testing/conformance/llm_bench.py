"""What the suite of model providers works on: a driver, a scripted model server beside it, and a fake clock.

Part of the suite in `llm`; a provider's author needs `ProviderBench.open`, and a `ModelServer` that speaks the
provider's protocol. A line of the server's script says what the next call gets: an answer, whole or broken off in some
way, or a refusal.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, Self, TypeAlias

import msgspec

from harborage.concurrency import Crew
from harborage.identity import Identity, bound
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    DriverFactory,
    LLMClient,
    Role,
    ToolCallStructured,
    ToolDeclaration,
)
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.checks import ConformanceError

SESSION = Identity("tenant", "user", "session")
KEY = "sk-conformance-0123456789abcdef"
"""The key of every driver on a bench. No output may show it."""

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(32))).decode()
ADD = ToolDeclaration(
    name="add",
    description="Add two numbers.",
    schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
_PATIENCE_S = 60.0


class Failure(StrEnum):
    """Why a provider refuses a call, or breaks it off."""

    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    BAD_KEY = "bad_key"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_OVERFLOW = "context_overflow"
    NO_CREDIT = "no_credit"
    BAD_SCHEMA = "bad_schema"
    BAD_REQUEST = "bad_request"


class Break(StrEnum):
    """How an answer goes wrong in the middle."""

    TRUNCATED = "truncated"  # the body ends properly, and the answer is not finished
    DROPPED = "dropped"  # the connection is reset
    STALLED = "stalled"  # nothing more comes, and the connection stays
    MALFORMED = "malformed"  # a piece comes that is no JSON
    FAILED = "failed"  # the server says, in its protocol, that it failed


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the model. Streamed, its texts come in pieces of `piece` characters.

    With `broken` it fails after the first `after` pieces of text or arguments. `cost` is the cost that the provider
    reports, in US dollars.
    """

    content: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCallStructured] = ()
    prompt_tokens: int = 11
    completion_tokens: int = 7
    reasoning_tokens: int = 0
    cost: float = 0.0
    is_cut_short: bool = False
    piece: int = 5
    broken: Break | None = None
    after: int = 2

    def pieces(self, text: str) -> list[str]:
        """Return `text` in the pieces in which it is streamed."""
        return [text[at : at + self.piece] for at in range(0, len(text), self.piece)]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The call fails with a status; `says` is put into the message, `retry_after` into the headers."""

    failure: Failure
    retry_after: str = ""
    says: str = ""


class Silence(msgspec.Struct, frozen=True):
    """The call is accepted, and no byte of an answer comes until the caller gives up."""


class ReceivedRequest(msgspec.Struct, frozen=True):
    """A request as it reached the server."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        """The decoded body as compact JSON, for looking things up in."""
        return msgspec.json.encode(self.body).decode()


Line: TypeAlias = Answer | Refusal | Silence | str | Callable[[ReceivedRequest], "Answer | Refusal | Silence | str"]
"""One line of a script: what happens, the text of an answer, or a function of the request that gives either."""


class ModelServer(Protocol):
    """A model server on loopback that a bench starts and closes. It answers each call with the next line of its script.

    `requests` are the calls so far, `otherwise` the line for calls that come when the script is at its end, `given_up`
    counts the calls whose caller hung up before their answer was whole.
    """

    requests: list[ReceivedRequest]
    otherwise: Line | None
    given_up: int

    async def start(self) -> None:
        """Listen on a free port."""
        ...

    async def aclose(self) -> None:
        """Stop listening and close every connection. Closing twice does nothing."""
        ...

    def base_url(self) -> str:
        """The address that the driver is configured with."""
        ...

    def script(self, *lines: Line) -> None:
        """Add lines for the calls to come."""
        ...

    @property
    def busy(self) -> int:
        """How many calls are being answered."""
        ...

    @property
    def connections(self) -> int:
        """How many connections are open, busy or not."""
        ...

    async def until(self, holds: Callable[[Self], bool], what: str = ...) -> None:
        """Return when `holds(server)` does; look whenever a call begins or ends, or a caller hangs up.

        Raises:
            TimeoutError: it did not come true within seconds.
        """
        ...


class Ability(StrEnum):
    """What some providers lack; the suite leaves out what a bench is opened `without`."""

    REASONING = "reasoning"
    IMAGES = "images"
    STRUCTURED = "structured"
    PROVIDER_COST = "provider_cost"
    ERROR_IN_STREAM = "error_in_stream"
    STOPS = "stops"


class DeltaRecorder:
    """A callback for deltas: it keeps the pieces, and counts the calls with `done` and those after it."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.done = 0
        self.late = 0
        self.first = asyncio.Event()

    def __call__(self, delta: str, done: bool) -> None:
        self.late += self.done > 0
        if delta:
            self.pieces.append(delta)
            self.first.set()
        self.done += done

    @property
    def text(self) -> str:
        """All pieces as one text."""
        return "".join(self.pieces)


class ProviderBench:
    """A driver and its server. `clock` is the driver's: time passes by `pass_time` alone.

    Closing it closes the driver, and checks that no connection is left.
    """

    def __init__(
        self,
        driver: LLMClient,
        server: ModelServer,
        clock: FakeClock,
        *,
        config: ConfigSnapshot,
        make: DriverFactory,
        without: Collection[Ability] = (),
    ) -> None:
        self.driver = driver
        self.server = server
        self.clock = clock
        self.config = config
        self.without = frozenset(without)
        self._make = make
        self._crew = Crew(lambda name, error: None)

    @classmethod
    async def open(
        cls,
        make: DriverFactory,
        server: ModelServer,
        config_for: Callable[[str], ConfigSnapshot],
        *,
        without: Collection[Ability] = (),
    ) -> Self:
        """Start the server and open the driver that `make` makes of `config_for(base_url)`; its key must be `KEY`."""
        await server.start()
        clock = FakeClock()
        config = config_for(server.base_url())
        driver = make(config, Deps(artifacts=None, bus=None, clock=clock))
        return cls(driver, server, clock, config=config, make=make, without=without)

    def can(self, ability: Ability) -> bool:
        """Return whether the provider has this ability."""
        return ability not in self.without

    def elsewhere(self, base_url: str) -> LLMClient:
        """Return another driver of the same kind, for a server at `base_url`."""
        config = msgspec.structs.replace(self.config, base_url=base_url)
        return self._make(config, Deps(artifacts=None, bus=None, clock=self.clock))

    async def complete(self, request: CompleteRequest, *, driver: LLMClient | None = None) -> CompleteResponse:
        """Make a call with an identity and return its answer, within a bound for drivers that hang.

        Raises:
            ConformanceError: the driver hangs.
        """
        try:
            with bound(SESSION):
                async with asyncio.timeout(_PATIENCE_S):
                    return await (self.driver if driver is None else driver).complete(request)
        except TimeoutError as error:
            raise ConformanceError(f"a call did not end within {_PATIENCE_S:g} s") from error

    def begin(self, request: CompleteRequest) -> asyncio.Task[CompleteResponse]:
        """Start a call in the background; the bench ends it when it is closed."""
        return self._crew.start(self.complete(request), "call of a model")

    async def pass_time(self, seconds: float, call: asyncio.Task[Any]) -> None:
        """Move the clock until `call` ends, at most a few times `seconds`."""
        for _ in range(5):
            await self.clock.run_for(seconds)
            if call.done():
                return
            await asyncio.wait([call], timeout=0.05)

    async def wait_until_idle(self) -> None:
        """Return when the server answers no call any more.

        Raises:
            ConformanceError: a call that has ended still keeps its connection busy.
        """
        await self._until(lambda server: not server.busy, "a call that has ended keeps its connection busy")

    async def aclose(self) -> None:
        """Close the driver and the server.

        Raises:
            ConformanceError: the closed driver leaves connections open.
        """
        try:
            await self._crew.aclose()
            await self.driver.close()
            await self._until(lambda server: not server.connections, "a closed driver leaves connections open")
        finally:
            await self.server.aclose()

    async def _until(self, holds: Callable[[ModelServer], bool], what: str) -> None:
        try:
            await self.server.until(holds, what)
        except TimeoutError as error:
            raise ConformanceError(str(error)) from error


def make_request(text: str = "What is 2 + 3?", **fields: Any) -> CompleteRequest:
    """Return a request with one user message and these further fields."""
    fields.setdefault("messages", [ChatMessage(Role.USER, Content(text))])
    fields.setdefault("max_tokens", 1000)
    return CompleteRequest(**fields)
