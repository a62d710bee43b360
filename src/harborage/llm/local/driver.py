"""The driver of the embedded model: llama.cpp's own server in this process, and its replies as tool calls.

The server listens on a free port of the loopback address, with a key, without a web page; it is started with the first
call. It speaks Chat Completions, so the driver for those makes the call. Everything that a small model cannot do by
itself is done here: a turn with tools becomes one constrained reply, and the reply a native call again.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib
import importlib.util
import logging
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from harborage.concurrency import CancelScope
from harborage.errors import MissingExtraError
from harborage.identity import IdentityMissingError, effective_quadruple
from harborage.ids import new_id
from harborage.llm.client import CompleteRequest, CompleteResponse, LLMClient, ToolCallStructured, ToolChoice, Usage
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
from harborage.llm.local.weights import LocalServerError
from harborage.llm.openai_compat import make as make_compatible
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps

T = TypeVar("T")

_MODULE: Final = "xllamacpp"
_WHAT: Final = "the embedded model"
_WAIT_S: Final = 60.0
_SILENT: Final = -1
# How much of earlier prompts the server may keep beside the current one.
_PROMPT_CACHE_MIB: Final = 256


def check_installed() -> None:
    """Accept a Python that has the server; this does not load it.

    Raises:
        MissingExtraError: the server is not installed.
    """
    if importlib.util.find_spec(_MODULE) is None:
        raise MissingExtraError("local", _WHAT)


def default_threads() -> int:
    """Return one core fewer than this process may use: threads that wait for each other stall on a busy machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - 1)


class LocalServer:
    """A model that is served from `start` until `stop`, one call at a time.

    Once it runs, `context_tokens` and `parameters` are the facts of the model.
    """

    def __init__(self, path: Path, *, context_tokens: int, threads: int | None = None, name: str = "local") -> None:
        self.path = path
        self.key = secrets.token_urlsafe(32)
        self.address = ""
        self.context_tokens = context_tokens
        self.parameters = 0
        self._threads = default_threads() if threads is None else threads
        self._name = name
        self._native: Any = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"LocalServer({str(self.path)!r}, {self.address or 'not running'})"

    @property
    def base_url(self) -> str:
        """The address for clients that speak Chat Completions."""
        return f"{self.address}/v1"

    def start(self) -> None:
        """Load the model and listen.

        Raises:
            MissingExtraError: the server is not installed.
            LocalServerError: the file cannot be loaded, or the server does not answer.
        """
        check_installed()
        xllamacpp = importlib.import_module(_MODULE)
        try:
            self._native = xllamacpp.Server(self._settings(xllamacpp))
        except RuntimeError as error:
            raise LocalServerError(
                f"{self.path} cannot be served: it is damaged, is no language model, or does not fit into memory"
            ) from error
        self.address = self._native.listening_address
        try:
            # This request goes through the server's queue. A server that is stopped before it has begun to work on that
            # queue would never end.
            self.context_tokens = self._slots()[0].n_ctx
            self.parameters = self._get("/v1/models", _Models).data[0].meta.n_params
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, IndexError) as error:
            raise LocalServerError(f"the server of {self.path} does not answer: {error}") from error

    def stop(self) -> None:
        """End the server and give back its memory and its port. Stopping twice does nothing.

        Blocks for as long as a call is under way whose connection is open.
        """
        # The last reference to it is what keeps the server alive.
        self._native = None
        self.address = ""

    def _settings(self, xllamacpp: Any) -> Any:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(self.path)
        settings.model_alias = {self._name}
        settings.hostnames = ["127.0.0.1"]
        settings.port = 0
        settings.api_keys = [self.key]
        settings.ui = False
        settings.cors_origins = "null"
        settings.verbosity = _SILENT
        settings.n_ctx = self.context_tokens
        settings.n_parallel = 1
        settings.cache_ram_mib = _PROMPT_CACHE_MIB
        settings.cpuparams.n_threads = self._threads
        settings.cpuparams_batch.n_threads = self._threads
        return settings

    def _slots(self) -> list[_Slot]:
        return self._get("/slots", list[_Slot])

    def _get(self, path: str, type: type[T]) -> T:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=_WAIT_S)
        try:
            connection.request("GET", path, headers={"authorization": f"Bearer {self.key}"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        return msgspec.json.decode(body, type=type)


class _Slot(msgspec.Struct):
    """One call that the server can work on."""

    n_ctx: int
    is_processing: bool = False


class _Meta(msgspec.Struct):
    """The facts of a model's file."""

    n_params: int


class _Model(msgspec.Struct):
    meta: _Meta


class _Models(msgspec.Struct):
    """The models that are served: one."""

    data: list[_Model]


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
