"""The driver of the embedded model: starts the server with the first call, and turns its replies into tool calls.

The server speaks Chat Completions, so the driver for those makes the call. Everything that a small model cannot do by
itself is done here: a turn with tools becomes one constrained reply, and the reply a native call again.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from harborage.llm.local.decisions import Answer, AnswerStream, Call, CutOff, Decision
from harborage.llm.local.prompt import (
    Turn,
    answer_request,
    decision_turn,
    is_answerable,
    is_repeat,
    may_call_tools,
    plain_request,
)
from harborage.llm.local.server import LocalServer
from harborage.llm.openai_compat import make as make_compatible
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps

DEFAULT_CONTEXT_TOKENS: Final = 4096
"""The window of a model that has no profile."""

PROVIDER: Final = "local"

# Below this many parameters a model that has seen a result calls the next tool at random.
_TINY: Final = 300_000_000

# A long prompt may take minutes on a slow machine before the first word; the caller's deadline still holds.
_PATIENCE_S: Final = 900.0

_log = logging.getLogger(__name__)


class LocalDriver:
    """One model on this machine. It works on one call at a time; the others wait, and may be cancelled.

    The window is that of the model's profile, so that a prompt that passes the chain's check has room here.
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
        """Return the model's answer. The callbacks get `done` exactly once, on errors and cancellation too.

        A turn with tools is answered by at most one call. A call that was made before, with the same arguments and
        since the user's last message, is not made again: the model is asked for its answer instead. One with fewer
        than 300 million parameters is asked for it as soon as a call has succeeded, and gets no system prompt.

        Raises:
            ClientClosedError: the driver is closed, or was closed while it worked on this call.
            IdentityMissingError: no identity is bound.
            LocalServerError: the model cannot be loaded.
            ContextOverflowError: the prompt does not fit the window.
            MalformedAnswerError: a call was demanded, and the model did not finish one.
        """
        with AnswerBuilder(request, provider=PROVIDER) as answer:
            self._check()
            scope = CancelScope()
            self._calls.add(scope)
            self._quiet.clear()
            try:
                with scope:
                    async with self._turn:
                        return await self._answer(await self._opened(), request, answer)
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
            self._has_failed(starting)  # retrieves its exception, which the waiting call has raised
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
        """Return the client of the server, which runs from here on. Only the call at work asks."""
        if self._inner is not None:
            return self._inner
        if self._starting is None or self._has_failed(self._starting):
            self._starting = asyncio.get_running_loop().run_in_executor(None, self._server.start)
        # A caller that stops waiting must not leave a server behind that is never stopped.
        await asyncio.shield(self._starting)
        self._inner = make_compatible(self._client_config(), self._deps)
        return self._inner

    def _has_failed(self, starting: asyncio.Future[None]) -> bool:
        return starting.done() and (starting.cancelled() or starting.exception() is not None)

    def _client_config(self) -> ConfigSnapshot:
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

    async def _answer(self, inner: LLMClient, request: CompleteRequest, answer: AnswerBuilder) -> CompleteResponse:
        window = self._server.context_tokens
        if not may_call_tools(request):
            return await inner.complete(_streamed(plain_request(request, window), answer))
        is_tiny = self._server.parameters < _TINY
        may_answer = request.tool_choice is not ToolChoice.REQUIRED
        if may_answer and is_tiny and is_answerable(request.messages):
            return await inner.complete(_streamed(answer_request(request, window, is_tiny=True), answer))
        turn = decision_turn(request, window, is_tiny=is_tiny)
        response = await inner.complete(_streamed_words(turn, answer))
        decision = turn.read(response.content)
        if self._is_done(decision, request):
            response = _native(decision, response)
            if turn.is_object:
                # An answer that is an object is streamed in one piece.
                answer.content(response.content)
            return response
        _log.debug("the model repeated a call or did not finish one; asking for its answer")
        if not may_answer:
            return self._demanded(decision, response)
        last = msgspec.structs.replace(answer_request(request, window, is_tiny=is_tiny), on_reasoning=None)
        again = await inner.complete(_streamed(last, answer))
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
        """Return the repeated call where no answer is allowed.

        Raises:
            ContextOverflowError, MalformedAnswerError: there is no call.
        """
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


def _streamed(request: CompleteRequest, answer: AnswerBuilder) -> CompleteRequest:
    """Return the request with its deltas passed on; its `done` is not, as another reply may follow."""
    if request.on_content is None:
        return request
    return msgspec.structs.replace(request, on_content=lambda delta, done: answer.content(delta))


def _streamed_words(turn: Turn, answer: AnswerBuilder) -> CompleteRequest:
    """Return the request of a turn with only the words of an answer passed on."""
    request = turn.request
    if not request.stream or request.on_content is None or not turn.answer or turn.is_object:
        return msgspec.structs.replace(request, on_content=None)
    words = AnswerStream(turn.answer)
    return msgspec.structs.replace(request, on_content=lambda delta, done: answer.content(words.feed(delta)))


def _native(decision: Decision, response: CompleteResponse) -> CompleteResponse:
    """Return the decision as a provider of native tool calls would answer it."""
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
