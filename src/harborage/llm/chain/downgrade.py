"""Stepping down to a weaker mode of structured output when a provider does not take the one that was asked for.

Nothing is remembered: the next call starts at the profile's mode again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage.events import EventType, LLMModeDowngradedPayload
from harborage.identity import Quadruple, effective_quadruple
from harborage.llm.chain.announce import announce
from harborage.llm.chain.attempts import Attempts
from harborage.llm.chain.layer import Layer
from harborage.llm.chain.output_modes import KINDS, LADDERS, shaped, unwrapped
from harborage.llm.chain.schema_errors import is_invalid_json_schema_error
from harborage.llm.chain.wording import cut
from harborage.llm.client import CompleteRequest, CompleteResponse, ResponseFormatKind
from harborage.llm.errors import DowngradeExhaustedError

if TYPE_CHECKING:
    from harborage.llm.profile import OutputMode

__all__ = ["Downgrading"]

_REASON_BYTES: Final = 256
_LISTED_BYTES: Final = 160


class Downgrading(Layer):
    """Tries the modes of structured output from the one in the model's profile down to plain text.

    A request without a response format, or for a model whose mode is not set, passes untouched.

    Raises:
        DowngradeExhaustedError: every mode was refused; the text lists them, the last refusal is the cause.
    """

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        ladder = self._ladder(request)
        if not ladder:
            return await self._inner.complete(request)
        refused: list[tuple[OutputMode, Exception]] = []
        with Attempts(request) as attempts:
            for mode, weaker in zip(ladder, (*ladder[1:], None), strict=True):
                try:
                    response = await self._inner.complete(attempts.begin(shaped(request, mode)))
                except Exception as error:
                    if not is_invalid_json_schema_error(error):
                        raise
                    refused.append((mode, error))
                    if weaker is not None:
                        self._tell(request, mode, weaker, error)
                else:
                    return unwrapped(response, mode)
        raise _exhausted(refused) from refused[-1][1]

    def _ladder(self, request: CompleteRequest) -> tuple[OutputMode, ...]:
        """The modes to try; none when there is nothing to step down from."""
        wanted = request.response_format
        if wanted is None or wanted.kind == ResponseFormatKind.TEXT:
            return ()
        profile = self._cfg.profiles.get(request.model or self._cfg.model)
        return () if profile is None else LADDERS.get(profile.output_mode, ())

    def _tell(self, request: CompleteRequest, mode: OutputMode, weaker: OutputMode, error: Exception) -> None:
        who = effective_quadruple()
        if who is None:
            who = Quadruple()
        payload = LLMModeDowngradedPayload(
            identity=who,
            model=request.model or self._cfg.model,
            from_mode=mode,
            to_mode=weaker,
            from_=KINDS[mode],
            to=KINDS[weaker],
            reason=cut(str(error), _REASON_BYTES),
            occurred_at=self._deps.clock.now(),
        )
        announce(self._deps, EventType.LLM_MODE_DOWNGRADED, payload, who=who)


def _exhausted(refused: list[tuple[OutputMode, Exception]]) -> DowngradeExhaustedError:
    listed = " | ".join(f"mode={mode} error={cut(str(error), _LISTED_BYTES)}" for mode, error in refused)
    return DowngradeExhaustedError(f"llm: every mode of structured output was refused: {listed}")
