"""The script of a model server, whatever protocol it speaks, and the server as the suite in `llm` needs it.

A line says what the next call gets: an answer, whole or broken off in some way, or a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, Self, TypeAlias

import msgspec

from harborage.llm import ToolCallStructured

__all__ = ["Answer", "Asked", "Break", "Failure", "Line", "ModelServer", "Refusal", "Silence"]


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
    """What the model says. Streamed, its texts come in pieces of `piece` characters.

    With `broken` it goes wrong behind the first `after` pieces of text or arguments. `cost` is what a provider that
    names prices says it took, in US dollars.
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
        """`text` in the pieces in which it is streamed."""
        return [text[at : at + self.piece] for at in range(0, len(text), self.piece)]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The call fails with a status; `says` is put into the message, `retry_after` into the headers."""

    failure: Failure
    retry_after: str = ""
    says: str = ""


class Silence(msgspec.Struct, frozen=True):
    """The call is taken, and no byte of an answer comes until the caller gives up."""


class Asked(msgspec.Struct, frozen=True):
    """A request as it reached the server."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        """The decoded body as compact JSON, for looking things up in."""
        return msgspec.json.encode(self.body).decode()


Line: TypeAlias = Answer | Refusal | Silence | str | Callable[[Asked], "Answer | Refusal | Silence | str"]
"""One line of a script: what happens, the text of an answer, or a function of the request that gives either."""


class ModelServer(Protocol):
    """A model server on loopback that a bench starts and closes. It answers each call with the next line of its script.

    `requests` are the calls so far, `otherwise` the line for calls that come when the script is at its end, `given_up`
    counts the calls whose caller hung up before their answer was whole.
    """

    requests: list[Asked]
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
