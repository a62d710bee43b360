"""Asking again when a validator refuses an answer, with its complaint.

Only a validator leads to another attempt here: an error of the call itself is passed on at once, because whether that
is worth repeating is decided further inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from harborage.events import EventType, LLMRetryWithFeedbackPayload
from harborage.identity import Quadruple, effective_quadruple
from harborage.llm.chain.announce import announce
from harborage.llm.chain.attempts import Attempts
from harborage.llm.chain.layer import Layer
from harborage.llm.chain.wording import cut
from harborage.llm.client import ChatMessage, CompleteRequest, CompleteResponse, Role, Validator
from harborage.llm.content import Content
from harborage.llm.errors import RetryExhaustedError

__all__ = ["DEFAULT_MAX_RETRIES", "Retrying", "corrective_turn"]

DEFAULT_MAX_RETRIES: Final = 1
"""How often an answer is asked for again where the model's profile does not say."""

_COMPLAINT_BYTES: Final = 256
_REASON_BYTES: Final = 160


class Retrying(Layer):
    """Makes a model mend an answer that the request's validator refuses, as often as the model's profile allows.

    Each further attempt asks the original question, with the last answer and what was wrong with it; earlier ones are
    forgotten.

    Raises:
        RetryExhaustedError: the last answer allowed was refused too; `response` is that answer.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        validator = request.validator
        if validator is None:
            return await self._inner.complete(request)
        retries = self._max_retries(request)
        reasons: list[str] = []
        asked = request
        with Attempts(request) as attempts:
            while True:
                response = await self._inner.complete(attempts.begin(asked))
                refused = _refusal(validator, response)
                if refused is None:
                    return response
                reason = str(refused) or type(refused).__name__
                reasons.append(reason)
                if len(reasons) > retries:
                    raise _exhausted(reasons, response) from refused
                self._tell(request, len(reasons), retries, reason)
                messages = (*request.messages, *corrective_turn(response.content, reason))
                asked = msgspec.structs.replace(request, messages=messages)

    def _max_retries(self, request: CompleteRequest) -> int:
        profile = self._cfg.profiles.get(request.model or self._cfg.model)
        if profile is None or profile.max_retries is None:
            return DEFAULT_MAX_RETRIES
        return max(0, profile.max_retries)

    def _tell(self, request: CompleteRequest, attempt: int, retries: int, reason: str) -> None:
        who = effective_quadruple()
        if who is None:
            who = Quadruple()
        payload = LLMRetryWithFeedbackPayload(
            identity=who,
            model=request.model or self._cfg.model,
            attempt=attempt,
            max_retries=retries,
            reason=cut(reason, _COMPLAINT_BYTES),
            occurred_at=self._deps.clock.now(),
        )
        announce(self._deps, EventType.LLM_RETRY_WITH_FEEDBACK, payload, who=who)


def corrective_turn(answer: str, complaint: str) -> tuple[ChatMessage, ...]:
    """What follows the original messages: the refused answer, unless it was empty, and what was wrong with it."""
    said = f"That answer cannot be used: {cut(complaint, _COMPLAINT_BYTES)}\nAnswer again, with this corrected."
    asking = ChatMessage(Role.USER, Content(text=said))
    return (ChatMessage(Role.ASSISTANT, Content(text=answer)), asking) if answer else (asking,)


def _refusal(validator: Validator, response: CompleteResponse) -> Exception | None:
    """What the validator has against an answer; None when it takes it."""
    try:
        validator(response)
    except Exception as error:  # noqa: BLE001 - whatever a validator raises is its word on the answer
        return error
    return None


def _exhausted(reasons: Sequence[str], response: CompleteResponse) -> RetryExhaustedError:
    listed = " | ".join(f"attempt={at} reason={cut(reason, _REASON_BYTES)}" for at, reason in enumerate(reasons))
    retries = len(reasons) - 1
    return RetryExhaustedError(f"llm: no usable answer after {retries} retries: {listed}", response)
