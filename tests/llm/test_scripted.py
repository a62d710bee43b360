"""The scripted model: turns, conditions, failures, streaming, and the errors of a bad script."""

from __future__ import annotations

import asyncio
import contextvars
import json
from pathlib import Path
from typing import Any

import pytest

from harborage import identity
from harborage.artifacts import MemoryArtifactStore
from harborage.events import MemoryEventBus
from harborage.identity import Identity, Quadruple
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    ConfigSnapshot,
    Content,
    Deps,
    IdentityMissingError,
    InvalidJSONSchemaError,
    LLMClient,
    RateLimitedError,
    Role,
    TextPart,
    ToolCallStructured,
)
from harborage.llm.config import LLM_DRIVERS
from harborage.llm.providers import config_for, parse_model
from harborage.llm.scripted import (
    Script,
    ScriptedCall,
    ScriptedError,
    ScriptedModel,
    ScriptedTurn,
    ScriptExhaustedError,
    ScriptInvalidError,
    load_script,
    make,
)

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r-1")


@pytest.fixture(autouse=True)
def who() -> Any:
    """Every call is made for one run."""
    with identity.bound(WHO):
        yield


def user(text: str) -> ChatMessage:
    """A user's message."""
    return ChatMessage(Role.USER, Content(text=text))


def assistant(text: str = "", *, calls: bool = False) -> ChatMessage:
    """An answer, with or without a call."""
    made = (ToolCallStructured("c", "x"),) if calls else ()
    return ChatMessage(Role.ASSISTANT, Content(text=text), tool_calls=made)


def tool_result() -> ChatMessage:
    """The answer to a call."""
    return ChatMessage(Role.TOOL, Content(text="1"), tool_call_id="c")


def asking(*messages: ChatMessage, **rest: Any) -> CompleteRequest:
    """A request with these messages."""
    return CompleteRequest(messages=messages, **rest)


def model(*turns: ScriptedTurn) -> ScriptedModel:
    """A model over these turns."""
    return ScriptedModel(Script(turns))


async def test_turns_follow_the_conversation() -> None:
    """The n-th answer is the n-th turn, for every caller: the model itself keeps no state."""
    scripted = model(
        ScriptedTurn(tool_calls=(ScriptedCall("add", {"x": 1}), ScriptedCall("add", {"x": 2}, id="own"))),
        ScriptedTurn(text="3", reasoning="easy"),
    )
    first = await scripted.complete(asking(user("1+2?")))
    assert [(call.id, call.name, call.args, call.index) for call in first.tool_calls] == [
        ("call-0", "add", b'{"x":1}', 0),
        ("own", "add", b'{"x":2}', 1),
    ]
    assert (first.content, first.finish_reason) == ("", "tool_calls")
    history = (user("1+2?"), assistant(calls=True), tool_result())
    second = await scripted.complete(asking(*history))
    assert (second.content, second.reasoning, second.finish_reason) == ("3", "easy", "stop")
    assert await scripted.complete(asking(*history)) == second
    with pytest.raises(ScriptExhaustedError, match="2 turn"):
        await scripted.complete(asking(*history, assistant("3"), user("sure?")))


async def test_a_condition_answers_a_question_from_its_beginning() -> None:
    """Turns with `when` are counted from the message that they fit; other questions go on with the conversation."""
    scripted = model(
        ScriptedTurn(text="hello"),
        ScriptedTurn(when="Weather", tool_calls=(ScriptedCall("forecast"),)),
        ScriptedTurn(when="Weather", text="sunny"),
        ScriptedTurn(text="bye"),
    )
    talk = [user("hi")]
    for expected, following in [
        ("hello", user("what WEATHER is it?")),
        ("", tool_result()),
        ("sunny", user("and the weather tomorrow?")),
        ("", tool_result()),
        ("sunny", user("thanks")),
        ("bye", user("…")),
    ]:
        answer = await scripted.complete(asking(*talk))
        assert answer.content == expected
        talk += [assistant(answer.content, calls=bool(answer.tool_calls)), following]


async def test_what_is_put_in_between_does_not_end_an_answer() -> None:
    """A user's message between a call and its answer's end is no new question."""
    scripted = model(
        ScriptedTurn(when="weather", tool_calls=(ScriptedCall("forecast"),)), ScriptedTurn(when="weather", text="sunny")
    )
    said = await scripted.complete(asking(user("weather?"), assistant(calls=True), tool_result(), user("hurry up")))
    assert said.content == "sunny"


async def test_parts_of_text_are_read() -> None:
    """A message with pictures is known by its text."""
    scripted = model(ScriptedTurn(when="cat", text="a cat"))
    parts = Content(parts=[TextPart("is it a"), TextPart("Cat?")])
    assert (await scripted.complete(asking(ChatMessage(Role.USER, parts)))).content == "a cat"


@pytest.mark.parametrize(
    ("turn", "pieces"),
    [
        (ScriptedTurn(text="one two  three\n"), ["one ", "two  ", "three\n"]),
        (ScriptedTurn(pieces=("on", "e t", "wo")), ["on", "e t", "wo"]),
        (ScriptedTurn(text="ab", pieces=("a", "b")), ["a", "b"]),
        (ScriptedTurn(text="  \n"), ["  \n"]),
        (ScriptedTurn(tool_calls=(ScriptedCall("x"),)), []),
    ],
)
async def test_an_answer_is_streamed_when_that_is_asked_for(turn: ScriptedTurn, pieces: list[str]) -> None:
    """Piece by piece as written, else word by word; `done` comes once, last, and only with `stream`."""
    received: list[tuple[str, bool]] = []

    def hear(delta: str, done: bool) -> None:
        received.append((delta, done))

    answer = await model(turn).complete(asking(user("x"), stream=True, on_content=hear))
    assert received == [*((piece, False) for piece in pieces), ("", True)]
    assert "".join(pieces) == answer.content
    received.clear()
    await model(turn).complete(asking(user("x"), on_content=hear))
    assert received == []


async def test_reasoning_is_streamed_before_the_answer() -> None:
    """Each callback gets its own deltas."""
    received: list[str] = []
    request = asking(
        user("x"),
        stream=True,
        on_content=lambda delta, done: received.append(f"c:{delta}{done:d}"),
        on_reasoning=lambda delta, done: received.append(f"r:{delta}{done:d}"),
    )
    await model(ScriptedTurn(text="b", reasoning="a")).complete(request)
    assert received == ["r:a0", "c:b0", "r:1", "c:1"]


async def test_a_failure_is_raised_as_often_as_the_script_says() -> None:
    """Then the script goes on; another run gets the error again, and a stream that broke off ends with `done`."""
    scripted = model(
        ScriptedTurn(
            pieces=("half ",), error=ScriptedError("RateLimitedError", "slow down", 429, retry_after_s=1.5, times=2)
        ),
        ScriptedTurn(error=ScriptedError("InvalidJSONSchemaError")),
        ScriptedTurn(text="done"),
    )
    received: list[tuple[str, bool]] = []
    request = asking(user("x"), stream=True, on_content=lambda delta, done: received.append((delta, done)))
    for _ in range(2):
        received.clear()
        with pytest.raises(RateLimitedError, match="slow down") as caught:
            await scripted.complete(request)
        assert received == [("half ", False), ("", True)]
    assert (caught.value.status, caught.value.retry_after_s, caught.value.provider) == (429, 1.5, "script")
    with pytest.raises(InvalidJSONSchemaError):
        await scripted.complete(request)
    assert (await scripted.complete(request)).content == "done"
    with identity.bound(Quadruple("t", "u", "s", "r-2")), pytest.raises(RateLimitedError):
        await scripted.complete(request)


async def test_usage_is_reported_and_repeats() -> None:
    """A quarter of the characters, so that demos have something to show."""
    answer = await model(ScriptedTurn(text="x" * 8)).complete(asking(user("y" * 40)))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (10, 2, 12)
    assert answer.cost.total_cost == 0


async def test_a_client_needs_an_identity_and_ends_when_it_is_closed() -> None:
    """As every client does."""
    scripted = model(ScriptedTurn(text="x"))
    await scripted.close()
    await scripted.close()
    with pytest.raises(ClientClosedError):
        await scripted.complete(asking(user("x")))


def test_without_an_identity_nothing_is_answered() -> None:
    """It is asked for before the script is looked at."""
    with pytest.raises(IdentityMissingError):
        contextvars.Context().run(lambda: asyncio.run(model().complete(asking(user("x")))))


async def test_the_stand_in_is_honest() -> None:
    """It says that no model is configured and what to do, and repeats the message; it never runs out."""
    stand_in = ScriptedModel()
    for _ in range(3):
        answer = await stand_in.complete(asking(user("first"), assistant("…"), user("what is the answer?")))
        assert "No model is configured" in answer.content
        assert "--model" in answer.content
        assert answer.content.endswith("what is the answer?")
    assert "said was" not in (await stand_in.complete(asking())).content


class TestFiles:
    """Scripts in files."""

    def written(self, folder: Path, content: object) -> Path:
        """A script file."""
        path = folder / "script.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_a_script_is_a_list_of_turns_or_an_object_that_has_one(self, tmp_path: Path) -> None:
        """Both spell the same."""
        turns = [{"tool_calls": [{"name": "add", "args": {"x": [1, None]}}]}, {"text": "3", "when": "add"}]
        by_list = load_script(self.written(tmp_path, turns))
        assert by_list == load_script(self.written(tmp_path, {"turns": turns}))
        assert by_list.turns[0].tool_calls[0].args == {"x": [1, None]}

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ('[{"text": "a"},\n {"text" "b"}]', r"line 2 column 10"),
            ("", "line 1 column 1"),
            ("[" * 100_000, "not JSON"),
            ([{"text": 1}], r"\$\.turns\[0\]\.text"),
            ([{"text": "a"}, {"txt": "b"}], r"unknown field `txt`.*\$\.turns\[1\]"),
            ([{"tool_calls": [{"args": {}}]}], r"\$\.turns\[0\]\.tool_calls\[0\]"),
            ([{"tool_calls": [{"name": "x", "args": [1]}]}], r"\$\.turns\[0\]\.tool_calls\[0\]\.args"),
            ([{"text": "a"}, {}], r"needs text.*\$\.turns\[1\]"),
            ([{"when": "x"}], r"needs text.*\$\.turns\[0\]"),
            ([{"text": "ab", "pieces": ["a", "c"]}], r"pieces are not the text.*\$\.turns\[0\]"),
            ([{"error": {"kind": "NoSuchError"}}], r"no error 'NoSuchError'.*RateLimitedError.*\$\.turns\[0\]"),
            ([{"error": {"kind": "RateLimitedError", "times": 0}}], r"times.*\$\.turns\[0\]"),
            ([{"error": {"kind": "RateLimitedError"}, "tool_calls": [{"name": "x"}]}], "either fails or calls"),
            ([], "at least one turn"),
            ({}, "at least one turn"),
            ({"turns": {}}, r"\$\.turns"),
            ("3", "object"),
        ],
    )
    def test_a_bad_script_is_refused_with_its_place(self, tmp_path: Path, content: object, says: str) -> None:
        """By line and column where it is no JSON, by the turn where it makes no sense; the file is always named."""
        path = self.written(tmp_path, content)
        with pytest.raises(ScriptInvalidError, match=says) as caught:
            load_script(path)
        assert caught.value.path == str(path)
        assert str(path) in str(caught.value)

    def test_a_file_that_cannot_be_read_is_an_error(self, tmp_path: Path) -> None:
        """One that is not there, and one that is no text."""
        with pytest.raises(ScriptInvalidError, match=r"nowhere\.json.*No such file"):
            load_script(tmp_path / "nowhere.json")
        (tmp_path / "latin.json").write_bytes(b'[{"text": "gr\xfcn"}]')
        with pytest.raises(ScriptInvalidError, match="UTF-8 at byte 13"):
            load_script(tmp_path / "latin.json")

    async def test_the_driver_takes_its_script_from_the_models_name(self, tmp_path: Path) -> None:
        """`script:path.json` follows one, `script:` is the stand-in."""
        path = self.written(tmp_path, [{"text": "from the file"}])
        deps = Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus())
        assert LLM_DRIVERS.factory("scripted") is make
        for text, expected in ((f"script:{path}", "from the file"), ("script:", "No model is configured")):
            client = make(config_for(parse_model(text), environ={}), deps)
            assert isinstance(client, LLMClient)
            assert expected in (await client.complete(asking(user("x")))).content
        with pytest.raises(ScriptInvalidError):
            make(ConfigSnapshot(model=str(tmp_path / "nowhere.json")), deps)


def test_an_identity_without_a_run_will_do() -> None:
    """What counts is who asks, not whether there is a run."""
    with identity.bound(Identity("t", "u", "s")):
        assert asyncio.run(model(ScriptedTurn(text="x")).complete(asking(user("x")))).content == "x"


async def test_a_call_takes_values_from_a_result() -> None:
    """Ids that a run makes are taken from the tool results of the conversation: the latest, or the one counted."""

    def events(text: str) -> ChatMessage:
        return ChatMessage(Role.TOOL, Content(text=text), tool_call_id="c")

    args = {"task_id": {"$result": "task_id"}, "all": [{"$result": "task_id", "nth": 1}], "plain": {"$result": 1}}
    model = ScriptedModel(Script((ScriptedTurn(tool_calls=(ScriptedCall("_await_task", args),)),)))
    talk = [user("go"), events('{"task_id":"a"}'), events("no JSON"), events('{"task_id":"b"}'), events("[1]")]
    (call,) = (await model.complete(CompleteRequest(messages=talk))).tool_calls
    assert json.loads(call.args) == {"task_id": "b", "all": ["a"], "plain": {"$result": 1}}
    with pytest.raises(ScriptInvalidError, match="no tool result has 'task_id'"):
        await model.complete(CompleteRequest(messages=[user("go")]))
    late = ScriptedCall("x", {"id": {"$result": "task_id", "nth": 3}})
    with pytest.raises(ScriptInvalidError, match="number 3"):
        await ScriptedModel(Script((ScriptedTurn(tool_calls=(late,)),))).complete(CompleteRequest(messages=talk))
