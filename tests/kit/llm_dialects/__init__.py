"""The protocols that the scripted model server speaks, one file each, and here what every one of them has to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from harborage.testing.conformance.llm_bench import Answer, ReceivedRequest, Refusal

__all__ = ["Dialect", "Frame"]


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

    def is_mine(self, asked: ReceivedRequest) -> bool:
        """Whether a request is spoken in this protocol."""
        ...

    def is_streamed(self, asked: ReceivedRequest) -> bool:
        """Whether a request asks for the answer in pieces."""
        ...

    def whole(self, answer: Answer, asked: ReceivedRequest) -> Mapping[str, Any]:
        """The body of the answer in one piece."""
        ...

    def frames(self, answer: Answer, asked: ReceivedRequest) -> Sequence[Frame]:
        """The body of the answer in pieces, up to its proper end."""
        ...

    def refusal(self, refusal: Refusal, asked: ReceivedRequest) -> tuple[int, Mapping[str, Any]]:
        """The status and the body of a refusal."""
        ...

    def failure(self, asked: ReceivedRequest) -> bytes:
        """The piece by which a server says, in the middle of an answer, that it failed."""
        ...

    def garbage(self, asked: ReceivedRequest) -> bytes:
        """A piece that looks like one of this protocol and is no JSON."""
        ...
