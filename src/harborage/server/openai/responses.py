"""`/v1/responses`: an agent whose runs are responses. The id of a response is that of its run, and the run is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harborage.runtime.durable.engine import RunEndedError, RunFailedError
from harborage.runtime.history.builder import build_history
from harborage.runtime.messages import Message, earlier_messages, messages_of
from harborage.server.following import follow
from harborage.server.http import json_response
from harborage.server.open_requests import done_within, limited
from harborage.server.openai.chat import too_late
from harborage.server.openai.errors import RequestRefusedError, bad_input
from harborage.server.openai.inputs import read_input
from harborage.server.openai.items import mark_of, response_head, response_of
from harborage.server.openai.options import (
    RESPONSES,
    check_format,
    check_options,
    flag_option,
    output_of,
    text_option,
)
from harborage.server.openai.requests import answer_run, asked_of, found_run, left, outcome, start_run
from harborage.server.openai.response_stream import ResponseWriter
from harborage.server.openai.snapshot import Snapshot, read_snapshot, with_values
from harborage.server.questions import Verdict, Words, read_words, takes_yes_or_no

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from harborage.runtime.run import Run
    from harborage.server.following import Going
    from harborage.server.open_requests import OpenRequests
    from harborage.server.openai.inputs import Said
    from harborage.server.openai.requests import Asked
    from harborage.server.services import Caller, Services

_ECHOED: Final = ("background", "instructions", "metadata", "previous_response_id", "store", "text", "user")
_CANCELLED_WITHIN_S: Final = 10.0


class Responses:
    """Answers requests for responses."""

    def __init__(self, services: Services, requests: OpenRequests) -> None:
        self._services = services
        self._requests = requests

    async def create(self, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
        """Start a run, or answer the question of one; return its response.

        Raises:
            Exception: whatever refuses or fails it.
        """
        check_options(fields, RESPONSES)
        asked = asked_of(self._services, request, caller, fields, stores=True)
        is_background = flag_option(fields, "background")
        if is_background and not asked.stores:
            raise bad_input("'background' needs store=true", "background")
        _check_text(asked, fields.get("text"))
        said = read_input(fields.get("input"), text_option(fields, "instructions"))
        going = await self._begin(asked, said)
        echoed: dict[str, Any] = {name: fields[name] for name in _ECHOED if name in fields}
        headers = {"x-request-id": going.run.id}
        if asked.streams:
            events = self._stream(asked, going, echoed)
            return self._requests.stream(events, partial(left, self._services, asked, going.run), going.close)
        if is_background:
            snapshot = await read_snapshot(self._services, caller, going.run, going.since)
        else:
            snapshot = await outcome(self._services, self._requests, request, asked, going)
        return json_response(response_of(snapshot, echoed), headers=headers)

    async def retrieve(self, request: Request, caller: Caller, run_id: str) -> Response:
        """Return the response of a run as it stands."""
        if request.query_params.get("stream", "false") not in ("false", "0", ""):
            raise bad_input("a response that was begun is not streamed again: read GET /v1/events?run=ID", "stream")
        run = await found_run(self._services, caller, run_id)
        return json_response(response_of(await read_snapshot(self._services, caller, run), {}))

    async def cancel(self, caller: Caller, run_id: str) -> Response:
        """Cancel a run at once, and return its response; one that has ended stays as it is."""
        run = await found_run(self._services, caller, run_id)
        if not (await run.status()).phase.is_final:
            await self._cancelled(run)
        return json_response(response_of(await read_snapshot(self._services, caller, run), {}))

    async def _cancelled(self, run: Run[Any]) -> None:
        try:
            await run.cancel(hard=True)
            await done_within(run.finished(), min(_CANCELLED_WITHIN_S, self._services.options.answer_timeout))
        except (RunEndedError, RunFailedError):
            return  # it has ended, which was asked for

    async def _begin(self, asked: Asked, said: Said) -> Going:
        previous = text_option(asked.fields, "previous_response_id")
        if said.approvals:
            return await self._approve(asked, said, previous)
        if not previous:
            return await start_run(self._services, asked, said, param="input")
        run = await found_run(self._services, asked.caller, previous)
        if (await run.status()).phase.is_final:
            return await start_run(self._services, asked, said, await self._before(run), param="input")
        return await self._answer(asked, said, run)

    async def _before(self, run: Run[Any]) -> tuple[Message, ...]:
        """What was said until the end of a run, and in those before it."""
        record = await run.history()
        history = build_history(record)
        return (*earlier_messages(record), *messages_of(history, history.finish))

    async def _approve(self, asked: Asked, said: Said, previous: str) -> Going:
        """Answer the requests for approval that the input names."""
        if not said.is_answered_last:
            raise bad_input("nothing may follow mcp_approval_response: send what you say next afterwards", "input")
        marks = {mark_of(one.request): one for one in said.approvals}
        runs = {mark.run_id for mark in marks} | ({previous} - {""})
        if len(runs) > 1:
            raise bad_input("the approvals are of one run, which is that of previous_response_id", "input")
        run = await found_run(self._services, asked.caller, runs.pop())
        answers = {mark.token: Verdict(one.approves, one.reason) for mark, one in marks.items()}
        return await answer_run(self._services, asked, run, answers)

    async def _answer(self, asked: Asked, said: Said, run: Run[Any]) -> Going:
        """Answer the oldest question of a run in words."""
        known = await read_snapshot(self._services, asked.caller, run)
        if not known.questions or said.last is None:
            text = f"response {run.id} goes on; wait for its end, or send its run a message by /v1/control/user_message"
            raise RequestRefusedError(409, text, code="response_in_progress", param="previous_response_id")
        if said.last.media or said.last.artifacts:
            raise bad_input("an answer to a question of a run is words; leave the file out", "input")
        pause, words = known.questions[0].pause, said.last.text
        answer = read_words(words) if takes_yes_or_no(known.questions[0]) else Words(words)
        if answer is None:
            text = f"response {run.id} waits for an answer: send mcp_approval_response, approve or reject because …"
            raise RequestRefusedError(409, text, code="waiting_for_answer", param="input")
        return await answer_run(self._services, asked, run, {pause.token: answer})

    async def _stream(self, asked: Asked, going: Going, echoed: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        created = int(self._services.clock.now().timestamp())
        writer = ResponseWriter(
            response_head(going.run.id, asked.agent.name, created, echoed),
            echoed,
            is_text=output_of(asked.agent) is None,
            decided=going.decided,
        )
        yield writer.begin()
        try:
            async for shown in limited(follow(self._services, going), self._services.options.answer_timeout):
                if events := writer.show(await with_values(self._services, asked.caller, going.run, shown)):
                    yield events
        except TimeoutError:
            yield writer.fail(too_late(going.run.id))
            return
        yield writer.finish(await self._snapshot(asked, going))

    async def _snapshot(self, asked: Asked, going: Going) -> Snapshot:
        return await read_snapshot(self._services, asked.caller, going.run, going.since)


def _check_text(asked: Asked, text: Any) -> None:
    """Accept how the text of a response shall be, where it is so."""
    if text is None:
        return
    if not isinstance(text, dict) or text.keys() - {"format", "verbosity"}:
        raise bad_input("'text' takes an object with format and verbosity", "text")
    if text.get("verbosity") not in (None, "medium"):
        raise bad_input(
            "text.verbosity is the agent's own; leave it out", "text.verbosity", code="unsupported_parameter"
        )
    check_format(asked.agent, text.get("format"), "text.format")
