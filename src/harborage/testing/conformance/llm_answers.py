"""Scenarios of good answers of a provider. Part of the suite in `llm`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from harborage import codec
from harborage.identity import IdentityMissingError
from harborage.llm import (
    ArtifactStub,
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    Content,
    ImagePart,
    InvalidContentError,
    InvalidJSONSchemaError,
    ProviderError,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    ToolCallStructured,
    ToolChoice,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.llm_bench import (
    ADD,
    PNG,
    Ability,
    Answer,
    DeltaRecorder,
    ProviderBench,
    ReceivedRequest,
    make_request,
)

TEXT = "The sum of two and three is five – naïve, but true. 🙂"
CALLERS = 128


def make_stream_request(
    content: DeltaRecorder, reasoning: DeltaRecorder | None = None, **fields: Any
) -> CompleteRequest:
    return make_request(stream=True, on_content=content, on_reasoning=reasoning, **fields)


async def text_comes_whole(bench: ProviderBench) -> None:
    """A plain call returns the model's text and its finish reason, and sends the question to the configured model."""
    bench.server.script(Answer(content=TEXT))
    answer = await bench.complete(make_request("What is 2 + 3?"))
    expect_equal((answer.content, answer.tool_calls), (TEXT, ()), "the answer")
    expect(bool(answer.finish_reason), "the answer says why it ended")
    (request,) = bench.server.requests
    expect("What is 2 + 3?" in request.text, "the question reaches the server")
    expect(bench.config.model in request.text + request.path, "the configured model is asked")


async def another_model_can_be_named(bench: ProviderBench) -> None:
    """A request that names a model is sent to that one."""
    bench.server.script("ok")
    await bench.complete(make_request(model="another-model"))
    (request,) = bench.server.requests
    expect("another-model" in request.text + request.path, "the model that the request names is asked")


async def text_comes_in_pieces(bench: ProviderBench) -> None:
    """Streamed text comes in pieces that make up the text; `done` comes once, last."""
    bench.server.script(Answer(content=TEXT))
    deltas = DeltaRecorder()
    answer = await bench.complete(make_stream_request(deltas))
    expect_equal((answer.content, deltas.text), (TEXT, TEXT), "the answer and the streamed text")
    expect(len(deltas.pieces) > 1, "the text comes in more than one piece")
    expect_equal((deltas.done, deltas.late), (1, 0), "calls with done, and pieces after it")


async def an_empty_answer_is_an_answer(bench: ProviderBench) -> None:
    """A model without output gives empty text, and `done` comes all the same."""
    bench.server.script(Answer(), Answer())
    deltas = DeltaRecorder()
    expect_equal((await bench.complete(make_stream_request(deltas))).content, "", "the streamed answer")
    expect_equal((deltas.pieces, deltas.done), ([], 1), "the streamed text")
    expect_equal((await bench.complete(make_request())).content, "", "the plain answer")


async def callbacks_are_optional(bench: ProviderBench) -> None:
    """A call may stream without callbacks, and a call that does not stream calls none."""
    bench.server.script(Answer(content=TEXT), Answer(content=TEXT))
    expect_equal((await bench.complete(make_request(stream=True))).content, TEXT, "a stream without callbacks")
    deltas = DeltaRecorder()
    expect_equal((await bench.complete(make_request(on_content=deltas))).content, TEXT, "a plain call with a callback")
    expect_equal((deltas.pieces, deltas.done), ([], 0), "what the callback of a plain call gets")


CALL = ToolCallStructured("call_1", "add", b'{"a":2,"b":3}')
OTHER = ToolCallStructured("call_2", "add", b'{"a":40,"b":-2}', 1)


async def a_tool_is_called(bench: ProviderBench) -> None:
    """A tool call has its name, its id and its arguments, streamed or not, and the tool was declared."""
    for stream in (False, True):
        bench.server.script(Answer(calls=[CALL]))
        answer = await bench.complete(make_request(tools=[ADD], stream=stream))
        expect_equal([_plain(call) for call in answer.tool_calls], [("add", {"a": 2, "b": 3}, 0)], f"stream={stream}")
        expect(bool(answer.tool_calls[0].id), "the call has an id")
        request = bench.server.requests[-1]
        expect("Add two numbers." in request.text and '"integer"' in request.text, "the tool is declared")


async def two_tools_are_called_at_once(bench: ProviderBench) -> None:
    """Parallel calls stay apart, keep their order and have different ids, beside text too."""
    for stream in (False, True):
        bench.server.script(Answer(content="Both.", calls=[CALL, OTHER]))
        deltas = DeltaRecorder()
        answer = await bench.complete(
            make_request(
                tools=[ADD], stream=stream, on_content=deltas, parallel_tool_calls=True, tool_choice=ToolChoice.AUTO
            )
        )
        wanted = [("add", {"a": 2, "b": 3}, 0), ("add", {"a": 40, "b": -2}, 1)]
        expect_equal([_plain(call) for call in answer.tool_calls], wanted, f"the calls, stream={stream}")
        expect_equal(len({call.id for call in answer.tool_calls}), 2, "different ids")
        expect_equal(answer.content, "Both.", "the text beside the calls")
        expect_equal(deltas.text, "Both." if stream else "", "arguments are not streamed as text")


async def an_answered_call_is_history(bench: ProviderBench) -> None:
    """A conversation with tool calls and their answers reaches the server, arguments, ids, answers and all."""
    messages = [
        ChatMessage(Role.SYSTEM, Content("You add.")),
        ChatMessage(Role.USER, Content("Add 2 and 3, then 40 and -2.")),
        ChatMessage(Role.ASSISTANT, tool_calls=[CALL, OTHER]),
        ChatMessage(Role.TOOL, Content("five-it-is"), tool_call_id="call_1"),
        ChatMessage(Role.TOOL, Content("thirty-eight"), tool_call_id="call_2"),
        ChatMessage(Role.ASSISTANT, Content("5 and 38."), name=None),
        ChatMessage(Role.USER, Content("Thank you.")),
    ]
    bench.server.script("You are welcome.")
    expect_equal(
        (await bench.complete(make_request(messages=messages, tools=[ADD]))).content, "You are welcome.", "answer"
    )
    text = bench.server.requests[0].text
    for wanted in ("You add.", "five-it-is", "thirty-eight", "5 and 38.", "Thank you.", "40"):
        expect(wanted in text, f"{wanted!r} reaches the server")
    places = [text.index(wanted) for wanted in ("Add 2 and 3", "five-it-is", "thirty-eight", "5 and 38.", "Thank you.")]
    expect_equal(places, sorted(places), "the order of the conversation")


async def reasoning_is_apart_from_text(bench: ProviderBench) -> None:
    """The model's reasoning is streamed and returned apart from its text; `done` comes once for it."""
    if not bench.can(Ability.REASONING):
        return
    bench.server.script(Answer(reasoning="Two, then three more.", content="Five."))
    content, reasoning = DeltaRecorder(), DeltaRecorder()
    answer = await bench.complete(make_stream_request(content, reasoning))
    expect_equal((answer.reasoning, answer.content), ("Two, then three more.", "Five."), "the answer")
    expect_equal((reasoning.text, content.text), ("Two, then three more.", "Five."), "the streamed text")
    expect_equal((reasoning.done, content.done), (1, 1), "calls with done")


async def without_reasoning_its_callback_is_not_called(bench: ProviderBench) -> None:
    """Without reasoning the callback for it is not called."""
    bench.server.script(Answer(content="Five."))
    reasoning = DeltaRecorder()
    answer = await bench.complete(make_stream_request(DeltaRecorder(), reasoning))
    expect_equal((answer.reasoning, reasoning.pieces, reasoning.done), ("", [], 0), "reasoning")


async def tokens_are_counted(bench: ProviderBench) -> None:
    """The provider's own count of tokens is in the answer, streamed or not."""
    for stream in (False, True):
        bench.server.script(Answer(content=TEXT, prompt_tokens=123, completion_tokens=45))
        usage = (await bench.complete(make_request(stream=stream))).usage
        counted = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
        expect_equal(counted, (123, 45, 168), f"usage, stream={stream}")


async def a_provider_s_cost_is_in_the_answer(bench: ProviderBench) -> None:
    """The cost that the provider itself reports is in the answer."""
    if not bench.can(Ability.PROVIDER_COST):
        return
    for stream in (False, True):
        bench.server.script(Answer(content=TEXT, cost=0.0125))
        cost = (await bench.complete(make_request(stream=stream))).cost
        expect_equal((cost.total_cost, cost.currency), (0.0125, "USD"), f"cost, stream={stream}")


async def a_cut_answer_is_an_answer(bench: ProviderBench) -> None:
    """An answer that ends at the token limit is an answer, and says that it was cut."""
    for stream in (False, True):
        bench.server.script(Answer(content="The sum of", is_cut_short=True), Answer(content="The sum of"))
        answer = await bench.complete(make_request(stream=stream))
        expect_equal(answer.content, "The sum of", f"the text, stream={stream}")
        whole = await bench.complete(make_request(stream=stream))
        expect(answer.finish_reason != whole.finish_reason, "a cut answer ends for another reason than a whole one")


SCHEMA = codec.encode(
    {
        "type": "object",
        "properties": {"town_name": {"type": "string"}},
        "required": ["town_name"],
        "additionalProperties": False,
    }
)


async def an_answer_follows_a_schema(bench: ProviderBench) -> None:
    """The schema of the answer reaches the server, and the answer is JSON text."""
    if not bench.can(Ability.STRUCTURED):
        return
    wanted = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, SCHEMA)
    for stream in (False, True):
        bench.server.script(Answer(content='{"town_name":"Ghent"}'))
        answer = await bench.complete(make_request(response_format=wanted, stream=stream))
        expect_equal(codec.decode(answer.content), {"town_name": "Ghent"}, f"the answer, stream={stream}")
        expect("town_name" in bench.server.requests[-1].text, "the schema reaches the server")


async def a_missing_schema_is_refused(bench: ProviderBench) -> None:
    """A call that asks for a schema without giving one fails before the network."""
    if not bench.can(Ability.STRUCTURED):
        return
    for schema in (b"", b"{", b"[]"):
        try:
            await bench.complete(make_request(response_format=ResponseFormat(ResponseFormatKind.JSON_SCHEMA, schema)))
        except (InvalidJSONSchemaError, ProviderError) as error:
            expect("schema" in str(error).lower(), "the text names the schema")
        else:
            expect(False, f"the schema {schema!r} is refused")
    expect_equal(bench.server.requests, [], "what reached the server")


async def a_picture_is_sent(bench: ProviderBench) -> None:
    """The bytes of an inline picture reach the server beside the text."""
    if not bench.can(Ability.IMAGES):
        return
    parts = (TextPart("What is this?"), ImagePart(data_url=PNG, mime="image/png"))
    bench.server.script("A picture.")
    await bench.complete(make_request(messages=[ChatMessage(Role.USER, Content(parts=parts))]))
    text = bench.server.requests[0].text
    sent = text.replace("-", "+").replace("_", "/")
    expect(PNG.rpartition(",")[2].rstrip("=") in sent, "the bytes reach the server")
    expect("What is this?" in text, "the text reaches the server")


async def bytes_that_are_no_picture_are_refused(bench: ProviderBench) -> None:
    """Bytes in an image part that are no image fail before the network."""
    if not bench.can(Ability.IMAGES):
        return
    for bad in ("data:image/png;base64,PGh0bWw+", "data:image/png;base64,!", "not a data url"):
        message = ChatMessage(Role.USER, Content(parts=[ImagePart(data_url=bad)]))
        await expect_raises(InvalidContentError, bench.complete(make_request(messages=[message])), f"{bad!r}")
    expect_equal(bench.server.requests, [], "what reached the server")


async def a_stored_artifact_is_named(bench: ProviderBench) -> None:
    """A part whose bytes are stored elsewhere reaches the model as the text of its stub."""
    stub = ArtifactStub("default_0123456789ab", "image/png", 99_999)
    bench.server.script("I see.")
    message = ChatMessage(Role.USER, Content(parts=[TextPart("Look:"), ImagePart(artifact=stub)]))
    await bench.complete(make_request(messages=[message]))
    expect("default_0123456789ab" in bench.server.requests[0].text, "the stub reaches the server")


async def a_request_is_not_changed(bench: ProviderBench) -> None:
    """A call does not change its request, which other calls may share."""
    bench.server.script(Answer(content=TEXT))
    request = make_request(tools=[ADD], extra={"user": "ada"}, temperature=0.0)
    fields = ("messages", "tools", "extra", "stops")
    before = codec.encode([getattr(request, field) for field in fields])
    await bench.complete(request)
    expect_equal(codec.encode([getattr(request, field) for field in fields]), before, "the request")


async def a_call_without_identity_is_refused(bench: ProviderBench) -> None:
    """A call without an identity is refused before the network."""
    deltas = DeltaRecorder()
    await expect_raises(
        IdentityMissingError, bench.driver.complete(make_stream_request(deltas)), "a call without an identity"
    )
    expect_equal(bench.server.requests, [], "what reached the server")


async def a_closed_driver_says_so(bench: ProviderBench) -> None:
    """After close every call is refused; closing twice is fine, and so is closing what was never used."""
    bench.server.script("ok")
    await bench.complete(make_request())
    unused = bench.elsewhere(bench.config.base_url)
    await unused.close()
    for driver in (bench.driver, unused):
        await driver.close()
        await driver.close()
        await expect_raises(ClientClosedError, bench.complete(make_request(), driver=driver), "a call after close")
    expect_equal(len(bench.server.requests), 1, "the calls that reached the server")


async def many_calls_at_once_stay_apart(bench: ProviderBench) -> None:
    """Each of 128 streams at once returns and streams its own text alone."""

    def echo(request: ReceivedRequest) -> Answer:
        number = request.text.partition("number ")[2].partition("!")[0]
        return Answer(
            content=f"caller {number} is answered", calls=[_make_call(int(number))], prompt_tokens=int(number)
        )

    async def one(number: int) -> tuple[CompleteResponse, DeltaRecorder]:
        deltas = DeltaRecorder()
        request = make_request(f"number {number + 1000}!", stream=number % 4 != 0, on_content=deltas, tools=[ADD])
        return await bench.complete(request), deltas

    bench.server.otherwise = echo
    got = await asyncio.gather(*(one(number) for number in range(CALLERS)))
    for number, (answer, deltas) in enumerate(got):
        expect_equal(answer.content, f"caller {number + 1000} is answered", "the answer")
        expect_equal(answer.usage.prompt_tokens, number + 1000, "the usage")
        expect_equal(_plain(answer.tool_calls[0])[1], {"a": number + 1000, "b": 0}, "the call")
        expect_equal(deltas.text, answer.content if number % 4 else "", "its streamed text")


def _make_call(number: int) -> ToolCallStructured:
    return ToolCallStructured(f"call_{number}", "add", codec.encode({"a": number, "b": 0}))


def _plain(call: ToolCallStructured) -> tuple[str, object, int]:
    return call.name, msgspec.json.decode(call.args), call.index


ANSWERS = (
    text_comes_whole,
    another_model_can_be_named,
    text_comes_in_pieces,
    an_empty_answer_is_an_answer,
    callbacks_are_optional,
    a_tool_is_called,
    two_tools_are_called_at_once,
    an_answered_call_is_history,
    reasoning_is_apart_from_text,
    without_reasoning_its_callback_is_not_called,
    tokens_are_counted,
    a_provider_s_cost_is_in_the_answer,
    a_cut_answer_is_an_answer,
    an_answer_follows_a_schema,
    a_missing_schema_is_refused,
    a_picture_is_sent,
    bytes_that_are_no_picture_are_refused,
    a_stored_artifact_is_named,
    a_request_is_not_changed,
    a_call_without_identity_is_refused,
    a_closed_driver_says_so,
    many_calls_at_once_stay_apart,
)
