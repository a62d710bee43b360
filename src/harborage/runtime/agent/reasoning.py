"""A model's reasoning without secrets: redacted where it enters, before a planner, a record or an event has it.

What is redacted at the entrance is the same in the record, so a replay shows the planner exactly what it saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

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
