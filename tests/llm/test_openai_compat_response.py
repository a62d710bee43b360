"""What becomes of what servers send: events cut anywhere, and answers in every shape that is about."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import (
    AnswerBuilder,
    CompleteRequest,
    CompleteResponse,
    IncompleteAnswerError,
    MalformedAnswerError,
    ProviderUnavailableError,
    RateLimitedError,
)
from harborage.llm.http_errors import error_in_stream
from harborage.llm.openai_compat.response import ResponseReader
from harborage.llm.transport import EventSplitter
from tests.kit.tables import each_row


class Heard(list[tuple[str, bool]]):
    def __call__(self, delta: str, done: bool) -> None:
        self.append((delta, done))


class Reading:
    """One answer that is being read, and the deltas of its callbacks."""

    def __init__(self) -> None:
        self.content, self.thinking = Heard(), Heard()
        request = CompleteRequest(stream=True, on_content=self.content, on_reasoning=self.thinking)
        self.builder = AnswerBuilder(request, provider="acme", model="m")
        self.reader = ResponseReader(
            self.builder, lambda body: error_in_stream(body, provider="acme", model="m"), provider="acme", model="m"
        )

    def take(self, *deltas: dict[str, Any], finish: str | None = "stop") -> CompleteResponse:
        for delta in deltas:
            self.chunk({"choices": [{"delta": delta}]})
        if finish:
            self.chunk({"choices": [{"delta": {}, "finish_reason": finish}]})
        return self.answer()

    def chunk(self, value: object) -> bool:
        return self.reader.take(msgspec.json.encode(value))

    def whole(self, value: object) -> CompleteResponse:
        self.reader.take_whole(msgspec.json.encode(value))
        return self.answer()

    def answer(self) -> CompleteResponse:
        with self.builder:
            self.reader.end()
            return self.builder.answer()


EVENTS = [b'{"a":1}', b"[DONE]", '{"ü":"🙂"}'.encode()]
STREAM = b': hello\n\nevent: x\ndata: {"a":1}\n\ndata:[DONE]\n\n\n' + b"id: 1\r\ndata: " + EVENTS[2] + b"\r\n\r\n"


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_found_wherever_the_network_cuts(cuts):
    """Comments, names, ids and line ends of either kind are read the same in any pieces."""
    splitter = EventSplitter()
    edges = [0, *sorted(cuts), len(STREAM)]
    found = [data for a, b in pairwise(edges) for data in splitter.feed(STREAM[a:b]) if data]
    assert found == EVENTS
    assert splitter.rest() == b""


def test_data_on_several_lines_is_joined():
    """Lines of data of one event belong together."""
    assert EventSplitter().feed(b"data: {\ndata: }\n\n") == [b"{\n}"]


def test_the_last_event_may_lack_its_blank_line():
    """The end of a body is an event too, and the number of unread bytes is known."""
    splitter = EventSplitter()
    assert splitter.feed(b"data: [DONE]") == []
    assert len(splitter) == 12
    assert splitter.rest() == b"[DONE]"
    assert len(splitter) == 0


def test_half_an_event_at_the_end_is_none():
    """A body that ends in the middle of an event leaves the answer unfinished, not malformed."""
    reading = Reading()
    reading.chunk({"choices": [{"delta": {"content": "a"}}]})
    reading.reader.take_last(b'{"choices": [{"del')
    with pytest.raises(IncompleteAnswerError):
        reading.answer()


def test_done_without_a_finish_is_no_answer():
    """`[DONE]` ends the stream, and does not finish the answer."""
    reading = Reading()
    assert reading.chunk({"choices": [{"delta": {"content": "a"}}]}) is False
    assert reading.reader.take(b"[DONE]") is True
    with pytest.raises(IncompleteAnswerError):
        reading.answer()


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_has_two_names(field):
    """Servers send thinking in one of two fields; it is streamed and answered apart from the text."""
    reading = Reading()
    answer = reading.take({field: "hm"}, {field: "m"}, {"content": "yes"})
    assert (answer.reasoning, answer.content) == ("hmm", "yes")
    assert reading.thinking == [("hm", False), ("m", False), ("", True)]


def test_thinking_in_both_fields_is_reported_once():
    """A server that sends both fields does not double the thinking."""
    assert Reading().take({"reasoning": "hm", "reasoning_content": "hm"}).reasoning == "hm"


def test_blocks_of_thinking_win():
    """Blocks are put together by their number, joined by a blank line, and encrypted ones left out."""
    reading = Reading()
    answer = reading.take(
        {"reasoning": "one", "reasoning_details": [{"type": "reasoning.text", "text": "one", "index": 0}]},
        {"reasoning": " more", "reasoning_details": [{"type": "reasoning.text", "text": " more", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "In short.", "index": 1}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 2}]},
    )
    assert answer.reasoning == "one more\n\nIn short."
    assert [text for text, _ in reading.thinking] == ["one", " more", "In short.", ""]


def test_content_may_come_in_blocks():
    """Blocks of text and of thinking are separated."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    answer = Reading().take({"content": [thinking]}, {"content": [{"type": "text", "text": "yes"}]}, {"content": "!"})
    assert (answer.reasoning, answer.content) == ("hm", "yes!")


def test_a_refusal_is_text():
    """What a model says instead of an answer is its answer."""
    assert Reading().take({"refusal": "I'd rather not."}).content == "I'd rather not."


def call(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None):
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, "id": id}
    return {"tool_calls": [piece if index is None else {**piece, "index": index}]}


TWO = [("a", "add", b'{"n":1}'), ("b", "sub", b'{"n":2}')]


@each_row(
    "deltas",
    [
        [call(0, "a", "add"), call(1, "b", "sub"), call(1, None, None, '{"n":2}'), call(0, None, None, '{"n":1}')],
        [call(0, "a", "add", '{"n"'), call(0, "a", "add", ":1}"), call(1, "b", "sub", '{"n":2}')],
        [call(0, "a", "add", '{"n":1}'), call(0, "b", "sub", '{"n":2}')],
        [call(None, "a", "add", '{"n":1}'), call(None, "b", "sub", '{"n":'), call(None, None, None, "2}")],
        [call(None, "a", "add", '{"n":1}'), call(None, "b", "sub", ""), call(None, "b", None, '{"n":2}')],
        [call(0, "a", "add", {"n": 1}), call(1, "b", "sub", {"n": 2})],
        [call(3, "a", "add", '{"n":1}'), call(7, "b", "sub", '{"n":2}')],
        [
            {
                "tool_calls": [
                    call(0, "a", "add", '{"n":1}')["tool_calls"][0],
                    call(1, "b", "sub", '{"n":2}')["tool_calls"][0],
                ]
            }
        ],
    ],
)
def test_calls_are_put_together_however_they_are_numbered(deltas):
    """Numbered, all numbered 0, not numbered, whole, in pieces, as text or as an object: two calls are two calls."""
    answer = Reading().take(*deltas, finish="tool_calls")
    assert [(made.id, made.name, made.args) for made in answer.tool_calls] == TWO
    assert [made.index for made in answer.tool_calls] == [0, 1]


def test_a_call_whose_id_changes_with_every_piece_is_one_call():
    """Only a piece with a name begins a call: some servers make up an id for each piece."""
    answer = Reading().take(call(0, "a", "add", '{"n"'), call(0, "x", None, ":1"), call(0, "y", "", "}"))
    assert [(made.id, made.args) for made in answer.tool_calls] == [("a", b'{"n":1}')]


def test_calls_without_ids_get_them():
    """Two whole calls without ids or numbers are two calls with different ids."""
    message = {
        "content": None,
        "tool_calls": [{"function": {"name": name, "arguments": "{}"}} for name in ("add", "sub")],
    }
    answer = Reading().whole({"choices": [{"message": message}]})
    assert [made.name for made in answer.tool_calls] == ["add", "sub"]
    assert len({made.id for made in answer.tool_calls}) == 2
    assert answer.finish_reason == "tool_calls"


def test_usage_and_cost():
    """The latest count stays; other counts are kept; the provider's own price is the cost."""
    reading = Reading()
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "cost": 0.5,
        "completion_tokens_details": {"reasoning_tokens": 3},
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    reading.chunk({"choices": [], "usage": {"prompt_tokens": 1}})
    reading.chunk({"choices": [], "usage": usage})
    reading.chunk({"choices": [], "usage": None})
    answer = reading.take({"content": "a"})
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.reasoning_tokens) == (5, 7, 3)
    assert answer.usage.provider_extras["prompt_tokens_details"] == {"cached_tokens": 4}
    assert (answer.cost.total_cost, answer.cost.currency) == (0.5, "USD")


@each_row(
    "usage, tokens, cost",
    [
        ({}, 0, 0.0),
        ({"prompt_tokens": 2, "completion_tokens": 3}, 5, 0.0),
        ({"prompt_tokens": None, "completion_tokens": "x", "total_tokens": 9}, 0, 0.0),
        ({"prompt_tokens": 2, "cost": {"total_cost": 0.25}}, 2, 0.25),
        ({"prompt_tokens": 2, "cost": None}, 2, 0.0),
        ({"prompt_tokens": 2, "cost": -1}, 2, 0.0),
    ],
)
def test_usage_in_every_form(usage, tokens, cost):
    """Missing and null counts are nothing, an odd one voids the report; a sum that is missing is made."""
    answer = Reading().whole({"choices": [{"message": {"content": "a"}}], "usage": usage})
    assert (answer.usage.total_tokens, answer.cost.total_cost) == (tokens, cost)


def test_a_whole_answer_is_finished():
    """An answer in one piece that names no reason has ended all the same, and one that does keeps it."""
    assert Reading().whole({"choices": [{"message": {"content": "a"}}]}).finish_reason == "stop"
    cut = {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}], "error": None}
    assert Reading().whole(cut).finish_reason == "length"


@each_row(
    "value",
    [
        {"error": {"message": "died", "code": 502}},
        {"object": "error", "message": "died", "code": 503},
        {"error": "died"},
        {"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"message": "died"}},
        {"choices": [{"delta": {"content": ""}, "finish_reason": "error"}]},
    ],
)
def test_a_failure_inside_an_answer_is_an_error(value):
    """Whichever way a server says that it failed, the call has failed, streamed or not."""
    with pytest.raises(ProviderUnavailableError):
        Reading().chunk(value)
    with pytest.raises(ProviderUnavailableError):
        Reading().whole({**value, "choices": [{"message": {}, "finish_reason": "error"}]})


def test_a_failure_inside_an_answer_keeps_its_meaning():
    """A rate limit in the middle of an answer is a rate limit."""
    with pytest.raises(RateLimitedError):
        Reading().chunk({"error": {"message": "slow down", "code": "rate_limit_exceeded"}})


@each_row("data", [b"", b"{", b"null", b"[]", b'{"choices":{}}', b"\xff\xfe", b'{"choices":[{"delta":1}]}'])
def test_what_cannot_be_read_is_an_error(data):
    """A piece that is no JSON, or JSON of another shape, ends the call, and the text does not repeat it."""
    with pytest.raises(MalformedAnswerError):
        Reading().reader.take(data)
    with pytest.raises(MalformedAnswerError):
        Reading().reader.take_whole(data)


@each_row("value", [{}, {"choices": []}, {"choices": [{}]}, {"choices": None}])
def test_an_answer_without_a_message_is_malformed(value):
    """A whole answer has to have a message; a piece of a stream need not."""
    with pytest.raises(MalformedAnswerError, match="no message"):
        Reading().whole(value)
    assert Reading().chunk(value) is False
