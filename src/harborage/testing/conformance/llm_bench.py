"""What the suite of model providers works on: a driver beside a scripted server, and a clock that moves by hand.

Part of the suite in `llm`; a provider's author needs `ProviderBench.open`, and a `ModelServer` that speaks the
provider's protocol.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

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
    ToolDeclaration,
)
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.checks import ConformanceError

if TYPE_CHECKING:
    from harborage.testing.conformance.llm_script import ModelServer

__all__ = ["ADD", "KEY", "PNG", "SESSION", "Ability", "Heard", "ProviderBench", "asking"]

SESSION = Identity("tenant", "user", "session")
KEY = "sk-conformance-0123456789abcdef"
"""The key of every driver on a bench. It must never be seen again."""

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


class Ability(StrEnum):
    """What not every provider does; the suite leaves out what a bench is opened `without`."""

    REASONING = "reasoning"
    IMAGES = "images"
    STRUCTURED = "structured"
    PROVIDER_COST = "provider_cost"
    ERROR_IN_STREAM = "error_in_stream"
    STOPS = "stops"


class Heard:
    """A listener that remembers: the pieces, and how often it was told that nothing more comes."""

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
        """Everything that was heard."""
        return "".join(self.pieces)


class ProviderBench:
    """A driver and the server it talks to. `clock` is the driver's: no time passes but by `pass_time`.

    Closing it closes the driver, and sees that no connection is left.
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
        """Whether the provider does this."""
        return ability not in self.without

    def elsewhere(self, base_url: str) -> LLMClient:
        """Another driver of the same kind that looks for its server at `base_url`."""
        config = msgspec.structs.replace(self.config, base_url=base_url)
        return self._make(config, Deps(artifacts=None, bus=None, clock=self.clock))

    async def complete(self, request: CompleteRequest, *, driver: LLMClient | None = None) -> CompleteResponse:
        """The answer to a call of somebody, bounded so that a driver that hangs fails its test.

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
        """A call that goes on in the background; the bench ends it when it is closed."""
        return self._crew.start(self.complete(request), "call of a model")

    async def pass_time(self, seconds: float, call: asyncio.Task[Any]) -> None:
        """Move the clock until `call` ends, at most a few times `seconds`."""
        for _ in range(5):
            await self.clock.run_for(seconds)
            if call.done():
                return
            await asyncio.wait([call], timeout=0.05)

    async def settled(self) -> None:
        """Return when the server answers nobody any more.

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


def asking(text: str = "What is 2 + 3?", **fields: Any) -> CompleteRequest:
    """A request with one user message, and what else is asked for."""
    fields.setdefault("messages", [ChatMessage(Role.USER, Content(text))])
    fields.setdefault("max_tokens", 1000)
    return CompleteRequest(**fields)
