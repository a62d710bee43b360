"""Cassettes: what is recorded is what is played, runs that differ only in their ids match, and secrets stay out."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harborage import identity
from harborage.artifacts import MemoryArtifactStore
from harborage.events import MemoryEventBus
from harborage.events.redaction import secrets_of
from harborage.events.scrubbing import Scrubber
from harborage.identity import Quadruple
from harborage.ids import new_id
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Cost,
    Deps,
    IdentityMissingError,
    ImagePart,
    InvalidJSONSchemaError,
    LLMError,
    ModelProfile,
    ProviderError,
    RateLimitedError,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
    ToolDeclaration,
    Usage,
)
from harborage.llm.cassette import (
    Cassette,
    CassetteError,
    CassetteInvalidError,
    CassetteMissError,
    CassetteUnusedError,
    cassette_config,
    make,
    record,
    replay,
)
from harborage.llm.chain.retry import is_invalid_json_schema_error
from harborage.llm.config import LLM_DRIVERS
from harborage.llm.opening import open_llm
from harborage.llm.scripted import Script, ScriptedModel, ScriptedTurn
from harborage.testing.cassettes import cassette
from harborage.testing.llm import ScriptedLLM, calls_tools, says

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r-1")
DEPS = Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus())
TOOL = ToolDeclaration("add", "Add.", {"type": "object", "properties": {"x": {"type": "integer"}}})


@pytest.fixture(autouse=True)
def who() -> Any:
    """Every call is made for one run."""
    with identity.bound(WHO):
        yield


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """Where the cassette is."""
    return tmp_path / "tapes" / "tape.json"


def user(text: str) -> ChatMessage:
    """A user's message."""
    return ChatMessage(Role.USER, Content(text=text))


def asking(*texts: str, **rest: Any) -> CompleteRequest:
    """A request with these messages of a user."""
    return CompleteRequest(messages=[user(text) for text in texts], **rest)


async def recorded(tape: Path, script: list[Any], requests: list[CompleteRequest], **options: Any) -> str:
    """Record what a scripted model answers to these requests; returns the file's text."""
    client = record(ScriptedLLM(script), tape, environ={}, **options)
    for request in requests:
        with contextlib.suppress(LLMError):
            await client.complete(request)
    await client.close()
    return text_of(tape)


def text_of(tape: Path) -> str:
    """What is in the file; empty when there is none."""
    return tape.read_text("utf-8") if tape.exists() else ""


class Ears:
    """Listens to a stream, in order."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str, bool]] = []

    def on(self, request: CompleteRequest) -> CompleteRequest:
        """The request, streamed to these ears."""
        return replace(
            request,
            stream=True,
            on_content=lambda delta, done: self.received.append(("content", delta, done)),
            on_reasoning=lambda delta, done: self.received.append(("reasoning", delta, done)),
        )

    def text(self, kind: str) -> str:
        """Everything of one kind."""
        return "".join(delta for each, delta, _ in self.received if each == kind)


class Pieces:
    """A client that streams in pieces of its own and can break off."""

    def __init__(self, *pieces: tuple[str, str], error: Exception | None = None) -> None:
        self.pieces = pieces
        self.error = error

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Stream, then answer or fail."""
        whole = {"content": "", "reasoning": ""}
        for kind, piece in self.pieces:
            whole[kind] += piece
            listener = request.on_content if kind == "content" else request.on_reasoning
            if listener is not None:
                listener(piece, False)
        if whole["reasoning"] and request.on_reasoning is not None:
            request.on_reasoning("", True)
        if request.on_content is not None:
            request.on_content("", True)
        if self.error is not None:
            raise self.error
        return CompleteResponse(whole["content"], reasoning=whole["reasoning"], finish_reason="stop")

    async def close(self) -> None:
        """Nothing to close."""


class TestPlaying:
    """What comes back."""

    async def test_an_answer_comes_back_whole(self, tape: Path) -> None:
        """Text, reasoning, calls byte for byte, usage, cost and the reason for its end."""
        answer = CompleteResponse(
            "hello",
            (ToolCallStructured("c1", "add", b'{ "x": 1.50 }', 0), ToolCallStructured("c2", "add", b"{}", 1)),
            "hm",
            Cost(total_cost=0.5, currency="USD"),
            Usage(prompt_tokens=3, total_tokens=4, provider_extras={"cached": 2}),
            "tool_calls",
        )
        await recorded(tape, [answer], [asking("hi")])
        assert await replay(tape).complete(asking("hi")) == answer

    async def test_equal_requests_are_answered_in_order(self, tape: Path) -> None:
        """Then they are missed: a third answer was never given."""
        await recorded(tape, ["one", "other", "two"], [asking("a"), asking("b"), asking("a")])
        client = replay(tape)
        assert [(await client.complete(asking(text))).content for text in "aab"] == ["one", "two", "other"]
        with pytest.raises(CassetteMissError, match=r"recorded 2 times and is sent once more"):
            await client.complete(asking("a"))
        assert (await replay(tape).complete(asking("a"))).content == "one"

    async def test_a_stream_is_played_as_it_came(self, tape: Path) -> None:
        """Piece by piece, reasoning and content in their order, and `done` once each."""
        client = record(Pieces(("reasoning", "a"), ("reasoning", "b"), ("content", "c d"), ("content", "e")), tape)
        first, second = Ears(), Ears()
        await client.complete(first.on(asking("x")))
        answer = await replay(tape).complete(second.on(asking("x")))
        assert second.received == first.received
        assert (answer.content, answer.reasoning) == ("c de", "ab")

    async def test_a_stream_and_a_plain_answer_stand_in_for_each_other(self, tape: Path, tmp_path: Path) -> None:
        """What was recorded without a stream comes in one piece; what was streamed can be had whole."""
        await recorded(tape, [says("plain", reasoning="why")], [asking("x")])
        ears = Ears()
        await replay(tape).complete(ears.on(asking("x")))
        assert [one for one in ears.received if one[1]] == [("reasoning", "why", False), ("content", "plain", False)]
        other = tmp_path / "other.json"
        await record(Pieces(("content", "a"), ("content", "b")), other).complete(Ears().on(asking("x")))
        assert (await replay(other).complete(asking("x"))).content == "ab"

    async def test_a_failure_comes_back_as_what_it_was(self, tape: Path) -> None:
        """With its class and what it carries, after what had been streamed; the wait it asked for is over."""
        slow = RateLimitedError("slow down", provider="p", model="m", status=429, retry_after_s=30)
        client = record(Pieces(("content", "half "), error=slow), tape)
        with pytest.raises(RateLimitedError):
            await client.complete(Ears().on(asking("x")))
        ears = Ears()
        with pytest.raises(RateLimitedError, match="slow down") as caught:
            await replay(tape).complete(ears.on(asking("x")))
        error = caught.value
        assert (error.provider, error.model, error.status, error.retry_after_s) == ("p", "m", 429, 0)
        assert error.retry is slow.retry
        assert ears.received == [("content", "half ", False), ("content", "", True)]

    async def test_a_failure_and_its_repetition_are_two_recordings(self, tape: Path) -> None:
        """A call that is made again after a failure gets what came next."""
        await recorded(tape, [InvalidJSONSchemaError("no"), "yes"], [asking("x"), asking("x")])
        client = replay(tape)
        with pytest.raises(InvalidJSONSchemaError, match="no"):
            await client.complete(asking("x"))
        assert (await client.complete(asking("x"))).content == "yes"

    async def test_an_unknown_class_of_failure_is_played_as_its_nearest_known_one(self, tape: Path) -> None:
        """A provider's own subclass is what it extends."""

        class OddError(ProviderError):
            """Odd."""

        await recorded(tape, [OddError("odd", status=418)], [asking("x")])
        with pytest.raises(ProviderError, match="odd") as caught:
            await replay(tape).complete(asking("x"))
        assert (type(caught.value), caught.value.status) == (ProviderError, 418)

    async def test_what_is_no_failure_of_the_model_is_not_recorded(self, tape: Path) -> None:
        """A bug or a cancellation leaves nothing on the tape."""
        for error in (ZeroDivisionError(), asyncio.CancelledError()):
            client = record(Pieces(error=error), tape)  # type: ignore[arg-type]
            with pytest.raises(type(error)):
                await client.complete(asking("x"))
            assert client.cassette.exchanges == []
            assert text_of(tape) == ""

    async def test_an_answer_that_started_again_is_kept_from_its_new_start(self, tape: Path) -> None:
        """What a layer below declared void is not played, and the reset is passed on."""

        class Restarting(Pieces):
            async def complete(self, request: CompleteRequest) -> CompleteResponse:
                assert request.on_content is not None
                assert request.on_reset is not None
                request.on_content("void", False)
                request.on_reset()
                return await super().complete(request)

        resets: list[bool] = []
        request = Ears().on(asking("x", on_reset=lambda: resets.append(True)))
        await record(Restarting(("content", "good")), tape).complete(request)
        ears = Ears()
        await replay(tape).complete(ears.on(asking("x")))
        assert (resets, ears.text("content")) == ([True], "good")

    async def test_both_clients_keep_the_contract(self, tape: Path) -> None:
        """Closed twice they stay closed; nothing is answered without an identity; the request is not changed."""
        inner = ScriptedLLM(["x"])
        recording = record(inner, tape)
        request = asking("x")
        await recording.complete(request)
        await recording.close()
        await recording.close()
        assert inner.is_closed
        playing = replay(tape)

        async def anonymous() -> None:
            with pytest.raises(IdentityMissingError):
                await playing.complete(request)

        task = asyncio.get_running_loop().create_task(anonymous(), context=contextvars.Context())
        await task
        await playing.close()
        for client in (recording, playing):
            with pytest.raises(ClientClosedError):
                await client.complete(request)
        assert request == asking("x")


class TestMatching:
    """Which requests are the same."""

    FULL = CompleteRequest(
        model="m",
        messages=[ChatMessage(Role.SYSTEM, Content(text="sys")), user("hi")],
        tools=[TOOL],
        temperature=0.0,
        max_tokens=10,
        stops=["."],
        extra={"seed": 1},
        tool_choice=ToolChoice.AUTO,
        response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type":"object"}'),
    )

    @pytest.mark.parametrize(
        "change",
        [
            {"messages": [ChatMessage(Role.SYSTEM, Content(text="sys")), user("ho")]},
            {"messages": [user("sys"), user("hi")]},
            {"messages": FULL.messages[:1]},
            {"tools": []},
            {"tools": [ToolDeclaration("add", "Add!", TOOL.schema)]},
            {"temperature": None},
            {"temperature": 0.5},
            {"max_tokens": 11},
            {"stops": ()},
            {"extra": {"seed": 2}},
            {"tool_choice": ToolChoice.REQUIRED},
            {"response_format": None},
            {"response_format": ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type":"array"}')},
            {"parallel_tool_calls": True},
            {"reasoning_effort": "low"},
        ],
    )
    async def test_whatever_changes_the_answer_is_a_miss(self, tape: Path, change: dict[str, Any]) -> None:
        """Messages, tools and settings must be those that were recorded."""
        await recorded(tape, ["x"], [self.FULL])
        client = replay(tape)
        with pytest.raises(CassetteMissError) as caught:
            await client.complete(replace(self.FULL, **change))
        assert caught.value.diff
        assert (await client.complete(self.FULL)).content == "x"

    async def test_what_does_not_change_the_answer_does_not_matter(self, tape: Path) -> None:
        """The model's name, callbacks, streaming, and how a schema is spelled."""
        await recorded(tape, ["x"], [self.FULL])
        same = replace(
            self.FULL,
            model="other",
            validator=lambda _response: None,
            stream=True,
            response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{ "type": "object" }'),
        )
        assert (await replay(tape).complete(same)).content == "x"

    def conversation(self, task: str, artifact: str, at: str, day: str) -> CompleteRequest:
        """A request that names its run's ids and times everywhere."""
        return CompleteRequest(
            messages=[
                ChatMessage(Role.SYSTEM, Content(text=f"Today is {day}. Run {task}.")),
                user(f"wait for {task} and read {artifact}"),
                ChatMessage(
                    Role.ASSISTANT,
                    tool_calls=[ToolCallStructured("c1", "_await_task", json.dumps({"task_id": task}).encode())],
                ),
                ChatMessage(
                    Role.TOOL,
                    Content(
                        text=json.dumps({"task_id": task, "ref": artifact, "at": at, "epoch_ms": 1_772_600_767_890})
                    ),
                    tool_call_id="c1",
                ),
            ]
        )

    async def test_a_second_run_with_other_ids_and_times_finds_what_the_first_recorded(self, tape: Path) -> None:
        """And the answer speaks of the second run's ids, in its calls and in its stream too."""
        task, artifact = new_id(), "default_0123456789ab"
        first = self.conversation(task, artifact, "2026-01-02T03:04:05.678Z", "2026-01-02")
        answer = calls_tools(("artifact_fetch", {"ref": artifact}), content=f"reading {artifact} of {task}")
        text = await recorded(tape, [answer], [Ears().on(first)])
        assert task not in text
        assert artifact not in text
        other, others = new_id(), "default_ba9876543210ffff"
        second = self.conversation(other, others, "2027-11-12T13:14:15+02:00", "2027-11-12")
        ears = Ears()
        played = await replay(tape).complete(ears.on(second))
        assert played.content == f"reading {others} of {other}" == ears.text("content")
        assert json.loads(played.tool_calls[0].args) == {"ref": others}
        assert len([one for one in ears.received if one[1]]) >= 3

    async def test_two_ids_that_change_places_are_a_difference(self, tape: Path) -> None:
        """Ids are numbered as they appear: the same one again is not just any other one."""
        one, two = new_id(), new_id()
        await recorded(tape, ["x"], [asking(f"{one} then {one}")])
        with pytest.raises(CassetteMissError):
            await replay(tape).complete(asking(f"{one} then {two}"))
        assert (await replay(tape).complete(asking(f"{two} then {two}"))).content == "x"

    async def test_dates_in_what_was_said_are_a_difference(self, tape: Path) -> None:
        """Only the system's own date is taken for today's."""
        await recorded(tape, ["x"], [asking("what happened on 2024-01-01?")])
        with pytest.raises(CassetteMissError):
            await replay(tape).complete(asking("what happened on 2024-01-02?"))

    async def test_pictures_are_known_by_their_hash(self, tape: Path) -> None:
        """Another picture of the same size is another request, and none is kept on the tape."""

        def showing(body: str) -> CompleteRequest:
            parts = [TextPart("see"), ImagePart(data_url=f"data:image/png;base64,{body}")]
            return CompleteRequest(messages=[ChatMessage(Role.USER, Content(parts=parts))])

        text = await recorded(tape, ["a cat"], [showing("QUJDRA==")])
        assert "QUJDRA" not in text
        assert (await replay(tape).complete(showing("QUJDRA=="))).content == "a cat"
        with pytest.raises(CassetteMissError):
            await replay(tape).complete(showing("QUJDRQ=="))


class TestMisses:
    """The error of a request that is not there."""

    async def test_a_miss_shows_the_nearest_recording_and_what_differs(self, tape: Path) -> None:
        """As a short diff, with the recording's number; the error carries both."""
        system = ChatMessage(Role.SYSTEM, Content(text="You are a poet.\nBe brief."))
        requests = [CompleteRequest(messages=[system, user(text)]) for text in ("a rose", "the sea at night", "x")]
        await recorded(tape, ["1", "2", "3"], requests)
        asked = CompleteRequest(messages=[system, user("the sea at noon")])
        with pytest.raises(CassetteMissError) as caught:
            await replay(tape).complete(asked)
        error = caught.value
        assert error.nearest in (0, 1, 2)
        assert "+    the sea at noon" in error.diff
        assert "Be brief" not in error.diff
        assert error.diff in str(error)
        assert str(tape) in str(error)

    async def test_the_nearest_is_the_one_of_the_same_conversation(self, tape: Path) -> None:
        """A recording that shares most of its messages comes before one that shares none."""
        await recorded(tape, ["1", "2", "3"], [asking("p", "q"), asking("a", "b", "c"), asking("z")])
        with pytest.raises(CassetteMissError) as caught:
            await replay(tape).complete(asking("a", "b", "d"))
        assert caught.value.nearest == 1
        assert caught.value.diff.splitlines()[-2:] == ["-    c", "+    d"]

    async def test_a_long_difference_is_cut(self, tape: Path) -> None:
        """A person cannot read a thousand lines, or one of a million characters."""
        await recorded(tape, ["1"], [asking("\n".join(f"old {at}" for at in range(500)))])
        with pytest.raises(CassetteMissError) as caught:
            await replay(tape).complete(asking("y" * 100_000 + "\n".join(f"new {at}" for at in range(500))))
        assert len(str(caught.value)) < 12_000
        assert "more lines" in str(caught.value)

    async def test_a_miss_is_never_mended_by_another_mode(self, tape: Path) -> None:
        """Its text may well speak of JSON schemas; it is passed through as what it is."""
        await recorded(tape, ["1"], [asking("answer in json_schema, response_format")])
        with pytest.raises(CassetteMissError) as caught:
            await replay(tape).complete(asking("answer in JSON mode, structured output"))
        assert not is_invalid_json_schema_error(caught.value)

    async def test_unused_recordings_can_be_asserted(self, tape: Path) -> None:
        """By number and by the last message."""
        await recorded(tape, ["1", "2"], [asking("used"), asking("left over")])
        client = replay(tape)
        await client.complete(asking("used"))
        with pytest.raises(CassetteUnusedError, match="1: 1 messages, the last by user: left over") as caught:
            client.cassette.assert_all_used()
        assert caught.value.unused == (1,) == client.cassette.unused
        await client.complete(asking("left over"))
        client.cassette.assert_all_used()


SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-" + "a1B2" * 6,
    "AIzaSyA1234567890abcdefghijklmnopqrstu",
    "gsk_abcdefghijklmnopqrstuvwx",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "xoxb-123456789012-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk-_x",
]


class TestSecrets:
    """What never gets onto a tape."""

    @pytest.mark.parametrize("secret", SECRETS)
    async def test_a_key_is_known_by_its_shape_wherever_it_stands(self, tape: Path, secret: str) -> None:
        """In every kind of message, in calls, settings, schemas, answers, streams and failures."""
        request = CompleteRequest(
            messages=[
                ChatMessage(Role.SYSTEM, Content(text=f"key {secret}.")),
                ChatMessage(
                    Role.USER, Content(parts=[TextPart(f"({secret})"), ImagePart(url=f"https://x/?key={secret}")])
                ),
                ChatMessage(
                    Role.ASSISTANT, tool_calls=[ToolCallStructured("c1", "add", json.dumps({"k": secret}).encode())]
                ),
                ChatMessage(Role.TOOL, Content(text=json.dumps({"out": f"x={secret}"})), tool_call_id="c1"),
            ],
            tools=[ToolDeclaration("add", f"use {secret}", {"default": secret})],
            extra={"note": secret},
        )
        answer = calls_tools(("add", {"k": secret}), content=f"it is {secret}", reasoning=f"hm {secret}")
        error = RateLimitedError(f"bad key {secret}", model=f"m {secret}")
        text = await recorded(tape, [answer, error], [Ears().on(request), request])
        assert secret not in text
        assert "***" in text
        played = await replay(tape).complete(request)
        assert played.content == "it is ***"

    @pytest.mark.parametrize(
        "planted",
        [
            '{"password": "hunter2!"}',
            '{"API_KEY":"hunter2!","x":1}',
            '{"client_secret" : "a\\"hunter2!"}',
            json.dumps({"out": json.dumps({"token": 'a"hunter2!'})}),
            "Authorization: Bearer hunter2!",
            "postgres://user:hunter2!@db/x",
            "https://x/y?a=1&access_token=hunter2!&b=2",
            "-----BEGIN RSA PRIVATE KEY-----\nhunter2!\n-----END RSA PRIVATE KEY-----",
        ],
    )
    async def test_a_secret_is_known_by_its_name(self, tape: Path, planted: str) -> None:
        """In JSON, in JSON inside JSON, in headers and addresses that a text quotes, and in keys of PEM."""
        text = await recorded(tape, [f"I saw {planted}"], [asking(planted)])
        assert "hunter2" not in text.replace("Bearer ***!", "")

    async def test_the_environments_own_secrets_are_hidden_whatever_they_look_like(self, tape: Path) -> None:
        """Variables that are called like secrets, and what the caller names; short values are no secrets."""
        environ = {
            "MY_API_KEY": "plain words as key",
            "DB_PASSWORD": "correct horse",
            "PLACE": "not so secret",
            "X_TOKEN": "ab",
        }
        client = record(ScriptedLLM(["correct horse"]), tape, environ=environ, secrets=["staple battery"])
        request = asking("plain words as key, correct horse, staple battery, not so secret ab")
        await client.complete(request)
        text = text_of(tape)
        assert "***, ***, ***, not so secret ab" in text
        assert "horse" not in text
        assert secrets_of(environ) == ["plain words as key", "correct horse", "ab"]

    async def test_a_key_in_the_configuration_is_hidden(self, tape: Path) -> None:
        """A key that is written into the configuration itself is never on the tape."""
        cfg = ConfigSnapshot(
            provider="p", model="mock", api_key="a literal key", extra={"cassette": str(tape), "record": "scripted"}
        )
        cfg_client = make(_with_script(cfg, tape.parent, "a literal key, said back"), DEPS)
        await cfg_client.complete(asking("a literal key"))
        assert "literal" not in text_of(tape)

    @given(st.text(alphabet='\\"{}:, apikeytokn', max_size=300))
    def test_scrubbing_any_text_ends(self, text: str) -> None:
        """However many quotes and backslashes it has, and scrubbing again changes nothing."""
        once = Scrubber().text(text)
        assert Scrubber().text(once) == once

    def test_a_hostile_text_is_scrubbed_in_proportion(self) -> None:
        """A field that never ends, with any number of backslashes, costs no more than its length."""
        Scrubber().text('"token":"' + "\\a" * 50_000)
        Scrubber().text('\\"token\\":\\"' + "\\\\a" * 50_000)


def _with_script(cfg: ConfigSnapshot, folder: Path, text: str) -> ConfigSnapshot:
    folder.mkdir(exist_ok=True)
    script = folder / "script.json"
    script.write_text(json.dumps([{"text": text}]))
    return replace(cfg, model=str(script))


class TestFiles:
    """The file itself."""

    async def test_it_reads_as_a_conversation(self, tape: Path) -> None:
        """The file has the new part of each exchange, and tools once; loading and saving changes nothing."""
        one = asking("a", tools=[TOOL])
        two = asking("a", "b", tools=[TOOL])
        text = await recorded(tape, ["1", "2"], [one, two], model="openai:gpt-5")
        plain = json.loads(text)
        assert (plain["harborage_cassette"], plain["model"]) == (1, "openai:gpt-5")
        assert [exchange["request"]["messages"] for exchange in plain["exchanges"]] == [
            [{"role": "user", "text": "a"}],
            [{"role": "user", "text": "b"}],
        ]
        assert plain["exchanges"][1]["request"]["follows"] == 0
        assert list(plain["tools"].values()) == [[{"name": "add", "description": "Add.", "schema": TOOL.schema}]]
        assert text.count("\n") > 20
        loaded = Cassette.load(tape)
        loaded.save()
        assert text_of(tape) == text
        assert list(tape.parent.iterdir()) == [tape]

    async def test_a_long_text_is_a_list_of_lines(self, tape: Path) -> None:
        """So that a change of a prompt is a change of a line; what is played is the same."""
        text = await recorded(tape, ["x"], [asking("one\n\ntwo\n")])
        assert json.loads(text)["exchanges"][0]["request"]["messages"][0]["text"] == ["one", "", "two", ""]
        assert (await replay(tape).complete(asking("one\n\ntwo\n"))).content == "x"

    async def test_it_is_kept_after_every_exchange(self, tape: Path) -> None:
        """A recording that is cut short is a shorter recording; nothing is written before the first."""
        client = record(ScriptedLLM(["1", "2"]), tape)
        assert text_of(tape) == ""
        await client.complete(asking("a"))
        assert len(Cassette.load(tape).exchanges) == 1
        await client.complete(asking("b"))
        assert len(Cassette.load(tape).exchanges) == 2

    async def test_many_runs_may_share_one_tape(self, tape: Path) -> None:
        """Recorded and played side by side, each request gets its own answer."""
        script = ScriptedModel(Script(tuple(ScriptedTurn(text=f"{at}", when=f"<{at}>") for at in range(40))))
        client = record(script, tape)
        await asyncio.gather(*(client.complete(asking(f"<{at}>")) for at in range(40)))
        playing = replay(tape)
        answers = await asyncio.gather(*(playing.complete(asking(f"<{at}>")) for at in reversed(range(40))))
        assert [answer.content for answer in answers] == [str(at) for at in reversed(range(40))]
        playing.cassette.assert_all_used()

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("", "no cassette"),
            ("{}", "harborage_cassette"),
            ('{"harborage_cassette": 2}', "version is 2, and 1 is known"),
            ('{"harborage_cassette": 1, "exchanges": [{}]}', r"exchanges\[0\]"),
            ('{"harborage_cassette": 1, "oddity": 1}', "oddity"),
            ('{"harborage_cassette": 1, "exchanges": [{"request": {"messages": []}}]}', "answer or a failure"),
            (
                '{"harborage_cassette": 1, "exchanges": [{"request": {"messages": [], "follows": 0}, "answer": {}}]}',
                "follows 0",
            ),
            (
                '{"harborage_cassette": 1, "exchanges": [{"request": {"messages": [{"text": [1]}]}, "answer": {}}]}',
                "list of strings",
            ),
            (
                '{"harborage_cassette": 1, "exchanges": [{"request": {"messages": [], "tools": "t"}, "answer": {}}]}',
                "'t'",
            ),
        ],
    )
    def test_a_file_that_is_no_cassette_is_refused(self, tmp_path: Path, content: str, says: str) -> None:
        """With its name and the place."""
        path = tmp_path / "x.json"
        path.write_text(content)
        with pytest.raises(CassetteInvalidError, match=says) as caught:
            replay(path)
        assert str(path) in str(caught.value)

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        """As the system says it."""
        with pytest.raises(CassetteInvalidError, match="No such file"):
            replay(tmp_path / "nowhere.json")

    async def test_an_empty_cassette_says_so(self, tape: Path) -> None:
        """There is no nearest recording to show."""
        Cassette(tape).save()
        with pytest.raises(CassetteMissError, match="is empty") as caught:
            await replay(tape).complete(asking("x"))
        assert caught.value.nearest is None


class TestDriver:
    """Cassettes in a whole chain."""

    async def test_a_chain_records_a_driver_and_plays_it_back(self, tape: Path) -> None:
        """The tape takes the place of the driver, so both go through the same layers."""
        assert LLM_DRIVERS.factory("cassette") is make
        cfg = ConfigSnapshot(
            driver="cassette",
            provider="script",
            profiles={},
            extra={"cassette": str(tape), "record": "scripted"},
        )
        real = _with_script(cfg, tape.parent, "from the script")
        profiles = {real.model: ModelProfile(context_window_tokens=1000)}
        client = await open_llm(replace(real, profiles=profiles), DEPS)
        assert (await client.complete(asking("hi"))).content == "from the script"
        await client.close()
        assert Cassette.load(tape).model == f"script:{real.model}"
        playing = await open_llm(cassette_config(tape, environ={}), DEPS)
        assert (await playing.complete(asking("hi"))).content == "from the script"
        with pytest.raises(CassetteMissError):
            await playing.complete(asking("ho"))
        await playing.close()

    async def test_the_recorded_models_profile_shapes_the_replay(self, tape: Path) -> None:
        """A cassette of a known model is played as that model, without its key."""
        await recorded(tape, ["x"], [asking("hi")], model="openai:gpt-5-mini")
        cfg = cassette_config(tape, environ={})
        assert (cfg.driver, cfg.provider, cfg.model, cfg.api_key) == ("cassette", "openai", "gpt-5-mini", "")
        assert "gpt-5-mini" in cfg.profiles

    def test_the_environment_says_what_to_record(self, tape: Path) -> None:
        """Everything is configured as for the real model; a missing key is an error before any call."""
        environ = {"HARBORAGE_RECORD": "openai:gpt-5-mini", "OPENAI_API_KEY": "k"}
        cfg = cassette_config(tape, environ=environ)
        assert (cfg.driver, cfg.extra["record"], cfg.model) == ("cassette", "openai_compat", "gpt-5-mini")
        with pytest.raises(Exception, match="OPENAI_API_KEY"):
            cassette_config(tape, environ={"HARBORAGE_RECORD": "openai:gpt-5-mini"})

    async def test_the_models_name_may_be_the_file(self, tape: Path) -> None:
        """A configuration that only names a file plays it; one that names nothing is refused."""
        await recorded(tape, ["x"], [asking("hi")])
        assert (await make(ConfigSnapshot(model=str(tape)), DEPS).complete(asking("hi"))).content == "x"
        with pytest.raises(CassetteInvalidError, match="name the cassette's file"):
            make(ConfigSnapshot(), DEPS)


class TestHelper:
    """`harborage.testing.cassettes`."""

    async def test_a_block_plays_and_must_use_everything(self, tape: Path) -> None:
        """Unless that is switched off, or the block failed anyway."""
        await recorded(tape, ["1", "2"], [asking("a"), asking("b")])
        async with cassette(tape, environ={}) as model:
            assert [(await model.complete(asking(text))).content for text in "ab"] == ["1", "2"]
        with pytest.raises(CassetteUnusedError):
            async with cassette(tape, environ={}):
                pass
        async with cassette(tape, all_used=False, environ={}):
            pass
        with pytest.raises(ZeroDivisionError):
            async with cassette(tape, environ={}):
                raise ZeroDivisionError
        with pytest.raises(ClientClosedError):
            await model.complete(asking("a"))

    async def test_a_block_records_when_the_environment_says_so(self, tape: Path) -> None:
        """With the client that the test opens; without one the error names what is missing."""
        inner = ScriptedLLM(["1"])

        async def opened() -> ScriptedLLM:
            return inner

        environ = {"HARBORAGE_RECORD": "openai:gpt-5-mini"}
        async with cassette(tape, real=opened, environ=environ) as model:
            await model.complete(asking("a"))
        assert inner.is_closed
        assert Cassette.load(tape).model == "openai:gpt-5-mini"
        with pytest.raises(CassetteError, match="no real client"):
            async with cassette(tape, environ=environ):
                pass
