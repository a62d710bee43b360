"""What the Gemini API answers: one response, or a stream of responses that continue each other. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harborage import codec
from harborage.llm.client import Usage, reported_usage, sum_of_counts
from harborage.llm.errors import MalformedAnswerError

if TYPE_CHECKING:
    from harborage.llm.streaming import AnswerBuilder

__all__ = ["Reading"]

_FILTERED = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE", "MODEL_ARMOR"}
)
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
_EXTRAS = ("cached_content_token_count", "tool_use_prompt_token_count")


class Reading:
    """Feeds one answer to its builder, a piece at a time."""

    __slots__ = ("_answer", "_calls", "_model", "_provider")

    def __init__(self, answer: AnswerBuilder, *, provider: str, model: str) -> None:
        self._answer = answer
        self._provider = provider
        self._model = model
        self._calls = 0

    def chunk(self, told: Any) -> None:
        """Take one response of the library.

        Raises:
            MalformedAnswerError: the model wrote a call that its provider could not read.
        """
        if told.usage_metadata is not None:
            self._answer.usage(_usage(told.usage_metadata))
        for candidate in (told.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                self._part(part)
            if candidate.finish_reason is not None:
                self._stop(str(candidate.finish_reason.value))
        blocked = told.prompt_feedback.block_reason if told.prompt_feedback is not None else None
        if blocked is not None:
            self._answer.finish("content_filter")

    def _part(self, part: Any) -> None:
        if part.function_call is not None:
            call = part.function_call
            args = codec.encode(call.args or {}, "the arguments").decode()
            self._answer.tool_call(self._calls, id=call.id or "", name=call.name or "", args=args)
            self._calls += 1
        elif part.text and part.thought:
            self._answer.reasoning(part.text)
        elif part.text:
            self._answer.content(part.text)

    def _stop(self, reason: str) -> None:
        if reason in _BROKEN:
            raise MalformedAnswerError(
                f"{self._provider}: the model wrote a call that cannot be read ({reason.lower()})",
                provider=self._provider,
                model=self._model,
            )
        if reason == "STOP":
            self._answer.finish("tool_calls" if self._calls else "stop")
        elif reason in ("MAX_TOKENS", "CONTINUATION"):
            self._answer.finish("length")
        elif reason != "FINISH_REASON_UNSPECIFIED":
            self._answer.finish("content_filter" if reason in _FILTERED else reason.lower())


def _usage(told: Any) -> Usage:
    """The provider counts thinking beside the answer; here it is a part of it."""
    thought = told.thoughts_token_count
    return reported_usage(
        prompt=sum_of_counts(told.prompt_token_count, told.tool_use_prompt_token_count),
        completion=sum_of_counts(told.candidates_token_count, thought),
        reasoning=thought,
        total=told.total_token_count,
        extras={name: count for name in _EXTRAS if (count := getattr(told, name, None))},
    )
