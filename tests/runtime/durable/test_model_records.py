"""What a model was asked and answered, on record: each message once, and every request whole again when it is read."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harborage import codec
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    Content,
    ContextOverflowError,
    Cost,
    ImagePart,
    LLMError,
    RateLimitedError,
    ReasoningEffort,
    Role,
    TextPart,
    ToolCallStructured,
    ToolDeclaration,
    Usage,
)
from harborage.runtime.durable.model_records import (
    Exchange,
    ExchangeRecorder,
    Failure,
    Prompt,
    RecordedAnswer,
    RecordedModelError,
    RecordedRequest,
    Settings,
    error_of,
    failure_of,
    prompt_of,
    prompts_of,
    record_answer,
    response_of,
    slim,
)
from tests.kit.tables import each_row

ADD = ToolDeclaration("add", "Add.", {"type": "object", "required": ("a", "b")})


def message(text: str, role: Role = Role.USER) -> ChatMessage:
    return ChatMessage(role, Content(text=text))


def prompt(*texts: str, tools: tuple[ToolDeclaration, ...] = (), settings: Settings = Settings()) -> Prompt:  # noqa: B008
    return Prompt(tuple(map(message, texts)), tools, settings)


def recorded(prompts: list[Prompt], transcript: ExchangeRecorder | None = None) -> list[Exchange]:
    """The exchanges as a record holds them: written as JSON and read again."""
    transcript = transcript or ExchangeRecorder()
    rendered = [Exchange(transcript.encode_request(one), RecordedAnswer(content="ok")) for one in prompts]
    return codec.decode(codec.encode(rendered), list[Exchange])  # type: ignore[no-any-return]


def test_a_continued_request_records_only_what_is_new() -> None:
    """The system prompt, the tools and the history so far are on record once."""
    tools = (ADD,)
    first, second = recorded(
        [prompt("system", "goal", tools=tools), prompt("system", "goal", "call", "ok", tools=tools)]
    )
    assert [one.content.text for one in first.asked.messages] == ["system", "goal"]
    assert first.asked.tools is not None
    assert second.asked == RecordedRequest(4, 1, ((0, 2),), (message("call"), message("ok")))


def test_a_change_in_the_middle_is_shown_alone() -> None:
    """A system prompt that says something else does not bring the whole conversation on record again."""
    rendered = recorded([prompt("system", *"abcdefgh"), prompt("system!", *"abcdefghi")])[1].asked
    assert rendered.kept == ((1, 9),)
    assert [one.content.text for one in rendered.messages] == ["system!", "i"]


def test_two_conversations_do_not_disturb_each_other() -> None:
    """A summary that is asked for in between is recorded for itself; the planner's next request follows the
    planner's."""
    steps = [
        prompt("system", "a"),
        prompt("summarise", "x", "y"),
        prompt("system", "a", "b"),
        prompt("system", "a", "b", "c"),
    ]
    rendered = [one.asked for one in recorded(steps)]
    assert [one.follows for one in rendered] == [0, 0, 2, 1]
    assert [len(one.messages) for one in rendered] == [2, 3, 1, 1]


def test_other_settings_are_recorded_when_they_change() -> None:
    """Tools and settings of a request are those of the one it follows, unless it has its own."""
    other = Settings(temperature=0.5, reasoning_effort=ReasoningEffort.LOW, extra={"k": [1]})
    steps = [prompt("s", "a", tools=(ADD,)), prompt("s", "a", settings=other), prompt("s", "a", "b", settings=other)]
    exchanges = recorded(steps)
    assert exchanges[1].asked.tools == ()
    assert exchanges[2].asked.tools is None
    assert exchanges[2].asked.settings is None
    assert [one.settings for one in prompts_of(exchanges)] == [Settings(), other, other]


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=12), max_size=12), st.integers(0, 12))
def test_every_request_is_whole_again(conversations: list[list[str]], carried_on_at: int) -> None:
    """Whatever is asked in whatever order, and wherever another process carries the run on."""
    prompts = [prompt(*texts) for texts in conversations]
    first = recorded(prompts[:carried_on_at])
    later = ExchangeRecorder()
    for exchange in first:
        later.add_recorded(codec.encode([exchange]))
    assert prompts_of([*first, *recorded(prompts[carried_on_at:], later)]) == prompts


def test_a_run_carried_on_records_no_message_again() -> None:
    """What an earlier process recorded is followed, though the messages are other objects now."""
    transcript = ExchangeRecorder()
    transcript.add_recorded(codec.encode(recorded([prompt("system", "a", "b", tools=(ADD,))])))
    rendered = recorded([prompt("system", "a", "b", "c")], transcript)[0].asked
    assert (rendered.follows, [one.content.text for one in rendered.messages]) == (1, ["c"])


def test_a_record_that_cannot_be_read_is_not_followed() -> None:
    """What follows is recorded in full, and can be read."""
    transcript = ExchangeRecorder()
    transcript.add_recorded(b'[{"asked":{"count":3,"follows":7}}]')
    assert prompts_of(recorded([prompt("a", "b")], transcript)) == [prompt("a", "b")]


def test_what_could_not_be_recorded_is_not_followed() -> None:
    """A request that the record does not hold is none that others can build on."""
    transcript = ExchangeRecorder()
    transcript.encode_request(prompt("a", "b"))
    transcript.forget_last()
    assert transcript.encode_request(prompt("a", "b", "c")).follows == 0


@each_row(
    "asked",
    [
        RecordedRequest(1, 2),
        RecordedRequest(1, -1),
        RecordedRequest(1, 1, ((0, 3),)),
        RecordedRequest(3, 1, ((1, 1),)),
        RecordedRequest(9, 1, ((0, 5),)),
    ],
)
def test_a_damaged_request_is_an_error(asked: RecordedRequest) -> None:
    """One that follows nothing, or keeps what is not there, is not made up."""
    with pytest.raises(ValueError, match="exchange 1"):
        prompts_of([Exchange(RecordedRequest(2, messages=(message("a"), message("b")))), Exchange(asked)])


def test_pictures_are_distinguished_by_their_hash() -> None:
    """Bytes of a picture are not on record; another picture is another prompt, and a hashed one stays as it is."""
    one, other = (
        Prompt((ChatMessage(Role.USER, Content(parts=(TextPart("see"), ImagePart(data_url=url)))), message("x")))
        for url in ("data:image/png;base64," + "A" * 5000, "data:image/png;base64," + "B" * 5000)
    )
    (rendered,) = recorded([one])
    assert len(codec.encode(rendered)) < 400
    assert prompts_of([rendered]) == [slim(one)]
    assert slim(slim(one)) == slim(one)
    assert slim(one) != slim(other)


def test_a_request_is_what_changes_the_answer() -> None:
    """Callbacks, streaming, the deadline and the model's name are left out."""
    plain = CompleteRequest(messages=[message("a")], tools=[ADD])
    streamed = CompleteRequest(model="m", messages=[message("a")], tools=[ADD], stream=True, on_content=lambda *_: None)
    assert prompt_of(plain) == prompt_of(streamed)
    assert prompt_of(plain) != prompt_of(CompleteRequest(messages=[message("a")], tools=[ADD], temperature=0.0))


def test_an_answer_comes_back_as_it_was() -> None:
    """Text, thinking, calls with the very bytes of their arguments, tokens and cost."""
    response = CompleteResponse(
        "text",
        (ToolCallStructured("id", "add", b'{ "a": "\xff" }', 1),),
        "thinking",
        Cost(total_cost=0.5, currency="USD"),
        Usage(prompt_tokens=3, provider_extras={"cached": 1}),
        "tool_calls",
    )
    again = codec.decode(codec.encode(record_answer(response)), RecordedAnswer)
    assert response_of(again) == response
    assert response_of(RecordedAnswer()) == CompleteResponse()


@each_row(
    "error",
    [
        RateLimitedError("slow down", provider="p", model="m", status=429, retry_after_s=3.5),
        ContextOverflowError("too long", status=400),
        LLMError("what"),
    ],
)
def test_a_failure_comes_back_as_the_error_it_was(error: LLMError) -> None:
    """Class, text and what it carries: a planner that looks at them decides the same."""
    again: Any = error_of(codec.decode(codec.encode(failure_of(error)), Failure))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again).items() >= vars(error).items()


def test_a_strange_error_keeps_its_text() -> None:
    """An error class of an unknown client comes back as one of the model's, without what it carried."""
    again = error_of(failure_of(KeyError("x")))
    assert type(again) is RecordedModelError
    assert str(again) == str(KeyError("x"))
    assert str(error_of(failure_of(OSError()))) == "OSError"
