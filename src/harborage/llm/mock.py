"""A driver that makes its answers up, always the same ones: for tests and for trying things out without a provider.

It must be chosen: a missing key stays an error. Nothing is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.clock import sleep
from harborage.identity import Quadruple
from harborage.llm.chain.layer import require_caller
from harborage.llm.client import CompleteRequest, CompleteResponse, Cost, Role, Usage
from harborage.llm.content import Content, TextPart
from harborage.llm.errors import ClientClosedError, LLMConfigError
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps

_INPUT_PRICE: Final = 1e-6
_OUTPUT_PRICE: Final = 2e-6
_CHUNKS: Final = 4
_THINKING: Final = "mock-thinking"


class MockOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the mock does. A text for `forced_error` raises it as a ConnectionError; an exception is raised as it is.

    `synthetic_content` is the answer, None an echo. `stream_chunks` is the largest number of pieces of a streamed
    answer (0 or less: 4). `seen_identity` gets the identity of each call. `pre_stream_delay_s` is the wait before every
    answer.
    """

    synthetic_content: str | None = None
    forced_error: BaseException | None = None
    stream_chunks: int = 0
    seen_identity: Callable[[Quadruple], None] | None = None
    pre_stream_delay_s: float = 0.0


class MockLLM:
    """A mock model: it echoes the last user message, or gives the configured answer."""

    def __init__(self, deps: Deps, options: MockOptions = MockOptions()) -> None:  # noqa: B008 - a frozen value
        self._clock = deps.clock
        self._options = options
        self._is_closed = False

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the made-up answer.

        Raises:
            ClientClosedError: the driver is closed.
            IdentityMissingError: no identity is bound.
            BaseException: the forced error.
        """
        if self._is_closed:
            raise ClientClosedError()
        who = require_caller()
        options = self._options
        if options.seen_identity is not None:
            options.seen_identity(who)
        content = _echo(request) if options.synthetic_content is None else options.synthetic_content
        with AnswerBuilder(request, provider="mock") as answer:
            if options.pre_stream_delay_s > 0:
                await sleep(self._clock, options.pre_stream_delay_s)
            if options.forced_error is not None:
                raise options.forced_error
            if request.stream:
                answer.reasoning(_THINKING)
            for piece in _pieces(content, options.stream_chunks if options.stream_chunks > 0 else _CHUNKS):
                answer.content(piece)
            answer.finish("stop")
            return msgspec.structs.replace(
                answer.answer(), usage=_usage(request, content), cost=_cost(request, content)
            )

    async def close(self) -> None:
        """Answer nothing any more. Closing twice does nothing."""
        self._is_closed = True


def make(cfg: ConfigSnapshot, deps: Deps) -> MockLLM:
    """Return a mock with the fields of `MockOptions` in `cfg.extra`.

    Raises:
        LLMConfigError: an option is unknown or of another type.
    """
    return MockLLM(deps, _options(cfg.extra))


def _options(extra: Mapping[str, Any]) -> MockOptions:
    known = MockOptions.__struct_fields__
    unknown = sorted(extra.keys() - set(known))
    if unknown:
        raise LLMConfigError(f"llm.extra has no {', '.join(unknown)}; the mock knows {', '.join(known)}")
    for name, kinds in _KINDS.items():
        value = extra.get(name)
        if value is not None and not isinstance(value, kinds):
            raise LLMConfigError(f"llm.extra.{name} is a {type(value).__name__}, which it cannot be")
    given = {name: value for name, value in extra.items() if value is not None}
    if isinstance(given.get("forced_error"), str):
        given["forced_error"] = ConnectionError(given["forced_error"])
    return MockOptions(**given)


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "synthetic_content": (str,),
    "forced_error": (BaseException, str),
    "stream_chunks": (int,),
    "pre_stream_delay_s": (int, float),
}


def _echo(request: CompleteRequest) -> str:
    users = (message.content for message in reversed(request.messages) if message.role == Role.USER)
    last = next(users, None)
    if last is None:
        return "mock:empty"
    if last.text is not None:
        return f"mock:{last.text}"
    text = next((part.text for part in last.parts or () if isinstance(part, TextPart)), None)
    return "mock:multimodal" if text is None else f"mock:{text}"


def _pieces(content: str, most: int) -> Iterator[str]:
    """Yield the content in at most `most` pieces of nearly one length, none of them empty."""
    count = min(most, len(content))
    for at in range(count):
        yield content[len(content) * at // count : len(content) * (at + 1) // count]


def _characters(content: Content) -> int:
    if content.text is not None:
        return len(content.text)
    return sum(len(part.text) for part in content.parts or () if isinstance(part, TextPart))


def _usage(request: CompleteRequest, content: str) -> Usage:
    prompt, completion = _prompt_characters(request) // 4, len(content) // 4
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion, latency_ms=1)


def _cost(request: CompleteRequest, content: str) -> Cost:
    prompt, answer = _prompt_characters(request) * _INPUT_PRICE, len(content) * _OUTPUT_PRICE
    return Cost(input_cost=prompt, output_cost=answer, total_cost=prompt + answer, currency="USD")


def _prompt_characters(request: CompleteRequest) -> int:
    return sum(_characters(message.content) for message in request.messages)
