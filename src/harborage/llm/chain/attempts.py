"""One call that may take several attempts, told to its listeners as one answer.

The rule lives here once, for every layer that asks again: deltas are passed on as they come; before a further attempt
the listeners hear that what they were told is void; `done` is held back until the last attempt is over, so that it
comes exactly once.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from harborage.concurrency import cancellations

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, OnDelta

__all__ = ["Attempts"]


class Attempts:
    """The attempts at one request: `with Attempts(request) as attempts: … inner.complete(attempts.begin(request))`.

    Leaving the block tells the listeners `done` if an attempt told it, on errors and cancellation too. A caller without
    `on_reset` cannot hear that an answer begins anew and sees the attempts one after the other.
    """

    __slots__ = (
        "_has_spoken",
        "_is_content_done",
        "_is_listened_to",
        "_is_reasoning_done",
        "_on_content",
        "_on_reasoning",
        "_on_reset",
    )

    def __init__(self, request: CompleteRequest) -> None:
        self._on_content: OnDelta | None = request.on_content if request.stream else None
        self._on_reasoning: OnDelta | None = request.on_reasoning if request.stream else None
        self._on_reset = request.on_reset
        self._is_listened_to = self._on_content is not None or self._on_reasoning is not None
        self._has_spoken = False
        self._is_content_done = False
        self._is_reasoning_done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_reasoning_done and self._on_reasoning is not None:
                self._on_reasoning("", True)
        finally:
            if self._is_content_done and self._on_content is not None:
                self._on_content("", True)

    def begin(self, request: CompleteRequest) -> CompleteRequest:
        """`request` as the next attempt sends it; what earlier attempts told the listeners is void from here on.

        Raises:
            asyncio.CancelledError: the caller was asked to stop, so there is no further attempt.
        """
        if cancellations():
            raise asyncio.CancelledError
        if not self._is_listened_to:
            return request
        self._restart()
        return msgspec.structs.replace(
            request,
            on_content=None if self._on_content is None else self._content,
            on_reasoning=None if self._on_reasoning is None else self._reasoning,
            on_reset=self._restart,
        )

    def _content(self, delta: str, done: bool) -> None:
        if delta and self._on_content is not None:
            self._has_spoken = True
            self._on_content(delta, False)
        if done:
            self._is_content_done = True

    def _reasoning(self, delta: str, done: bool) -> None:
        if delta and self._on_reasoning is not None:
            self._has_spoken = True
            self._on_reasoning(delta, False)
        if done:
            self._is_reasoning_done = True

    def _restart(self) -> None:
        """Void what was told, if anything was. That the content is done is kept: it will be told in any case."""
        self._is_reasoning_done = False
        if self._has_spoken:
            self._has_spoken = False
            if self._on_reset is not None:
                self._on_reset()
