"""`POST /v1/chat/completions`: an agent as a model that chats. The client keeps the conversation, and sends it all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from harborage.errors import error_text
from harborage.ids import new_id
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.runtime.pending import Question
from harborage.server.following import (
    Called,
    Decided,
    Ended,
    Going,
    Reasoned,
    Rejected,
    Returned,
    Shown,
    Wrote,
    follow,
)
from harborage.server.http import json_response
from harborage.server.open_requests import frame, limited
from harborage.server.openai.answering import asking, ending_comment, find_mark, find_pause, is_shown
from harborage.server.openai.errors import RequestRefusedError, bad_input
from harborage.server.openai.inputs import read_chat
from harborage.server.openai.options import CHAT, check_format, check_options, output_of
from harborage.server.openai.requests import answer_run, asked_of, found_run, left, outcome, start_run
from harborage.server.openai.snapshot import Snapshot, Text, ToolCall, read_snapshot, with_values
from harborage.server.questions import Words, read_words, takes_yes_or_no

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.run import Run
    from harborage.server.open_requests import OpenRequests
    from harborage.server.openai.inputs import Said
    from harborage.server.openai.requests import Asked
    from harborage.server.services import Caller, Services
    from harborage.server.signing import Key

DONE: Final = b"data: [DONE]\n\n"
_NOT_UNDERSTOOD: Final = "That is neither a yes nor a no."
_NOT_SHOWN: Final = "Your last message came without this question in full before it, so it is asked once more."
_MOST_SHOWN: Final = 500


class _AskAgainError(Exception):
    """The words of the user do not answer the question, so it is asked again."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)


class Chat:
    """Answers requests for completions of a chat."""

    def __init__(self, services: Services, requests: OpenRequests) -> None:
        self._services = services
        self._requests = requests

    async def complete(self, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
        """Return the answer to a request.

        Raises:
            Exception: whatever refuses or fails it.
        """
        check_options(fields, CHAT)
        asked = asked_of(self._services, request, caller, fields, stores=False)
        check_format(asked.agent, fields.get("response_format"), "response_format")
        includes_usage = _includes_usage(fields)
        said = read_chat(fields.get("messages"))
        try:
            going = await self._begin(asked, said)
        except _AskAgainError as again:
            return self._ask_again(asked, again.text, includes_usage=includes_usage)
        if asked.streams:
            chunks = self._stream(asked, going, includes_usage=includes_usage)
            return self._requests.stream(chunks, partial(left, self._services, asked, going.run), going.close)
        snapshot = await outcome(self._services, self._requests, request, asked, going)
        completion = _completion(snapshot, asked, await self._services.keys.current())
        return json_response(completion, headers={"x-request-id": going.run.id})

    async def _begin(self, asked: Asked, said: Said) -> Going:
        """Start the run of a request, or answer the question that the assistant's last message is.

        Raises:
            _AskAgainError: it is not answered by these words.
        """
        mark = None if said.last is None else await find_mark(self._services.keys, said.before)
        if mark is None or said.last is None:
            return await start_run(self._services, asked, said)
        if said.last.media or said.last.artifacts:
            raise bad_input("an answer to a question of a run is words; leave the file out", "messages")
        run = await found_run(self._services, asked.caller, mark.run_id)
        pause, words = await find_pause(self._services, run, mark.token), said.last.text
        answer = read_words(words) if takes_yes_or_no(Question(pause)) else Words(words)
        if not is_shown(said.before, Question(pause)):
            raise await self._again(run, pause, _NOT_SHOWN)
        if answer is None:
            raise await self._again(run, pause, _NOT_UNDERSTOOD)
        try:
            return await answer_run(self._services, asked, run, {pause.token: answer})
        except PayloadInvalidError as error:
            raise await self._again(run, pause, error_text(error)) from error

    async def _again(self, run: Run[Any], pause: Pause, problem: str) -> _AskAgainError:
        """Return the error that asks a question once more, with why."""
        return _AskAgainError(asking(await self._services.keys.current(), run.id, Question(pause), problem))

    def _ask_again(self, asked: Asked, text: str, *, includes_usage: bool) -> Response:
        """The answer that is the question once more; no model was asked for it."""
        head = self._head(new_id(), asked)
        if not asked.streams:
            return json_response(
                {**head, "object": "chat.completion", "choices": [_choice(text)], "usage": _usage_of(None)}
            )

        async def chunks() -> AsyncGenerator[bytes, None]:
            writer = _Writer(head, includes_usage=includes_usage)
            yield writer.chunk({"role": "assistant", "content": text})
            yield writer.chunk({}, finish="stop")
            if includes_usage:
                yield writer.usage(None)
            yield DONE

        return self._requests.stream(chunks())

    def _head(self, run_id: str, asked: Asked) -> dict[str, Any]:
        created = int(self._services.clock.now().timestamp())
        return {"id": f"chatcmpl-{run_id}", "created": created, "model": asked.agent.name}

    async def _stream(self, asked: Asked, going: Going, *, includes_usage: bool) -> AsyncGenerator[bytes, None]:
        writer = _Writer(
            self._head(going.run.id, asked), includes_usage=includes_usage, is_text=output_of(asked.agent) is None
        )
        yield writer.chunk({"role": "assistant", "content": ""}, extra={"run_id": going.run.id})
        events = follow(self._services, going)
        try:
            async for shown in limited(events, self._services.options.answer_timeout):
                for one in writer.show(await with_values(self._services, asked.caller, going.run, shown)):
                    yield one
        except TimeoutError:
            yield frame(too_late(going.run.id).body)
            yield DONE
            return
        snapshot = await read_snapshot(self._services, asked.caller, going.run, going.since)
        try:
            rest = writer.rest(snapshot, await self._services.keys.current())
        except RequestRefusedError as error:
            yield frame(error.body)
        else:
            if rest:
                yield writer.chunk({"content": rest})
            yield writer.chunk({}, finish="stop", extra=extra_of(snapshot))
            if includes_usage:
                yield writer.usage(snapshot)
        yield DONE


class _Writer:
    """Makes chunks of what a run does. What the model writes beside its calls stands before the answer; an answer that
    is no text comes whole, because only then it is known to be valid."""

    def __init__(self, head: dict[str, Any], *, includes_usage: bool, is_text: bool = True) -> None:
        self._head = {**head, "object": "chat.completion.chunk"}
        self._includes_usage = includes_usage
        self._is_text = is_text
        self._written = ""
        """What the model has written of the answer that it is at, or was at last."""
        self._is_whole = False

    def chunk(self, delta: dict[str, Any], *, finish: str | None = None, extra: dict[str, Any] | None = None) -> bytes:
        """One chunk."""
        value = {**self._head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        if self._includes_usage:
            value["usage"] = None
        if extra is not None:
            value["harborage"] = extra
        return frame(value)

    def usage(self, snapshot: Snapshot | None) -> bytes:
        """The last chunk of a client that asked for the usage."""
        return frame({**self._head, "choices": [], "usage": _usage_of(snapshot)})

    def show(self, shown: Shown) -> list[bytes]:
        """The chunks that show one thing."""
        match shown:
            case Wrote():
                return [self.chunk({"content": self._lead(shown.text)})] if self._is_text else []
            case Reasoned():
                return [self.chunk({"reasoning_content": shown.text})]
            case Ended():
                self._is_whole = self._is_whole or bool(self._written)
                return []
            case Decided():
                return []
            case Called():
                args = shown.args or "{}"
                call = {"id": shown.id, "name": shown.tool, "arguments": args}
                return [self._told(f"{shown.tool}({args})", call)]
            case Returned():
                call = {"id": shown.id, "name": shown.tool, **_came_of(shown.output, shown.error)}
                return [self._told(f"→ {_shortened(shown.error or shown.output or '')}", call)]
            case Rejected():
                call = {"id": shown.id, "name": shown.tool, "error": f"rejected: {shown.reason}"}
                return [self._told(f"{shown.tool} was rejected: {_shortened(shown.reason)}", call)]
            case _ as unreachable:
                assert_never(unreachable)

    def _told(self, line: str, call: dict[str, Any]) -> bytes:
        """A chunk that shows a call, as a line where clients show what a model thinks: none of them executes that."""
        return self.chunk({"reasoning_content": f"{line}\n"}, extra={"tool_calls": [call]})

    def _lead(self, text: str) -> str:
        """A piece of text, apart from what was said before its answer began."""
        is_new, self._is_whole = self._is_whole, False
        self._written = text if is_new else f"{self._written}{text}"
        return f"\n\n{text}" if is_new else text

    def rest(self, snapshot: Snapshot, key: Key) -> str:
        """What is still to be said at the end.

        Raises:
            RequestRefusedError: the run did not reach its goal.
        """
        text, written = content_of(snapshot, key, is_streamed=True), self._written
        if written and (text == written or (not self._is_whole and text.startswith(written))):
            return text[len(written) :]
        return f"\n\n{text}" if written and text else text


def content_of(snapshot: Snapshot, key: Key, *, is_streamed: bool = False) -> str:
    """Return what the assistant says in the end: the answer, or the question that waits, signed with `key`.

    Raises:
        RequestRefusedError: there is neither.
    """
    if snapshot.answer is not None:
        return snapshot.answer
    if snapshot.questions:
        beside = "\n\n".join(one.text for one in snapshot.parts if isinstance(one, Text) and not one.token)
        question = ending_comment(beside) + asking(key, snapshot.run_id, snapshot.questions[0])
        return "\n\n".join(filter(None, ["" if is_streamed else beside, question]))
    if not snapshot.is_over:
        raise too_late(snapshot.run_id)
    status = 409 if snapshot.is_cancelled else 500
    text = f"run {snapshot.run_id} did not reach its goal: {snapshot.error or snapshot.status}"
    raise RequestRefusedError(status, text, code=snapshot.reason or str(snapshot.status))


def too_late(run_id: str) -> RequestRefusedError:
    """The refusal of a request whose run takes longer than it may wait."""
    text = f"run {run_id} goes on, and took longer than this server lets a request wait: GET /v1/responses/{run_id}"
    return RequestRefusedError(504, text, code="run_in_progress")


def _completion(snapshot: Snapshot, asked: Asked, key: Key) -> dict[str, Any]:
    text = content_of(snapshot, key)
    return {
        "id": f"chatcmpl-{snapshot.run_id}",
        "object": "chat.completion",
        "created": int(snapshot.started_at.timestamp()),
        "model": asked.agent.name,
        "choices": [_choice(text)],
        "usage": _usage_of(snapshot),
        "harborage": extra_of(snapshot),
    }


def _choice(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}


def _usage_of(snapshot: Snapshot | None) -> dict[str, Any]:
    if snapshot is None:
        return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    used = snapshot.usage
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def extra_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return what clients of Harborage read beside what OpenAI's have: the run, its calls, what it cost, what waits."""
    waiting = bool(snapshot.questions)
    return {
        "run_id": snapshot.run_id,
        "status": snapshot.condition or ("waiting" if waiting else str(snapshot.status)),
        "steps": snapshot.steps,
        "tool_calls": [_called(one) for one in snapshot.calls],
        "cost": snapshot.usage.cost,
        "pending": [
            {"token": one.token, "run_id": one.run_id, "reason": str(one.reason), "tool": one.tool, "args": one.args}
            for one in snapshot.questions
        ],
    }


def _called(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.tool, "arguments": call.args, **_came_of(call.output, call.error)}


def _came_of(output: str | None, error: str) -> dict[str, Any]:
    return {"error": error} if error else {} if output is None else {"output": output}


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…"


def _includes_usage(fields: dict[str, Any]) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    known = {"include_usage": bool, "include_obfuscation": bool}
    try:
        options = msgspec.convert(options, dict[str, bool])
    except msgspec.ValidationError as error:
        raise bad_input("'stream_options' takes an object of true and false", "stream_options") from error
    if unknown := options.keys() - known.keys():
        raise bad_input(f"stream_options has no {min(unknown)!r}", "stream_options", code="unknown_parameter")
    if not fields.get("stream"):
        raise bad_input("'stream_options' needs stream=true", "stream_options")
    return bool(options.get("include_usage", False))
