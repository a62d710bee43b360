"""The two clients of a cassette: one that records what another client does, one that answers from what was recorded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import HarborageError
from harborage.identity import IdentityMissingError, effective_quadruple
from harborage.llm import errors as llm_errors
from harborage.llm.cassette.errors import CassetteError
from harborage.llm.cassette.normal import Asked, asked, marked, unmarked
from harborage.llm.cassette.scrubbing import Scrubber, secrets_of
from harborage.llm.cassette.tape import Answer, Call, Cassette, Exchange, Failure, Streamed
from harborage.llm.client import CompleteRequest, CompleteResponse, Cost, LLMClient, OnDelta, ToolCallStructured, Usage
from harborage.llm.errors import ClientClosedError, LLMError, ProviderError
from harborage.llm.streaming import AnswerBuilder

__all__ = ["Recording", "Replaying", "record", "replay"]

_CONTENT: Final = "content"
_REASONING: Final = "reasoning"
_KINDS: Final[Mapping[str, type[LLMError]]] = {
    name: kind
    for name, kind in vars(llm_errors).items()
    if isinstance(kind, type) and issubclass(kind, LLMError) and name in llm_errors.__all__
}


def record(
    client: LLMClient,
    path: str | os.PathLike[str],
    *,
    model: str = "",
    secrets: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Recording:
    """A client that does what `client` does and writes it to a new cassette at `path`.

    `model` is noted as the one recorded. `secrets` are hidden wherever they stand, and so are the values of variables
    in `environ` that are called like secrets.
    """
    return Recording(client, Cassette(path, model=model), Scrubber([*secrets, *secrets_of(environ)]))


def replay(path: str | os.PathLike[str], *, environ: Mapping[str, str] = os.environ) -> Replaying:
    """A client that answers from the cassette at `path` and reaches nobody.

    Raises:
        CassetteInvalidError: there is no such file, or it is no cassette.
    """
    return Replaying(Cassette.load(path), Scrubber(secrets_of(environ)))


class Recording:
    """Passes every call on and keeps what came of it, failures that a provider tells included."""

    def __init__(self, inner: LLMClient, cassette: Cassette, scrubber: Scrubber) -> None:
        self._inner = inner
        self._scrubber = scrubber
        self._is_closed = False
        self.cassette = cassette

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """What the inner client answers."""
        if self._is_closed:
            raise ClientClosedError
        heard = _Heard()
        wanted = asked(request, self._scrubber)
        try:
            response = await self._inner.complete(heard.listening(request))
        except (ClientClosedError, CassetteError):
            raise
        except LLMError as error:
            self._keep(Exchange(wanted, heard.streamed(), failure=_failure(error)))
            raise
        self._keep(Exchange(wanted, heard.streamed(), answer=_answer(response)))
        return response

    async def close(self) -> None:
        """Close the inner client. Closing twice does nothing."""
        if not self._is_closed:
            self._is_closed = True
            await self._inner.close()

    def _keep(self, exchange: Exchange) -> None:
        self.cassette.add(_clean(exchange, self._scrubber))


class Replaying:
    """Answers from a cassette: streams what was streamed, raises what was raised, and waits for nothing."""

    def __init__(self, cassette: Cassette, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._is_closed = False
        self.cassette = cassette

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """What was answered when this was recorded.

        Raises:
            ClientClosedError, IdentityMissingError: as for every client.
            CassetteMissError: it was not recorded.
            LLMError: what the recorded call failed with.
        """
        if self._is_closed:
            raise ClientClosedError
        if effective_quadruple() is None:
            raise IdentityMissingError
        wanted = asked(request, self._scrubber)
        exchange = self.cassette.take(wanted)
        with AnswerBuilder(request, provider="cassette") as answer:
            for kind, piece in _pieces(exchange, wanted):
                (answer.reasoning if kind == _REASONING else answer.content)(piece)
            if exchange.failure is not None:
                raise _error(exchange.failure)
        return _response(Answer() if exchange.answer is None else exchange.answer, wanted.ids)

    async def close(self) -> None:
        """Answer nothing any more. Closing twice does nothing."""
        self._is_closed = True


class _Heard:
    """What one call streamed."""

    def __init__(self) -> None:
        self._groups: list[tuple[str, list[str]]] = []

    def listening(self, request: CompleteRequest) -> CompleteRequest:
        """The request with listeners that pass on what they hear."""
        if not request.stream:
            return request
        return replace(
            request,
            on_content=self._listener(_CONTENT, request.on_content),
            on_reasoning=self._listener(_REASONING, request.on_reasoning),
            on_reset=lambda: self._start_again(request),
        )

    def streamed(self) -> tuple[Streamed, ...]:
        """The pieces, those of one kind together as long as no other came between."""
        return tuple(Streamed(kind, tuple(pieces)) for kind, pieces in self._groups)

    def _listener(self, kind: str, passed_on: OnDelta | None) -> OnDelta | None:
        if passed_on is None:
            return None

        def hear(delta: str, done: bool) -> None:
            if delta:
                if not self._groups or self._groups[-1][0] != kind:
                    self._groups.append((kind, []))
                self._groups[-1][1].append(delta)
            passed_on(delta, done)

        return hear

    def _start_again(self, request: CompleteRequest) -> None:
        self._groups.clear()
        if request.on_reset is not None:
            request.on_reset()


def _answer(response: CompleteResponse) -> Answer:
    return Answer(
        content=response.content,
        reasoning=response.reasoning,
        tool_calls=tuple(Call(one.id, one.name, one.args.decode("utf-8", "replace")) for one in response.tool_calls),
        finish_reason=response.finish_reason,
        usage=_said(response.usage),
        cost=_said(response.cost),
    )


def _said(figures: Usage | Cost) -> dict[str, Any]:
    """The figures that are not nothing."""
    plain: dict[str, Any] = codec.to_plain(figures)
    return {name: value for name, value in plain.items() if value}


def _clean(exchange: Exchange, scrubber: Scrubber) -> Exchange:
    """The exchange without secrets, and with marks where the answer repeats ids of the request."""
    ids = exchange.asked.ids

    def clean(text: str) -> str:
        return marked(scrubber.text(text), ids)

    answer, failure = exchange.answer, exchange.failure
    if answer is not None:
        calls = tuple(replace(one, args=clean(one.args)) for one in answer.tool_calls)
        answer = replace(
            answer,
            content=clean(answer.content),
            reasoning=clean(answer.reasoning),
            tool_calls=calls,
            usage=scrubber.plain(answer.usage),
        )
    if failure is not None:
        failure = replace(failure, message=scrubber.text(failure.message), fields=scrubber.plain(failure.fields))
    stream = tuple(Streamed(one.kind, _recut(one.pieces, clean("".join(one.pieces)))) for one in exchange.stream)
    return Exchange(replace(exchange.asked, ids=()), stream, answer, failure)


def _recut(pieces: Sequence[str], whole: str) -> tuple[str, ...]:
    """`whole` in pieces of the old lengths; the last one takes what is left over."""
    if whole == "".join(pieces):
        return tuple(pieces)
    cut: list[str] = []
    at = 0
    for piece in pieces[:-1]:
        cut.append(whole[at : at + len(piece)])
        at += len(piece)
    return tuple(piece for piece in (*cut, whole[at:]) if piece)


def _pieces(exchange: Exchange, wanted: Asked) -> Iterable[tuple[str, str]]:
    """What is streamed: as it was, or the answer in one piece where it was recorded without."""
    for one in exchange.stream:
        for piece in _recut(one.pieces, unmarked("".join(one.pieces), wanted.ids)):
            yield one.kind, piece
    streamed = {one.kind for one in exchange.stream}
    if exchange.answer is None:
        return
    if _REASONING not in streamed:
        yield _REASONING, unmarked(exchange.answer.reasoning, wanted.ids)
    if _CONTENT not in streamed:
        yield _CONTENT, unmarked(exchange.answer.content, wanted.ids)


def _response(answer: Answer, ids: Sequence[str]) -> CompleteResponse:
    calls = tuple(
        ToolCallStructured(id=one.id, name=one.name, args=unmarked(one.args, ids).encode(), index=at)
        for at, one in enumerate(answer.tool_calls)
    )
    return CompleteResponse(
        content=unmarked(answer.content, ids),
        tool_calls=calls,
        reasoning=unmarked(answer.reasoning, ids),
        cost=msgspec.convert(answer.cost, Cost),
        usage=msgspec.convert(answer.usage, Usage),
        finish_reason=answer.finish_reason,
    )


def _failure(error: LLMError) -> Failure:
    """An error by its nearest class that is known everywhere."""
    kind = next(one.__name__ for one in type(error).__mro__ if one.__name__ in _KINDS)
    fields = {
        name: value for name, value in vars(error).items() if value is None or isinstance(value, str | int | float)
    }
    return Failure(kind, str(error), fields)


def _error(failure: Failure) -> LLMError:
    """The recorded error anew. A wait that a provider asked for has long passed."""
    kind = _KINDS.get(failure.kind, ProviderError)
    error = kind.__new__(kind)
    HarborageError.__init__(error, failure.message)
    if isinstance(error, ProviderError):
        ProviderError.__init__(error, failure.message)
    for name, value in failure.fields.items():
        setattr(error, name, value)
    if isinstance(error, ProviderError) and error.retry_after_s is not None:
        error.retry_after_s = 0.0
    return error
