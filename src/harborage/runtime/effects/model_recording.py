"""Record the calls that a run's planner makes to its model, so that the run can be replayed offline.

The client is wrapped once and serves every run; an exchange belongs to the step that is open under the run's identity.
Recording never fails a run: an exchange that cannot be recorded is left out and logged. Secrets in a model's reasoning
are redacted where it enters, so a replay shows the planner exactly what it saw.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import error_reason
from harborage.identity import Quadruple, effective_quadruple
from harborage.llm import CompleteRequest, CompleteResponse, LLMClient
from harborage.runtime.durable.model_records import (
    Exchange,
    ExchangeRecorder,
    RecordedRequest,
    failure_of,
    prompt_of,
    record_answer,
)

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.llm import CompleteRequest, CompleteResponse, LLMClient


def without_secrets(redactor: Redactor, text: str) -> str:
    """`text` redacted; a note of its length when no safe copy can be made."""
    if not text:
        return text
    try:
        return str(redactor.redact(text))
    except Exception:  # noqa: BLE001 - a redactor may raise any error, and nothing unredacted may pass
        return f"[{len(text)} characters of reasoning withheld: redaction failed]"


class RedactingClient:
    """A client that calls `inner` and redacts the secrets in the reasoning of each answer."""

    def __init__(self, inner: LLMClient, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the answer of `inner` with its reasoning redacted. Streamed chunks are passed on as they come."""
        response = await self._inner.complete(request)
        reasoning = without_secrets(self._redactor, response.reasoning)
        return response if reasoning == response.reasoning else replace(response, reasoning=reasoning)

    async def close(self) -> None:
        """Close `inner`."""
        await self._inner.close()


NO_EXCHANGES: Final = msgspec.Raw(b"")
"""The record of a step whose planner called no model."""


class _Call:
    """One model call: its request, and its outcome once it has one."""

    __slots__ = ("outcome", "request")

    def __init__(self, request: CompleteRequest) -> None:
        self.request = request
        self.outcome: CompleteResponse | Exception | None = None


class StepExchanges:
    """The model calls of one step, in the order in which they began."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def begin(self, request: CompleteRequest) -> _Call:
        """Add a call that begins; the caller sets its outcome when it has one."""
        call = _Call(request)
        self._calls.append(call)
        return call

    def encode(self, transcript: ExchangeRecorder, logger: logging.Logger) -> msgspec.Raw:
        """Return the exchanges as they are recorded, without the calls whose answer the planner did not wait for."""
        exchanges = [_encoded(call, transcript, logger) for call in self._calls if call.outcome is not None]
        return msgspec.Raw(b"[" + b",".join(exchanges) + b"]") if exchanges else NO_EXCHANGES


class ModelRecorder:
    """Records the model calls of each step that go through the clients it wraps."""

    def __init__(self) -> None:
        self._open: dict[Quadruple, StepExchanges] = {}

    def wrap(self, client: LLMClient) -> LLMClient:
        """Return a client that calls `client` and records each call in the open step of its run."""
        return _RecordingClient(client, self._open)

    def begin(self, who: Quadruple) -> StepExchanges:
        """Open a step: record the model calls of the run `who` from now on, until `end`."""
        exchanges = self._open[who] = StepExchanges()
        return exchanges

    def end(self, who: Quadruple) -> None:
        """Close the step of that run; its later model calls are not recorded."""
        self._open.pop(who, None)


class _RecordingClient:
    def __init__(self, inner: LLMClient, steps: dict[Quadruple, StepExchanges]) -> None:
        self._inner = inner
        self._steps = steps

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        who = effective_quadruple()
        exchanges = None if who is None else self._steps.get(who)
        if exchanges is None:
            return await self._inner.complete(request)
        call = exchanges.begin(request)
        try:
            response = await self._inner.complete(request)
        except Exception as error:
            call.outcome = error
            raise
        call.outcome = response
        return response

    async def close(self) -> None:
        await self._inner.close()


def _encoded(call: _Call, transcript: ExchangeRecorder, logger: logging.Logger) -> bytes:
    try:
        return codec.encode(_exchange(call, transcript), "heard")
    except Exception as error:  # noqa: BLE001 - logged; recording must not end a run
        logger.warning("a model call could not be recorded, so this step cannot be replayed: %s", error_reason(error))
        transcript.forget_last()
        return codec.encode(Exchange(RecordedRequest(0)))


def _exchange(call: _Call, transcript: ExchangeRecorder) -> Exchange:
    request = transcript.encode_request(prompt_of(call.request))
    match call.outcome:
        case Exception() as error:
            return Exchange(request, failure=failure_of(error))
        case CompleteResponse() as response:
            return Exchange(request, record_answer(response))
        case None:
            raise AssertionError("the call has no outcome")
