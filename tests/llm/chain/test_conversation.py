"""A conversation is read where it has grown, and adds up to the same as if it were read whole."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from harborage import codec
from harborage.llm import (
    ArtifactStub,
    AudioPart,
    ChatMessage,
    CompleteRequest,
    Content,
    FilePart,
    ImagePart,
    InvalidContentError,
    LLMError,
    OrphanToolCallError,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolDeclaration,
)
from harborage.llm.chain import conversation
from harborage.llm.chain.conversation import (
    ConversationFacts,
    MessageFacts,
    memoize_on,
    message_tokens,
    read_conversation,
    read_messages,
    tokens_beside_messages,
)
from tests.kit.tables import each_row

Messages = list[ChatMessage]


def said(text: str, role: Role = Role.USER) -> ChatMessage:
    """A message of one text."""
    return ChatMessage(role, Content(text))


def turn(*ids: str, tool: str = "echo") -> Messages:
    """A turn's calls and their answers."""
    calls = [ToolCallStructured(one, tool) for one in ids]
    answers = [ChatMessage(Role.TOOL, Content(one), tool_call_id=one) for one in ids]
    return [ChatMessage(Role.ASSISTANT, tool_calls=calls), *answers]


def image() -> ChatMessage:
    """A message with an inline image."""
    return ChatMessage(Role.USER, Content(parts=[ImagePart(data_url="data:,x")]))


def copied(messages: Messages) -> Messages:
    """Equal messages of which nothing is known."""
    return [ChatMessage(one.role, one.content, one.name, one.tool_call_id, one.tool_calls) for one in messages]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each reading has looked at."""
    counts: list[int] = []

    def counting(messages: Messages, start: int) -> list[object]:
        counts.append(len(messages) - start)
        return read_messages(messages, start)

    monkeypatch.setattr(conversation, "read_messages", counting)
    return counts


def test_what_a_conversation_comes_to() -> None:
    """Sizes and places are those of its messages, names those of its calls."""
    messages = [said("be brief", Role.SYSTEM), image(), *turn("a", "b"), image(), *turn("c", tool="add"), said("ä" * 9)]
    tokens = sum(map(message_tokens, messages))
    assert read_conversation(messages) == ConversationFacts(tokens, 18, (1, 5), frozenset({"echo", "add"}))
    assert read_conversation([]) == ConversationFacts()


def test_only_what_is_new_is_looked_at(looked_at: list[int]) -> None:
    """A step brings a turn; what came before it is known, with a system message made anew and with what comes last."""
    history = [said("goal")]
    for step in range(5):
        history += turn(f"{step}", f"{step}b")
        read_conversation([said("be brief", Role.SYSTEM), *history, said(f"status {step}")])
    assert looked_at == [6, 4, 4, 4, 4]


def test_the_same_conversation_again(looked_at: list[int]) -> None:
    """Every layer of a chain may ask."""
    messages = [said("goal"), *turn("a")]
    first = read_conversation(messages)
    assert read_conversation(tuple(messages)) == first
    assert looked_at == [3]


@pytest.mark.parametrize("change", ["instead", "before", "gone"])
def test_another_beginning(looked_at: list[int], change: str) -> None:
    """Where anything before is not what it was, everything is looked at again."""
    system, *history = [said("be brief", Role.SYSTEM), said("goal"), *turn("a")]
    read_conversation([system, *history])
    beginning = {"instead": [said("be long", Role.SYSTEM)], "before": [system, system], "gone": []}[change]
    messages = [*beginning, *history, *turn("b")]
    assert read_conversation(messages) == read_conversation(copied(messages))
    assert looked_at[1] == len(messages)


def test_errors_name_places_in_the_whole() -> None:
    """An error behind a known beginning is the one of a whole reading."""
    history = [said("goal"), *turn("a")]
    read_conversation(history)
    with pytest.raises(InvalidContentError, match=r"^message 4: "):
        read_conversation([*history, said("go on"), ChatMessage(Role.USER, Content())])
    with pytest.raises(OrphanToolCallError, match=r"^message 3 \(tool\) answers 'a', but no call is without"):
        read_conversation([*history, history[-1]])
    with pytest.raises(OrphanToolCallError, match=r"^the conversation of 4 message\(s\) ends without .* 'b'"):
        read_conversation([*history, turn("b")[0]])


def test_one_beginning_is_kept_for_a_run() -> None:
    """However long a run is, what is kept beside its messages holds its history once."""
    history: Messages = []
    for step in range(20):
        history += turn(f"{step}")
        read_conversation([said("be brief" if step % 2 else "be long", Role.SYSTEM), *history])
        read_conversation(history)
    assert sum("llm.prefix" in vars(one) for one in history) == 1


class Watched(ChatMessage, frozen=True, weakref=True):
    """A message whose end of life is visible."""


def test_a_run_that_is_over_is_gone() -> None:
    """What is kept beside its messages makes no cycle that would hold them."""
    goal = Watched(Role.USER, Content("goal"))
    alive = weakref.ref(goal)
    history = [goal, *turn("a")]
    del goal
    read_conversation(history)
    history += turn("b")
    read_conversation(history)
    gc.disable()
    try:
        history.clear()
        assert alive() is None
    finally:
        gc.enable()


PIECES = st.sampled_from(["user", "image", "turn", "turns", "call", "answer", "malformed"])


@given(st.lists(st.lists(PIECES, max_size=4), max_size=5), st.sets(st.integers(0, 5)))
def test_growing_is_no_different_from_reading_whole(steps: list[list[str]], renewed: set[int]) -> None:
    """For any messages added at each step, results and errors are those of a conversation that is read whole."""
    history: Messages = []
    head = said("be brief", Role.SYSTEM)
    for at, pieces in enumerate(steps):
        head = said(f"step {at}", Role.SYSTEM) if at in renewed else head
        for piece in pieces:
            history += PIECE[piece](f"{len(history)}")
        assert outcome([head, *history]) == outcome(copied([head, *history]))


PIECE: dict[str, Callable[[str], Messages]] = {
    "user": lambda one: [said(one)],
    "image": lambda _: [image()],
    "turn": turn,
    "turns": lambda one: turn(one, f"{one}b", tool=f"tool {one}"),
    "call": lambda one: turn(one)[:1],
    "answer": lambda one: turn(one)[1:],
    "malformed": lambda _: [ChatMessage(Role.USER, Content())],
}


def outcome(messages: Messages) -> object:
    """What reading them gives, or the error's kind and text."""
    try:
        return read_conversation(messages)
    except LLMError as error:
        return type(error), str(error)


def asks(*ids: str) -> ChatMessage:
    """An assistant that makes these calls."""
    return ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured(one, "echo") for one in ids])


def answers(id: str | None) -> ChatMessage:
    """A tool's answer."""
    return ChatMessage(Role.TOOL, Content("1"), tool_call_id=id)


USER = ChatMessage(Role.USER, Content("hi"))
SYSTEM = ChatMessage(Role.SYSTEM, Content("be brief"))
PLAIN = ChatMessage(Role.ASSISTANT, Content("hello"))


@each_row(
    "messages",
    [
        (),
        (SYSTEM, USER, PLAIN, USER),
        (USER, asks("a"), answers("a"), USER),
        (USER, asks("a", "b"), answers("b"), answers("a")),
        (USER, asks("a"), answers("a"), asks("a"), answers("a")),
    ],
    ids=["empty", "plain", "one call", "parallel calls in any order", "an id used again later"],
)
def test_a_paired_conversation_passes(messages) -> None:
    """Answers follow their calls, each once."""
    read_conversation(messages)


@each_row(
    "messages, text",
    [
        ((answers("a"),), r"message 0 \(tool\) answers 'a', but no call is without an answer"),
        ((USER, asks("a", "b"), answers("a")), "ends without answers to the calls 'b'"),
        ((asks("a"), USER), r"message 1 \(user\) comes before the answers to the calls 'a'"),
        ((asks("a"), SYSTEM), r"message 1 \(system\) comes before"),
        ((asks("a"), PLAIN), r"message 1 \(assistant\) comes before"),
        ((asks("a"), asks("b")), r"message 1 \(assistant\) comes before"),
        ((asks("a"), answers("b")), r"message 1 \(tool\) answers 'b', but the calls without an answer are 'a'"),
        ((asks("a"), answers("a"), answers("a")), r"message 2 \(tool\) answers 'a'"),
        ((asks("a"), answers(None)), r"message 1 \(tool\) names no call: set tool_call_id"),
        ((asks("a"), answers("")), r"message 1 \(tool\) names no call"),
        ((asks("a", ""),), r"message 0 \(assistant\) needs an id of its own for each call"),
        ((asks(""),), r"message 0 \(assistant\) needs an id of its own"),
        ((asks("a", "a"),), r"message 0 \(assistant\) needs an id of its own for each call: 'a', 'a'"),
    ],
)
def test_an_orphan_is_named(messages, text: str) -> None:
    """The first place where calls and answers do not pair is named, with the ids."""
    with pytest.raises(OrphanToolCallError, match=text):
        read_conversation(messages)


@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True, min_size=1), max_size=4), st.randoms())
def test_legal_conversations_pass_and_lose_no_message(turns: list[list[str]], random) -> None:
    """Any turns of answered calls pass; without any one of the answers they do not."""
    messages: list[ChatMessage] = [USER]
    for ids in turns:
        messages += [asks(*ids), *(answers(one) for one in random.sample(ids, len(ids)))]
    read_conversation(messages)
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            with pytest.raises(OrphanToolCallError):
                read_conversation(messages[:at] + messages[at + 1 :])


def calls(*ids: str) -> ChatMessage:
    """An assistant that makes these calls."""
    return ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured(one, "echo") for one in ids])


def known(message: ChatMessage) -> MessageFacts:
    """What is known of one message."""
    (facts,) = read_messages([message])
    return facts


@each_row(
    "content, longest, has_data_url",
    [
        (Content("äb"), 3, False),
        (Content(""), 0, False),
        (Content(parts=[]), 0, False),
        (Content(parts=[TextPart("abc"), TextPart("é")]), 3, False),
        (Content(parts=[ImagePart(url="https://x/y")]), 0, False),
        (Content(parts=[ImagePart(data_url="data:,x"), ImagePart(url="u")]), 0, True),
    ],
)
def test_content(content: Content, longest: int, has_data_url: bool) -> None:
    """The longest text is in bytes, and heavy inline content is marked."""
    facts = known(ChatMessage(Role.USER, content))
    assert (facts.longest_text, facts.has_data_url) == (longest, has_data_url)


@each_row("ids, asks", [(("a", "b"), ("a", "b")), (("a", ""), None), (("a", "a"), None)])
def test_calls(ids: tuple[str, ...], asks: tuple[str, ...] | None) -> None:
    """A turn's calls are known by their ids, if each has one of its own."""
    facts = known(calls(*ids))
    assert (facts.asks, facts.called, facts.is_answer) == (asks, ("echo",), False)


def test_an_answer() -> None:
    """A tool's message is an answer, also when it names no call; a user's never is one."""
    assert known(ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")).answers == "a"
    assert known(ChatMessage(Role.TOOL, Content("1"))).is_answer
    assert known(ChatMessage(Role.USER, Content("1"), tool_call_id="a")).answers is None


def test_a_message_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time it is known; a new one that is equal is not."""
    message = ChatMessage(Role.USER, Content("hi"))
    first = known(message)
    seen: list[object] = []
    monkeypatch.setattr("harborage.llm.chain.conversation.check_message", seen.append)
    assert known(message) is first
    assert seen == []
    other = ChatMessage(Role.USER, Content("hi"))
    assert known(other) == first
    assert seen == [other]


def test_a_malformed_message_stays_malformed() -> None:
    """Nothing is remembered of it, so it is refused as often as it comes, by its index among all."""
    good, bad = ChatMessage(Role.USER, Content("hi")), ChatMessage(Role.USER, Content())
    for _ in range(2):
        with pytest.raises(InvalidContentError, match=r"^message 2: "):
            read_messages([good, good, bad], 1)


def tokens(*messages: ChatMessage, **fields) -> int:
    """The estimate for a request."""
    return sum(map(message_tokens, messages)) + tokens_beside_messages(CompleteRequest(messages=messages, **fields))


def user(text: str, **fields) -> ChatMessage:
    """A user's message."""
    return ChatMessage(Role.USER, Content(text), **fields)


@each_row(
    "message, expected",
    [
        (user(""), 4 + 1),
        (user("abc"), 4 + 1),
        (user("abcd"), 4 + 2),
        (user("éé"), 4 + 2),
        (user("abcd", name="abcd"), 4 + 2 + 2),
        (ChatMessage(Role.USER, Content(parts=[])), 4),
        (ChatMessage(Role.USER, Content(parts=[TextPart("abcd"), TextPart("")])), 4 + 2 + 1),
        (
            ChatMessage(Role.USER, Content(parts=[ImagePart(url="x"), AudioPart(url="x"), FilePart(url="x")])),
            4 + 3 * 256,
        ),
        (ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("a", "echo", b'{"a": 1}')]), 4 + 4),
    ],
)
def test_each_kind_of_message(message: ChatMessage, expected: int) -> None:
    """Texts count their bytes, other media a flat sum, tool calls their name and arguments."""
    assert tokens(message) == expected


def test_everything_beside_the_messages_counts() -> None:
    """Schema, stops, extra fields and tool declarations are sent too."""
    schema, extra = b'{"type":"object"}', {"a": [1, 2, 3]}
    tool = ToolDeclaration("echo", "says it again", {"type": "object"})
    assert tokens(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, schema)) == len(schema) // 4 + 1
    assert tokens(response_format=ResponseFormat(ResponseFormatKind.JSON_OBJECT)) == 0
    assert tokens(stops=["abcd", ""]) == 2 + 1
    assert tokens(extra=extra) == len(codec.encode(extra)) // 4 + 1
    declared = len("echo") + len("says it again") + len(codec.encode(tool.schema))
    assert tokens(tools=[tool, tool]) == 2 * (declared // 4 + 1)
    assert tokens() == 0


def test_tools_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A declaration is known again, however many requests bring it."""
    tool = ToolDeclaration("echo", schema={"type": "object"})
    first = tokens(tools=[tool])
    monkeypatch.setattr("harborage.codec.encode", lambda *_: pytest.fail("measured again"))
    assert tokens(tools=[tool, tool]) == 2 * first


def test_a_schema_without_a_json_form_is_named() -> None:
    """The error says which tool it belongs to."""
    with pytest.raises(codec.UnserializableError, match="tool echo"):
        tokens(tools=[ToolDeclaration("echo", schema={"x": object()})])


IMAGE = ChatMessage(Role.USER, Content(parts=[ImagePart(url="https://x/y.png")]))


def test_the_messages_with_data_urls_are_found() -> None:
    """A well-formed conversation gives the places of its messages that hold heavy content inline."""
    empty = ChatMessage(Role.USER, Content(parts=[]))
    calls = ChatMessage(Role.ASSISTANT, tool_calls=[ToolCallStructured("a", "echo")])
    answer = ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")
    stub = ChatMessage(
        Role.USER, Content(parts=[TextPart("see"), ImagePart(artifact=ArtifactStub("r", "image/png", 1))])
    )
    inline = ChatMessage(Role.USER, Content(parts=[TextPart("see"), ImagePart(data_url="data:,x")]))
    assert read_conversation([USER, inline, IMAGE, empty, calls, answer, stub, inline]).data_urls == (1, 7)


def test_an_empty_text_is_a_text() -> None:
    """A text of any role may be empty."""
    assert read_conversation([ChatMessage(role, Content("")) for role in (Role.USER, Role.SYSTEM)]).longest_text == 0


@each_row(
    "message, text",
    [
        (ChatMessage(Role.USER, Content("a", ())), "both text and parts"),
        (ChatMessage(Role.USER, Content()), "neither text nor parts"),
        (ChatMessage(Role.ASSISTANT, Content()), "neither text nor parts"),
        (ChatMessage(Role.USER, Content(parts=[ImagePart()])), "part 0 .ImagePart. has no body"),
        (ChatMessage(Role.USER, Content(parts=["text"])), "part 0 is a str"),
        (ChatMessage(Role.USER, Content(parts=[ImagePart(url="data:image/png;base64,AA==")])), "give it as data_url"),
        (ChatMessage(Role.USER, Content(7)), "has a int as text"),
        (ChatMessage(Role.USER, "hi"), r"has a str as content; give Content\(text\)"),
        (ChatMessage("human", Content("hi")), "the role 'human'; give a Role: system, user, assistant, tool"),
        ({"role": "user", "content": "hi"}, "is a dict; give a ChatMessage"),
    ],
)
def test_a_malformed_message_is_named(message, text: str) -> None:
    """The error begins with the message's index and says what is wrong."""
    with pytest.raises(InvalidContentError, match=rf"^message 1.*{text}"):
        read_conversation([USER, message])


def test_bad_content_is_refused_before_pairing() -> None:
    """A malformed message is reported even where an earlier one breaks the pairing."""
    orphan = ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")
    with pytest.raises(InvalidContentError, match="message 1"):
        read_conversation([orphan, ChatMessage(Role.USER, Content())])
    with pytest.raises(OrphanToolCallError, match="message 0"):
        read_conversation([orphan, USER])


def message() -> ChatMessage:
    """A message of its own."""
    return ChatMessage(Role.USER, Content("hi"))


def test_it_is_made_once() -> None:
    """The same message gives what it gave before; another one that is equal has its own."""
    one, other, made = message(), message(), []
    assert [memoize_on(each, "n", lambda it: made.append(it) or len(made)) for each in (one, one, other, one)] == [
        1,
        1,
        2,
        1,
    ]


def test_a_failure_is_not_kept() -> None:
    """It is tried again."""
    one = message()
    with pytest.raises(ZeroDivisionError):
        memoize_on(one, "n", lambda _: 1 // 0)
    assert memoize_on(one, "n", lambda _: 7) == 7


def test_no_output_shows_it() -> None:
    """It is neither compared nor printed nor encoded, and a copy begins without it."""
    one = message()
    memoize_on(one, "n", lambda _: 7)
    assert one == message()
    assert hash(one) == hash(message())
    assert (repr(one), codec.encode(one), asdict(one)) == (repr(message()), codec.encode(message()), asdict(message()))
    for twin in (replace(one), copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert vars(twin) == {}
