"""What pydantic-ai answers: events of a stream, or a response. Read by their own names, so nothing is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harborage import codec
from harborage.llm.client import Cost, Usage, reported_usage

if TYPE_CHECKING:
    from harborage.llm.streaming import AnswerBuilder

__all__ = ["answer_of", "take_event"]

# Its own stand-ins for a model never say why they have ended.
_STAND_INS = frozenset({"function", "test"})
_NEVER_GUESSED = frozenset({"xai"})
_EXTRAS = (
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
)


def take_event(event: Any, answer: AnswerBuilder) -> None:
    """Feed one event of a stream to the answer; the places of parts are the places of their calls."""
    if event.event_kind == "part_start":
        _begin(event.part, event.index, answer)
    elif event.event_kind == "part_delta":
        delta = event.delta
        match delta.part_delta_kind:
            case "text":
                answer.content(delta.content_delta)
            case "thinking":
                answer.reasoning(delta.content_delta or "")
            case "tool_call":
                answer.tool_call(
                    event.index,
                    id=delta.tool_call_id or "",
                    name=delta.tool_name_delta or "",
                    args=_text(delta.args_delta),
                )
            case _:
                pass  # media that a model makes have no place in an answer


def answer_of(response: Any, answer: AnswerBuilder, *, is_streamed: bool = False) -> None:
    """Feed a whole response; of one that was streamed only what is known at its end."""
    if not is_streamed:
        for index, part in enumerate(response.parts):
            _begin(part, index, answer)
    answer.usage(_usage(response.usage))
    answer.cost(_cost(response))
    reason = response.finish_reason if not is_streamed or _is_told(response) else None
    if reason in (None, "stop", "tool_call") and (reason or not is_streamed or _is_stand_in(response)):
        reason = "tool_calls" if any(part.part_kind == "tool-call" for part in response.parts) else "stop"
    if reason:
        answer.finish(reason)


def _is_told(response: Any) -> bool:
    """Whether the provider itself said why a stream ended; for one that just broke off the library guesses `stop`."""
    if response.finish_reason != "stop" or response.provider_name in _NEVER_GUESSED:
        return True
    return bool((response.provider_details or {}).get("finish_reason"))


def _is_stand_in(response: Any) -> bool:
    return (response.model_name or "").partition(":")[0] in _STAND_INS


def _begin(part: Any, index: int, answer: AnswerBuilder) -> None:
    match part.part_kind:
        case "text":
            answer.content(part.content)
        case "thinking":
            answer.reasoning(part.content)
        case "tool-call":
            answer.tool_call(index, id=part.tool_call_id, name=part.tool_name, args=_text(part.args))
        case _:
            pass


def _text(args: Any) -> str:
    """Arguments as text; some of its models give them decoded."""
    if args is None or isinstance(args, str):
        return args or ""
    return codec.encode(args, "the arguments").decode()


def _usage(told: Any) -> Usage:
    details = dict(told.details or {})
    extras = {name: count for name in _EXTRAS if (count := getattr(told, name, 0))}
    return reported_usage(
        prompt=told.input_tokens,
        completion=told.output_tokens,
        reasoning=details.get("reasoning_tokens") or details.get("thoughts_tokens"),
        extras=extras,
    )


def _cost(response: Any) -> Cost:
    """What its price table says, which knows the provider behind the bridge; nothing for a model it does not know."""
    try:
        price = response.cost()
    except (AssertionError, LookupError, ValueError):
        return Cost()
    return Cost(
        input_cost=float(price.input_price),
        output_cost=float(price.output_price),
        total_cost=float(price.total_price),
        currency="USD",
    )
