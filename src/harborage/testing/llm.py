"""A model for tests: it follows a script, streams on request, and keeps every request.

It replaces a `harborage.llm.LLMClient` wherever one is expected. It uses no network and never sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from harborage import codec
from harborage.identity import Quadruple, effective_quadruple
from harborage.llm import (
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    IdentityMissingError,
    OnDelta,
    Role,
    TextPart,
    ToolCallStructured,
)
from harborage.llm.scripted import ScriptExhaustedError

LLMLine: TypeAlias = CompleteResponse | str | Exception | Callable[[CompleteRequest], CompleteResponse]
"""One line of a script: an answer, the text of one, an error to raise, or a function of the request."""


class LLMCall(msgspec.Struct, frozen=True):
    """One call of the model: the identity, the request, and the response or error."""

    who: Quadruple
    request: CompleteRequest
    response: CompleteResponse | None = None
    error: Exception | None = None


class ScriptedLLM:
    """Answers a run's first request with the first line of its script, the second with the second, and so on.

    Every run follows the script from its beginning, also when many runs share the client; the ambient identity names
    the run. A run whose first request holds a key of `by_text` in a user's message follows that script instead, which
    gives spawned tasks their own. A streamed answer comes in pieces of `piece` characters.
    """

    def __init__(
        self, script: Iterable[LLMLine] = (), *, by_text: Mapping[str, Iterable[LLMLine]] | None = None, piece: int = 8
    ) -> None:
        self._script = tuple(script)
        self._by_text = {text: tuple(lines) for text, lines in ({} if by_text is None else by_text).items()}
        self._piece = max(1, piece)
        self._scripts: dict[Quadruple, tuple[LLMLine, ...]] = {}
        self._lines: dict[Quadruple, int] = {}
        self.calls: list[LLMCall] = []
        self.is_closed = False

    @property
    def requests(self) -> list[CompleteRequest]:
        """The requests, in order, of all runs."""
        return [call.request for call in self.calls]

    def of(self, run_id: str) -> list[LLMCall]:
        """Return the calls of one run."""
        return [call for call in self.calls if call.who.run_id == run_id]

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the run's next line.

        Raises:
            ClientClosedError: the client is closed.
            IdentityMissingError: no identity is bound.
            ScriptExhaustedError: there is no line left.
            Exception: the line itself.
        """
        if self.is_closed:
            raise ClientClosedError
        who = effective_quadruple()
        if who is None:
            raise IdentityMissingError
        try:
            response = _answer(self._next_line(who, request), request)
        except Exception as error:
            self.calls.append(LLMCall(who, request, error=error))
            raise
        self.calls.append(LLMCall(who, request, response))
        if request.stream:
            self._stream(response.reasoning, request.on_reasoning)
            self._stream(response.content, request.on_content)
        return response

    async def close(self) -> None:
        """Refuse every further call. Closing twice does nothing."""
        self.is_closed = True

    def _next_line(self, who: Quadruple, request: CompleteRequest) -> LLMLine:
        script = self._scripts.get(who)
        if script is None:
            script = self._scripts[who] = self._script_for(request)
        at = self._lines.get(who, 0)
        if at >= len(script):
            raise ScriptExhaustedError(
                f"run {who.run_id}: the script has {len(script)} line(s), and the model was called once more; add one",
                run_id=who.run_id,
            )
        self._lines[who] = at + 1
        return script[at]

    def _script_for(self, request: CompleteRequest) -> tuple[LLMLine, ...]:
        said = user_text(request)
        return next((lines for text, lines in self._by_text.items() if text in said), self._script)

    def _stream(self, text: str, on_delta: OnDelta | None) -> None:
        if on_delta is None:
            return
        for at in range(0, len(text), self._piece):
            on_delta(text[at : at + self._piece], False)
        on_delta("", True)


def says(content: str, *, reasoning: str = "") -> CompleteResponse:
    """Return an answer in text, which ends a run."""
    return CompleteResponse(content, reasoning=reasoning)


def calls_tools(
    *calls: tuple[str, Mapping[str, Any] | bytes],
    content: str = "",
    reasoning: str = "",
    ids: Sequence[str] | None = None,
) -> CompleteResponse:
    """Return an answer that calls tools, each given by its name and its arguments.

    Their ids are `call-0`, `call-1`, … unless `ids` are given; like those of some real providers, they begin anew with
    every answer.
    """
    named = [f"call-{at}" for at in range(len(calls))] if ids is None else ids
    made = tuple(
        ToolCallStructured(
            id=call_id, name=name, args=args if isinstance(args, bytes) else codec.encode(args), index=at
        )
        for at, ((name, args), call_id) in enumerate(zip(calls, named, strict=True))
    )
    return CompleteResponse(content, made, reasoning)


def user_text(request: CompleteRequest) -> str:
    """Return the text of the request's user messages, a line break between two of them."""
    texts: list[str] = []
    for message in request.messages:
        if message.role is Role.USER:
            parts = [part.text for part in message.content.parts or () if isinstance(part, TextPart)]
            texts += parts if message.content.text is None else [message.content.text]
    return "\n".join(texts)


def _answer(line: LLMLine, request: CompleteRequest) -> CompleteResponse:
    match line:
        case Exception():
            raise line
        case str():
            return says(line)
        case CompleteResponse():
            return line
        case _:
            return line(request)
