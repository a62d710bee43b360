"""The callbacks of a call see its attempts as one answer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import CompleteRequest
from harborage.llm.chain.retry import Attempts

pytestmark = pytest.mark.anyio


def listener(received: list, name: str):
    """A callback that keeps its deltas."""
    return lambda delta, done: received.append((name, "done" if done else delta))


def listening(received: list, **fields) -> CompleteRequest:
    """A streaming request whose callbacks write into `received`."""
    return CompleteRequest(
        stream=True,
        on_content=listener(received, "content"),
        on_reasoning=listener(received, "reasoning"),
        on_reset=lambda: received.append("reset"),
        **fields,
    )


def play(sent: CompleteRequest, *deltas: str, reasoning: str = "", is_done: bool = True) -> None:
    """What a driver does with a request: it streams, and says when it is done."""
    assert sent.on_content is not None
    assert sent.on_reasoning is not None
    if reasoning:
        sent.on_reasoning(reasoning, False)
    for delta in deltas:
        sent.on_content(delta, False)
    if is_done:
        if reasoning:
            sent.on_reasoning("", True)
        sent.on_content("", True)


async def test_one_attempt_sounds_as_if_nothing_stood_between():
    """Deltas and the two `done` of a single attempt arrive as the driver sent them."""
    received: list = []
    request = listening(received)
    with Attempts(request) as attempts:
        play(attempts.begin(request), "a", "b", reasoning="hm")
    assert received == [
        ("reasoning", "hm"),
        ("content", "a"),
        ("content", "b"),
        ("reasoning", "done"),
        ("content", "done"),
    ]


async def test_a_second_attempt_voids_the_first():
    """There is a reset between two attempts, and only the second one's `done` arrives."""
    received: list = []
    request = listening(received)
    with Attempts(request) as attempts:
        play(attempts.begin(request), "a", reasoning="hm")
        play(attempts.begin(request), "b")
    assert received == [("reasoning", "hm"), ("content", "a"), "reset", ("content", "b"), ("content", "done")]


async def test_silence_is_not_voided():
    """An attempt without deltas needs no reset."""
    received: list = []
    request = listening(received)
    with Attempts(request) as attempts:
        play(attempts.begin(request))
        play(attempts.begin(request), "b")
    assert received == [("content", "b"), ("content", "done")]


async def test_done_comes_on_errors_too():
    """When the last attempt fails the callbacks still get `done`."""
    received: list = []
    request = listening(received)

    def fail(sent: CompleteRequest) -> None:
        play(sent, "a")
        raise RuntimeError

    with pytest.raises(RuntimeError), Attempts(request) as attempts:
        fail(attempts.begin(request))
    assert received == [("content", "a"), ("content", "done")]


async def test_nothing_reached_a_driver():
    """When no driver spoke there is nothing to end."""
    received: list = []
    request = listening(received)
    with Attempts(request) as attempts:
        attempts.begin(request)
    assert received == []


async def test_attempts_within_attempts():
    """Two layers that ask again make one reset of it, and one `done`."""
    received: list = []
    request = listening(received)
    with Attempts(request) as outer:
        for word in ("x", "y"):
            middle = outer.begin(request)
            with Attempts(middle) as inner:
                play(inner.begin(middle), f"{word}1", is_done=False)
                play(inner.begin(middle), f"{word}2")
    events = [one if one == "reset" else one[1] for one in received]
    assert events == ["x1", "reset", "x2", "reset", "y1", "reset", "y2", "done"]


async def test_a_listener_that_raises():
    """An exception of one callback at the end is raised after the other was called."""
    received: list = []

    def broken(delta, done):
        if done:
            raise ValueError("listener")

    request = CompleteRequest(stream=True, on_content=listener(received, "content"), on_reasoning=broken)
    with pytest.raises(ValueError, match="listener"), Attempts(request) as attempts:
        play(attempts.begin(request), "a", reasoning="hm")
    assert received == [("content", "a"), ("content", "done")]


@pytest.mark.parametrize("request_", [CompleteRequest(on_content=print), CompleteRequest(stream=True)])
async def test_without_listeners_the_request_is_sent_as_it_is(request_):
    """Callbacks without `stream`, and `stream` without callbacks, cost nothing."""
    with Attempts(request_) as attempts:
        assert attempts.begin(request_) is request_


async def test_only_the_listeners_there_are():
    """Without callbacks a driver streams nothing."""
    request = CompleteRequest(stream=True, on_content=lambda delta, done: None)
    with Attempts(request) as attempts:
        assert attempts.begin(request).on_reasoning is None


async def test_no_attempt_for_a_caller_that_left():
    """A cancelled caller gets its cancellation instead of another attempt."""
    begun = []

    async def call():
        request = CompleteRequest()
        with Attempts(request) as attempts:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            begun.append(attempts.begin(request))

    task = asyncio.ensure_future(call())
    await asyncio.wait([task])
    assert task.cancelled()
    assert begun == []


@given(st.lists(st.lists(st.text(min_size=1, max_size=3), max_size=4), min_size=1, max_size=5))
async def test_what_counts_is_the_last_attempt(attempts_of_deltas: list[list[str]]):
    """A caller that drops the deltas before each reset keeps the last attempt, and gets `done` once, last."""
    received: list = []
    request = listening(received)
    with Attempts(request) as attempts:
        for deltas in attempts_of_deltas:
            play(attempts.begin(request), *deltas)
    kept: list = []
    for one in received:
        kept = [] if one == "reset" else [*kept, one]
    assert [delta for _, delta in kept] == [*attempts_of_deltas[-1], "done"]
    assert [delta for one in received if one != "reset" for delta in one[1:]].count("done") == 1
