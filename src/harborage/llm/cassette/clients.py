"""The two clients of a cassette: one records another client, one answers from the recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.events.redaction import secrets_of
from harborage.events.scrubbing import Scrubber
from harborage.identity import IdentityMissingError, effective_quadruple
from harborage.llm.cassette.cassette import Answer, Call, Cassette, CassetteError, Exchange, Failure, Streamed
from harborage.llm.cassette.requests import NormalRequest, mark_ids, normalise_request, unmark_ids
from harborage.llm.client import CompleteRequest, CompleteResponse, Cost, LLMClient, OnDelta, ToolCallStructured, Usage
from harborage.llm.errors import ERRORS, ClientClosedError, LLMError, ProviderError, record_error, restore_error
from harborage.llm.streaming import AnswerBuilder

_CONTENT: Final = "content"
_REASONING: Final = "reasoning"


def record(
    client: LLMClient,
    path: str | os.PathLike[str],
    *,
    model: str = "",
    secrets: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Recording:
    """Return a client that passes calls on to `client` and records them on a new cassette at `path`.

    `model` is noted as the recorded one. `secrets` are hidden wherever they occur, and so are the values of variables
    in `environ` whose names are those of secrets.
    """
    return Recording(client, Cassette(path, model=model), Scrubber([*secrets, *secrets_of(environ)]))


def replay(path: str | os.PathLike[str], *, environ: Mapping[str, str] = os.environ) -> Replaying:
    """Return a client that answers from the cassette at `path` and makes no call.

    Raises:
        CassetteInvalidError: there is no such file, or it is no cassette.
    """
    return Replaying(Cassette.load(path), Scrubber(secrets_of(environ)))


class Recording:
    """Passes every call on and records its answer or its failure."""

    def __init__(self, inner: LLMClient, cassette: Cassette, scrubber: Scrubber) -> None:
        self._inner = inner
        self._scrubber = scrubber
        self._is_closed = False
        self.cassette = cassette

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the answer of the inner client, recorded."""
        if self._is_closed:
            raise ClientClosedError
        deltas = _Deltas()
        wanted = normalise_request(request, self._scrubber)
        try:
            response = await self._inner.complete(deltas.record(request))
        except (ClientClosedError, CassetteError):
            raise
        except LLMError as error:
            self._keep(Exchange(wanted, deltas.streamed(), failure=_failure(error)))
            raise
        self._keep(Exchange(wanted, deltas.streamed(), answer=_answer(response)))
        return response

    async def close(self) -> None:
        """Close the inner client. Closing twice does nothing."""
        if not self._is_closed:
            self._is_closed = True
            await self._inner.close()

    def _keep(self, exchange: Exchange) -> None:
        self.cassette.add(_clean(exchange, self._scrubber))


class Replaying:
    """Answers from a cassette: streams and raises as recorded, without waiting."""

    def __init__(self, cassette: Cassette, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._is_closed = False
        self.cassette = cassette

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the recorded answer.

        Raises:
            ClientClosedError, IdentityMissingError: as for every client.
            CassetteMissError: it was not recorded.
            LLMError: the recorded call failed with it.
        """
        if self._is_closed:
            raise ClientClosedError
        if effective_quadruple() is None:
            raise IdentityMissingError
        wanted = normalise_request(request, self._scrubber)
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


class _Deltas:
    """The deltas that one call streamed."""

    def __init__(self) -> None:
        self._groups: list[tuple[str, list[str]]] = []

    def record(self, request: CompleteRequest) -> CompleteRequest:
        """Return the request with callbacks that record the deltas and pass them on."""
        if not request.stream:
            return request
        return replace(
            request,
            on_content=self._callback(_CONTENT, request.on_content),
            on_reasoning=self._callback(_REASONING, request.on_reasoning),
            on_reset=lambda: self._restart(request),
        )

    def streamed(self) -> tuple[Streamed, ...]:
        """Return the deltas, grouped by kind in the order in which they came."""
        return tuple(Streamed(kind, tuple(pieces)) for kind, pieces in self._groups)

    def _callback(self, kind: str, passed_on: OnDelta | None) -> OnDelta | None:
        if passed_on is None:
            return None

        def on_delta(delta: str, done: bool) -> None:
            if delta:
                if not self._groups or self._groups[-1][0] != kind:
                    self._groups.append((kind, []))
                self._groups[-1][1].append(delta)
            passed_on(delta, done)

        return on_delta

    def _restart(self, request: CompleteRequest) -> None:
        self._groups.clear()
        if request.on_reset is not None:
            request.on_reset()


def _answer(response: CompleteResponse) -> Answer:
    return Answer(
        content=response.content,
        reasoning=response.reasoning,
        tool_calls=tuple(Call(one.id, one.name, one.args.decode("utf-8", "replace")) for one in response.tool_calls),
        finish_reason=response.finish_reason,
        usage=_nonzero(response.usage),
        cost=_nonzero(response.cost),
    )


def _nonzero(figures: Usage | Cost) -> dict[str, Any]:
    """Return the figures that are not zero."""
    plain: dict[str, Any] = codec.to_plain(figures)
    return {name: value for name, value in plain.items() if value}


def _clean(exchange: Exchange, scrubber: Scrubber) -> Exchange:
    """Return the exchange without secrets, and with marks where the answer repeats ids of the request."""
    ids = exchange.request.ids

    def clean(text: str) -> str:
        return mark_ids(scrubber.text(text), ids)

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
    return Exchange(replace(exchange.request, ids=()), stream, answer, failure)


def _recut(pieces: Sequence[str], whole: str) -> tuple[str, ...]:
    """Return `whole` in pieces of the old lengths; the last one takes the rest."""
    if whole == "".join(pieces):
        return tuple(pieces)
    cut: list[str] = []
    at = 0
    for piece in pieces[:-1]:
        cut.append(whole[at : at + len(piece)])
        at += len(piece)
    return tuple(piece for piece in (*cut, whole[at:]) if piece)


def _pieces(exchange: Exchange, wanted: NormalRequest) -> Iterable[tuple[str, str]]:
    """Yield the deltas as recorded; an answer that was recorded without any comes in one piece."""
    for one in exchange.stream:
        for piece in _recut(one.pieces, unmark_ids("".join(one.pieces), wanted.ids)):
            yield one.kind, piece
    streamed = {one.kind for one in exchange.stream}
    if exchange.answer is None:
        return
    if _REASONING not in streamed:
        yield _REASONING, unmark_ids(exchange.answer.reasoning, wanted.ids)
    if _CONTENT not in streamed:
        yield _CONTENT, unmark_ids(exchange.answer.content, wanted.ids)


def _response(answer: Answer, ids: Sequence[str]) -> CompleteResponse:
    calls = tuple(
        ToolCallStructured(id=one.id, name=one.name, args=unmark_ids(one.args, ids).encode(), index=at)
        for at, one in enumerate(answer.tool_calls)
    )
    return CompleteResponse(
        content=unmark_ids(answer.content, ids),
        tool_calls=calls,
        reasoning=unmark_ids(answer.reasoning, ids),
        cost=msgspec.convert(answer.cost, Cost),
        usage=msgspec.convert(answer.usage, Usage),
        finish_reason=answer.finish_reason,
    )


def _failure(error: LLMError) -> Failure:
    kind, fields = record_error(error)
    return Failure(kind, str(error), fields)


def _error(failure: Failure) -> LLMError:
    """Return the recorded error. The wait that a provider asked for is over."""
    kind = failure.kind if failure.kind in ERRORS else "ProviderError"
    error = restore_error(kind, failure.message, failure.fields)
    if isinstance(error, ProviderError) and error.retry_after_s is not None:
        error.retry_after_s = 0.0
    return error
