"""Replies read back, whole and while they stream."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from harborage.llm.local.decisions import (
    Answer,
    AnswerStream,
    Call,
    CutOff,
    read_decision,
    written_answer,
    written_call,
)
from tests.kit.tables import each_row

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.text(min_size=1, max_size=8), st.dictionaries(TEXTS, TEXTS | st.integers() | st.none(), max_size=3))
def test_a_written_call_is_read_back(name: str, args: dict[str, object]) -> None:
    """What stands in the history is what the model is to write, and means the call it was."""
    reply = written_call(name, json.dumps(args).encode())
    decision = read_decision(reply, tools={name}, answer="")
    assert decision == Call(name, json.dumps(args).encode())


@given(TEXTS)
def test_a_written_answer_is_read_back(text: str) -> None:
    """An earlier answer in the history means the answer it was."""
    assert read_decision(written_answer("final_answer", text), tools=(), answer="final_answer") == Answer(text)


@each_row("args", [b"", b"[1]", b"{broken", b"\xff", b"7"])
def test_arguments_that_are_no_object_are_written_as_none(args: bytes) -> None:
    """A malformed call of another model does not break the conversation."""
    assert json.loads(written_call("x", args))["arguments"] == {}


@each_row(
    "reply",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"name": 1, "arguments": {}}',
        '{"name": "find", "arguments": []}',
        '{"name": "hidden", "arguments": {}}',
        '{"name": "find", "arguments": {"text": "wor',
        '{"name": "final_answer", "arguments": {"other": "x"}}',
        '{"name": "final_answer", "arguments": {"text": 3}}',
        "[" * 100_000,
    ],
)
def test_what_decides_nothing_is_cut_off(reply: str) -> None:
    """A reply that is no decision, names a tool that is not visible, or ends in a call, is none, and never raises."""
    assert read_decision(reply, tools={"find"}, answer="final_answer") == CutOff()


def test_an_answer_that_was_cut_off_keeps_its_words() -> None:
    """What there is of an answer is not thrown away."""
    reply = '{"name": "final_answer", "arguments": {"text": "It is 4\\u20'
    assert read_decision(reply, tools=(), answer="final_answer") == CutOff("It is 4")


def test_an_answer_may_be_an_object() -> None:
    """Where the caller asked for a schema, the object is the answer."""
    reply = '{"name": "final_answer", "arguments": {"n": 1, "ö": "x"}}'
    assert read_decision(reply, tools=(), answer="final_answer", is_object=True) == Answer('{"n": 1, "ö": "x"}')


@st.composite
def _pieces(draw: st.DrawFn) -> tuple[str, list[str]]:
    """An answer, and its JSON cut anywhere."""
    text = draw(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n😀é\x00'), max_size=30))
    written = json.dumps({"name": "final_answer", "arguments": {"text": text}}, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        written = written.replace(": ", " :\n ", 2)
    cuts = sorted(draw(st.lists(st.integers(0, len(written)), max_size=12)))
    edges = [0, *cuts, len(written)]
    return text, [written[begin:end] for begin, end in itertools.pairwise(edges)]


@given(_pieces())
def test_the_words_of_an_answer_stream_whatever_the_pieces(cut: tuple[str, list[str]]) -> None:
    """The deltas that are shown are in sum the text, escapes and surrogate pairs included, and each is well-formed."""
    text, pieces = cut
    stream = AnswerStream("final_answer")
    shown = [stream.feed(piece) for piece in pieces]
    assert "".join(shown) == text
    for delta in shown:
        delta.encode()


@given(_pieces(), st.sampled_from(["find", "final_answers", "final"]))
def test_a_call_shows_nothing(cut: tuple[str, list[str]], name: str) -> None:
    """The JSON of a call is not for reading, even where it has a text."""
    stream = AnswerStream("final_answer")
    pieces = json.dumps({"name": name, "arguments": {"text": cut[0]}})
    assert all(stream.feed(piece) == "" for piece in (*pieces, '"arguments": {"text": "x"}'))


def test_words_are_shown_as_soon_as_they_come() -> None:
    """An answer does not wait for its end."""
    stream = AnswerStream("final_answer")
    assert stream.feed('{"name": "final_answer", "arguments": {"text": "It') == "It"
    assert stream.feed(" is") == " is"


@each_row(
    "written, text",
    [(r"\ud83d\ude00", "😀"), (r"\ud83dx", "�x"), (r"\ude00", "�"), (r"\ud83d\n", "�\n"), (r"a\/b", "a/b")],
)
def test_halves_of_a_pair_are_replaced(written: str, text: str) -> None:
    """Text that no encoding would take never leaves, streamed or whole."""
    reply = f'{{"name": "final_answer", "arguments": {{"text": "{written}"}}}}'
    stream = AnswerStream("final_answer")
    assert "".join(map(stream.feed, reply)) == text
    assert read_decision(reply, tools=(), answer="final_answer") == Answer(text)
