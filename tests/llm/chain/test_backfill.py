"""Answers without usage get an estimate, and a price where the operator set one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    Content,
    Cost,
    CostOverrides,
    ImagePart,
    Role,
    TextPart,
    ToolCallStructured,
    ToolDeclaration,
    Usage,
)
from harborage.llm.chain.backfill import backfilled, overridden_cost

OVERRIDES = CostOverrides(input_per_million=2.0, output_per_million=10.0, currency="EUR")


def asked(*contents: Content) -> CompleteRequest:
    """A request of user messages with these contents."""
    return CompleteRequest(messages=[ChatMessage(Role.USER, content) for content in contents])


@pytest.mark.parametrize("usage", [Usage(1), Usage(completion_tokens=1), Usage(total_tokens=1)])
def test_what_was_reported_stays(usage):
    """A single count above zero means that the provider counts, so nothing is estimated."""
    answer = CompleteResponse("hello", usage=usage)
    assert backfilled(asked(Content("question")), answer, OVERRIDES) is answer


def test_the_estimate():
    """A message counts 1 and a quarter of its bytes, an answer a quarter of its bytes; the total is their sum."""
    answer = backfilled(asked(Content("x" * 10), Content("ä" * 10)), CompleteResponse("y" * 9), None)
    assert answer.usage == Usage(prompt_tokens=(1 + 2) + (1 + 5), completion_tokens=2, total_tokens=11)


def test_parts():
    """A text part counts like a text, every other part 16."""
    parts = Content(parts=[TextPart("x" * 8), ImagePart(url="u"), TextPart("")])
    assert backfilled(asked(parts), CompleteResponse(), None).usage.prompt_tokens == 3 + 16 + 1


def test_tools_count():
    """Declared tools and calls of tools are part of what is sent and written."""
    call = ToolCallStructured("c", "echo", b'{"a":1}')
    messages = [ChatMessage(Role.ASSISTANT, tool_calls=[call])]
    request = CompleteRequest(messages=messages, tools=[ToolDeclaration("echo", "says it", {"type": "object"})])
    without = CompleteRequest(messages=[ChatMessage(Role.ASSISTANT, Content(""))])
    answer = backfilled(request, CompleteResponse(tool_calls=[call]), None)
    assert answer.usage.prompt_tokens > backfilled(without, CompleteResponse(), None).usage.prompt_tokens
    assert answer.usage.completion_tokens == len('echo{"a":1}') // 4


def test_the_price_of_an_estimate():
    """An estimate is priced with the operator's prices, where there are any and no price was reported."""
    request, answer = asked(Content("x" * 400)), CompleteResponse("y" * 400)
    assert backfilled(request, answer, None).cost == Cost()
    assert backfilled(request, answer, OVERRIDES).cost == Cost(
        input_cost=101 * 2e-6, output_cost=100 * 1e-5, total_cost=101 * 2e-6 + 100 * 1e-5, currency="EUR"
    )
    reported = Cost(total_cost=0.5, currency="USD")
    assert backfilled(request, CompleteResponse("y", cost=reported), OVERRIDES).cost is reported


def test_the_currency():
    """Overrides without a currency are in US dollars."""
    assert overridden_cost(Usage(1, 1), CostOverrides(currency="")).currency == "USD"


def test_other_counts_are_kept():
    """Latency and what else the provider tells stay beside the estimate."""
    answer = CompleteResponse("x", usage=Usage(latency_ms=7, provider_extras={"a": 1}))
    usage = backfilled(asked(), answer, None).usage
    assert (usage.latency_ms, usage.provider_extras) == (7, {"a": 1})


@given(st.lists(st.text(), max_size=5), st.text())
def test_the_sum_holds(texts, content):
    """For every conversation the total is the sum, and no message counts less than one."""
    usage = backfilled(asked(*map(Content, texts)), CompleteResponse(content), None).usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens >= len(texts)
