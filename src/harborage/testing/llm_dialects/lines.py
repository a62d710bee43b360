"""The words in which a model server is scripted, whatever protocol it speaks, and what a protocol has to say them in.

Values only. A line says what the next call gets: an answer, whole or broken off in some way, or a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from harborage.llm import ToolCallStructured

__all__ = ["Answer", "Asked", "Break", "Dialect", "Failure", "Frame", "Line", "Refusal", "Silence"]


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


class Frame(NamedTuple):
    """One piece of a streamed body. `speaks` when it holds a piece of text or of arguments."""

    data: bytes
    speaks: bool = False


class Dialect(Protocol):
    """One provider's protocol. It holds no state: every answer is made of the line and the request alone."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def base_path(self) -> str:
        """What a client's base address ends with, such as `/v1`; empty when it is the root."""
        ...

    def is_mine(self, asked: Asked) -> bool:
        """Whether a request is spoken in this protocol."""
        ...

    def is_streamed(self, asked: Asked) -> bool:
        """Whether a request asks for the answer in pieces."""
        ...

    def whole(self, answer: Answer, asked: Asked) -> Mapping[str, Any]:
        """The body of the answer in one piece."""
        ...

    def frames(self, answer: Answer, asked: Asked) -> Sequence[Frame]:
        """The body of the answer in pieces, up to its proper end."""
        ...

    def refusal(self, refusal: Refusal, asked: Asked) -> tuple[int, Mapping[str, Any]]:
        """The status and the body of a refusal."""
        ...

    def failure(self, asked: Asked) -> bytes:
        """The piece by which a server says, in the middle of an answer, that it failed."""
        ...

    def garbage(self, asked: Asked) -> bytes:
        """A piece that looks like one of this protocol and is no JSON."""
        ...
