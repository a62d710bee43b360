"""The driver of the embedded model: starts the server with the first call, and makes tools of what it writes.

The server speaks Chat Completions, so the way there is the driver for those. What is done here is everything that a
small model cannot do by itself: a turn with tools becomes one constrained reply, and the reply a native call again.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from harborage.concurrency import CancelScope
from harborage.identity import IdentityMissingError, effective_quadruple
from harborage.ids import new_id
from harborage.llm.client import (
    CompleteRequest,
    CompleteResponse,
    LLMClient,
    ToolCallStructured,
    ToolChoice,
    Usage,
)
from harborage.llm.errors import ClientClosedError, ContextOverflowError, MalformedAnswerError
from harborage.llm.local.constrained import Turn, answering, constrained, is_constrained, unconstrained
from harborage.llm.local.conversation import is_answerable, is_repeat
from harborage.llm.local.decisions import Answer, AnswerStream, Call, CutOff, Decision
from harborage.llm.local.server import LocalServer
from harborage.llm.openai_compat import make as make_compatible

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps

DEFAULT_CONTEXT_TOKENS: Final = 4096
"""The window of a model that has no profile."""

PROVIDER: Final = "local"

# Below this many parameters a model that has seen a result calls the next tool at random.
_TINY: Final = 300_000_000

# A long prompt may take minutes on a slow machine before the first word of the answer; the caller's deadline holds.
_PATIENCE_S: Final = 900.0

_log = logging.getLogger(__name__)


class LocalDriver:
    """One model on this machine. It works on one call at a time; the others wait for their turn, and may be cancelled.

    The window is the one that the model's profile names, so that what the guard lets pass has room here.
    """

    def __init__(self, path: Path, cfg: ConfigSnapshot, deps: Deps) -> None:
        profile = cfg.profiles.get(cfg.model)
        window = DEFAULT_CONTEXT_TOKENS if profile is None else profile.context_window_tokens
        self._cfg = cfg
        self._deps = deps
        self._server = LocalServer(path, context_tokens=window, name=cfg.model or PROVIDER)
        self._starting: asyncio.Future[None] | None = None
        self._inner: LLMClient | None = None
        self._turn = asyncio.Lock()
        self._calls: set[CancelScope] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"LocalDriver({self._server!r})"

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The model's answer. The listeners hear `done` exactly once, whatever happens.

        A turn with tools is answered by at most one call. A call that was made before, with the same arguments and
        since the user last spoke, is not made again: the model is asked for its answer instead. One with fewer than
        300 million parameters is asked for it as soon as a call has succeeded, and is shown no system prompt.

        Raises:
            ClientClosedError: the driver is closed, or was closed while it worked on this call.
            IdentityMissingError: no identity is bound.
            LocalServerError: the model cannot be loaded.
            ContextOverflowError: the prompt does not fit the window.
            MalformedAnswerError: a call was demanded, and the model did not finish one.
        """
        with _Listening(request) as heard:
            self._check()
            scope = CancelScope()
            self._calls.add(scope)
            self._quiet.clear()
            try:
                with scope:
                    async with self._turn:
                        return await self._answered(await self._opened(), heard)
            finally:
                self._calls.discard(scope)
                if not self._calls:
                    self._quiet.set()
            raise ClientClosedError()

    async def close(self) -> None:
        """End the calls under way, then the server. Closing twice does nothing."""
        self._is_closed = True
        for scope in self._calls:
            scope.cancel()
        await self._quiet.wait()
        starting, self._starting = self._starting, None
        if starting is not None:
            await asyncio.wait([starting])
            self._has_failed(starting)  # whoever waited for it has heard of it
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.close()
        await asyncio.get_running_loop().run_in_executor(None, self._server.stop)

    def _check(self) -> None:
        if self._is_closed:
            raise ClientClosedError()
        if effective_quadruple() is None:
            raise IdentityMissingError()

    async def _opened(self) -> LLMClient:
        """The way to the server, which runs from here on. Only the holder of the turn asks."""
        if self._inner is not None:
            return self._inner
        if self._starting is None or self._has_failed(self._starting):
            self._starting = asyncio.get_running_loop().run_in_executor(None, self._server.start)
        # Somebody who stops waiting must not leave a server behind that nobody knows of.
        await asyncio.shield(self._starting)
        self._inner = make_compatible(self._reachable(), self._deps)
        return self._inner

    def _has_failed(self, starting: asyncio.Future[None]) -> bool:
        return starting.done() and (starting.cancelled() or starting.exception() is not None)

    def _reachable(self) -> ConfigSnapshot:
        transport = msgspec.structs.replace(
            self._cfg.transport,
            first_byte_timeout_s=max(_PATIENCE_S, self._cfg.transport.first_byte_timeout_s),
            idle_timeout_s=max(_PATIENCE_S, self._cfg.transport.idle_timeout_s),
        )
        return msgspec.structs.replace(
            self._cfg,
            driver="openai_compat",
            provider=PROVIDER,
            model=self._cfg.model or PROVIDER,
            base_url=self._server.base_url,
            api_key=self._server.key,
            headers={},
            transport=transport,
        )

    async def _answered(self, inner: LLMClient, heard: _Listening) -> CompleteResponse:
        window = self._server.context_tokens
        if not is_constrained(heard.request):
            return await inner.complete(heard.passing(unconstrained(heard.request, window)))
        is_tiny = self._server.parameters < _TINY
        may_answer = heard.request.tool_choice is not ToolChoice.REQUIRED
        if may_answer and is_tiny and is_answerable(heard.request.messages):
            return await inner.complete(heard.passing(answering(heard.request, window, is_tiny=True)))
        turn = constrained(heard.request, window, is_tiny=is_tiny)
        response = await inner.complete(heard.extracting(turn))
        decision = turn.read(response.content)
        if self._is_done(decision, heard.request):
            return heard.told(_native(decision, response), turn)
        _log.debug("the model repeated a call or did not finish one; it is asked for its answer")
        if not may_answer:
            return self._demanded(decision, response)
        last = msgspec.structs.replace(answering(heard.request, window, is_tiny=is_tiny), on_reasoning=None)
        again = await inner.complete(heard.passing(last))
        return msgspec.structs.replace(again, usage=_sum(response.usage, again.usage))

    def _is_done(self, decision: Decision, request: CompleteRequest) -> bool:
        match decision:
            case Answer():
                return True
            case Call(name, args):
                return not is_repeat(request.messages, name, args)
            case CutOff(text):
                return bool(text)

    def _demanded(self, decision: Decision, response: CompleteResponse) -> CompleteResponse:
        """What is left to say where no answer is allowed: the call once more, if there is one."""
        if isinstance(decision, Call):
            return _native(decision, response)
        if response.usage.total_tokens >= self._server.context_tokens:
            raise ContextOverflowError(
                f"{PROVIDER}: the prompt fills the window of {self._server.context_tokens} tokens; set a token budget, "
                "or a profile with a larger context_window_tokens",
                provider=PROVIDER,
                model=self._cfg.model,
            )
        raise MalformedAnswerError(
            f"{PROVIDER}: the model did not finish the call that was demanded; allow more max_tokens",
            provider=PROVIDER,
            model=self._cfg.model,
        )


class _Listening:
    """Who listens to one answer: they hear what is theirs of it, and at the end, once, that it is over."""

    __slots__ = ("_is_told", "request")

    def __init__(self, request: CompleteRequest) -> None:
        self.request = request
        self._is_told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.request.stream and self.request.on_content is not None and not self._is_told:
            self._is_told = True
            self.request.on_content("", True)

    def passing(self, request: CompleteRequest) -> CompleteRequest:
        """A request whose deltas are passed on as they are."""
        return msgspec.structs.replace(request, on_content=self._pass if request.on_content is not None else None)

    def extracting(self, turn: Turn) -> CompleteRequest:
        """A request of whose deltas only the words of an answer are passed on."""
        request = turn.request
        if not request.stream or request.on_content is None or not turn.answer or turn.is_object:
            return msgspec.structs.replace(request, on_content=None)
        words = AnswerStream(turn.answer)
        return msgspec.structs.replace(request, on_content=lambda delta, done: self._pass(words.feed(delta), done))

    def told(self, response: CompleteResponse, turn: Turn) -> CompleteResponse:
        """The response, of which an answer that is an object is passed on only now, in one piece."""
        if turn.is_object and self.request.stream:
            self._pass(response.content, False)
        return response

    def _pass(self, delta: str, done: bool) -> None:
        # That one reply is over says nothing yet: another may be asked for.
        if delta and self.request.on_content is not None:
            self.request.on_content(delta, False)


def _native(decision: Decision, response: CompleteResponse) -> CompleteResponse:
    """The decision as a provider of native tool calls would answer it."""
    match decision:
        case Call(name, args):
            call = ToolCallStructured(f"call_{new_id()}", name, args)
            return msgspec.structs.replace(response, content="", tool_calls=(call,), finish_reason="tool_calls")
        case Answer(text):
            return msgspec.structs.replace(response, content=text, finish_reason="stop")
        case CutOff(text):
            return msgspec.structs.replace(response, content=text, finish_reason="length")


def _sum(first: Usage, second: Usage) -> Usage:
    return msgspec.structs.replace(
        second,
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        completion_tokens=first.completion_tokens + second.completion_tokens,
        reasoning_tokens=first.reasoning_tokens + second.reasoning_tokens,
        total_tokens=first.total_tokens + second.total_tokens,
        latency_ms=first.latency_ms + second.latency_ms,
    )
