"""What the embedded model can do: sixteen fixed questions, each answered by one of six tools, at temperature 0.

Not a comparison but a measurement: how many replies are a valid call or answer, how many name the right tool, and how
long one takes. Without the weights it measures nothing and says how to fetch them.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.agents import WHO
from benchmarks.measure import Row
from harborage.identity import bound
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    Content,
    Deps,
    LLMClient,
    Role,
    ToolChoice,
    ToolDeclaration,
)
from harborage.llm.local import make
from harborage.llm.local.weights import is_ready
from harborage.llm.providers import config_for, parse_model
from harborage.tools.standard import standard_tools

_PLACE = Path(__file__).parents[1] / "tests" / "llm" / "local" / "questions.py"
_MODEL = "HARBORAGE_BENCH_MODEL"


async def embedded_model() -> list[Row]:
    """Valid replies, right tools, seconds per call. `HARBORAGE_BENCH_MODEL=local:/path/x.gguf` takes another model."""
    name = os.environ.get(_MODEL, "local:")
    if not is_ready(name):
        print("  the weights are not here: harborage models pull smollm2", file=sys.stderr)
        return []
    fixed = runpy.run_path(str(_PLACE))
    questions: tuple[tuple[str, str], ...] = fixed["QUESTIONS"]
    tools = _declared(fixed["TOOLS"])
    valid = right = 0
    seconds: list[float] = []
    async with _opened(name) as model:
        for question, wanted in questions:
            begin = time.perf_counter()
            response = await _ask(model, question, tools)
            seconds.append(time.perf_counter() - begin)
            called = response.tool_calls[0].name if response.tool_calls else ""
            valid += bool(response.content or called in fixed["TOOLS"])
            right += called == wanted
            mark = "✓" if called == wanted else "✗"
            print(f"  {mark} {question} → {called or response.content!r} {_args(response)}", file=sys.stderr)
    return [
        Row(name=f"embedded model: valid, of {len(questions)}", unit="replies", ours=valid, bare=len(questions)),
        Row(name=f"embedded model: right tool, of {len(questions)}", unit="replies", ours=right, bare=len(questions)),
        Row(name="embedded model: first call, with loading", unit="s", ours=seconds[0]),
        Row(name="embedded model: later calls", unit="s", ours=sum(seconds[1:]) / len(seconds[1:])),
    ]


def _declared(names: tuple[str, ...]) -> tuple[ToolDeclaration, ...]:
    with tempfile.TemporaryDirectory() as folder:
        found = {one.tool.name: one.tool for one in standard_tools(folder)}
    return tuple(ToolDeclaration(name, found[name].description, found[name].args_schema) for name in names)


@asynccontextmanager
async def _opened(name: str) -> AsyncIterator[LLMClient]:
    model = make(config_for(parse_model(name), environ=os.environ), Deps(artifacts=None, bus=None))
    try:
        yield model
    finally:
        await model.close()


async def _ask(model: LLMClient, question: str, tools: tuple[ToolDeclaration, ...]) -> CompleteResponse:
    request = CompleteRequest(
        messages=[ChatMessage(Role.USER, Content(question))], tools=tools, tool_choice=ToolChoice.AUTO, temperature=0.0
    )
    with bound(WHO):
        return await model.complete(request)


def _args(response: CompleteResponse) -> str:
    return response.tool_calls[0].args.decode() if response.tool_calls else ""
