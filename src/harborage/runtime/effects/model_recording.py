"""What a run's planner asks its model, heard while it asks: for the record, so that the run can be replayed offline.

The client is wrapped once and serves every run; an exchange belongs to the step that is open under the run's identity.
Hearing never costs a run anything but time: what cannot be recorded is left out, and the log says so. Secrets in a
model's reasoning are redacted where it enters, so a replay shows the planner exactly what it saw.
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
from harborage.runtime.durable.model_records import Asked, Exchange, ExchangeRecorder, answered, failure_of, prompt_of

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.llm import CompleteRequest, CompleteResponse, LLMClient


def without_secrets(redactor: Redactor, text: str) -> str:
    """`text` redacted; a note of its length when no safe copy can be made."""
    if not text:
        return text
    try:
        return str(redactor.redact(text))
    except Exception:  # noqa: BLE001 - whatever a redactor raises, nothing unredacted may pass
        return f"[{len(text)} characters of reasoning withheld: redaction failed]"


class RedactingClient:
    """Does what `inner` does, and takes secrets out of the reasoning that comes with each answer."""

    def __init__(self, inner: LLMClient, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The answer of `inner`, its reasoning redacted. What streams live is passed on as it comes."""
        response = await self._inner.complete(request)
        reasoning = without_secrets(self._redactor, response.reasoning)
        return response if reasoning == response.reasoning else replace(response, reasoning=reasoning)

    async def close(self) -> None:
        """Close `inner`."""
        await self._inner.close()


NOTHING_HEARD: Final = msgspec.Raw(b"")
"""What a step heard of whose planner asked no model."""


class _Call:
    """One call of the model while it is under way."""

    __slots__ = ("outcome", "request")

    def __init__(self, request: CompleteRequest) -> None:
        self.request = request
        self.outcome: CompleteResponse | Exception | None = None


class Heard:
    """The calls that one step made of its model, in the order in which they began."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def begin(self, request: CompleteRequest) -> _Call:
        """Note a call that begins; set its outcome when it has one."""
        call = _Call(request)
        self._calls.append(call)
        return call

    def told(self, transcript: ExchangeRecorder, logger: logging.Logger) -> msgspec.Raw:
        """The exchanges as they are recorded; those whose answer nobody waited for are left out."""
        exchanges = [_encoded(call, transcript, logger) for call in self._calls if call.outcome is not None]
        return msgspec.Raw(b"[" + b",".join(exchanges) + b"]") if exchanges else NOTHING_HEARD


class Hearing:
    """Hears what the planners of a runtime ask of the models behind the clients that it wraps."""

    def __init__(self) -> None:
        self._open: dict[Quadruple, Heard] = {}

    def wrap(self, client: LLMClient) -> LLMClient:
        """A client that does what `client` does, and is heard."""
        return _Overheard(client, self._open)

    def begin(self, who: Quadruple) -> Heard:
        """Hear what is asked for the run `who` from now on, until `end`."""
        heard = self._open[who] = Heard()
        return heard

    def end(self, who: Quadruple) -> None:
        """The step of that run is over; what is asked for it now is not heard."""
        self._open.pop(who, None)


class _Overheard:
    def __init__(self, inner: LLMClient, steps: dict[Quadruple, Heard]) -> None:
        self._inner = inner
        self._steps = steps

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        who = effective_quadruple()
        heard = None if who is None else self._steps.get(who)
        if heard is None:
            return await self._inner.complete(request)
        call = heard.begin(request)
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
    except Exception as error:  # noqa: BLE001 - logged; hearing must not end a run
        logger.warning(
            "what the model was asked is not recorded, so this step cannot be replayed: %s", error_reason(error)
        )
        transcript.lose()
        return codec.encode(Exchange(Asked(0)))


def _exchange(call: _Call, transcript: ExchangeRecorder) -> Exchange:
    asked = transcript.told(prompt_of(call.request))
    match call.outcome:
        case Exception() as error:
            return Exchange(asked, failure=failure_of(error))
        case CompleteResponse() as response:
            return Exchange(asked, answered(response))
        case None:
            raise AssertionError("the call has no outcome")
