"""Agents with something to show in a console: on a scripted model with prices they act, ask, wait and fail.

`harborage dev tests_console/world.py` serves them. What a run is asked decides what it does; see `ASKED`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from harborage import Agent, tool
from harborage.llm import CompleteRequest, CompleteResponse, Cost, Usage
from harborage.testing.llm import ScriptedLLM, calls_tools, says

PACE_S: Final = 0.25

ASKED: Final = (
    ("support", "Order 7 arrived broken: refund or replace"),
    ("support", "Order 12: where is my parcel?"),
    ("release", "Cut release 1.4 and write its notes"),
    ("restock", "Restock whatever runs out before Friday"),
    ("quote", "Quote for 600 units, three suppliers"),
    ("index", "Re-embed the handbook"),
)
"""What an agent can be asked, and so does: two wait for a person, two answer, one fails, one goes on for minutes."""


class PacedLLM(ScriptedLLM):
    """A script that takes its time, and has a price: half a cent a thousand tokens of what was said before."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        await asyncio.sleep(PACE_S)
        answer = await super().complete(request)
        prompt = sum(len(str(message)) for message in request.messages) // 4
        said = len(answer.content) // 4 + 40 * len(answer.tool_calls) + len(answer.reasoning) // 4
        usage = Usage(prompt_tokens=prompt, completion_tokens=said, total_tokens=prompt + said)
        return replace(answer, usage=usage, cost=Cost(total_cost=prompt * 5e-6 + said * 2e-5))


@tool(effects="read")
async def look_up(order: str) -> Mapping[str, Any]:
    """What is known of an order."""
    await asyncio.sleep(PACE_S)
    return {"order": order, "carrier": "Noord", "state": "out for delivery", "euros": 49.0}


@tool(effects="external", approval="always")
async def refund(order: str, euros: float) -> str:
    """Give money back."""
    return f"refunded {euros} € for order {order}"


@tool(effects="write", approval="always")
async def edit_file(path: str, text: str) -> str:
    """Write a file anew."""
    return f"wrote {len(text)} characters to {path}"


@tool(effects="read")
async def stock(item: str) -> int:
    """How many of an item are left."""
    await asyncio.sleep(PACE_S)
    return {"tea": 2, "rice": 40, "salt": 0, "oil": 3}.get(item, 0)


@tool(effects="external", idempotent=True)
async def place_order(item: str, count: int) -> str:
    """Order from the supplier."""
    await asyncio.sleep(PACE_S)
    return f"ordered {count} {item}"


@tool(effects="read")
async def fetch_quote(carrier: str) -> str:
    """Ask a carrier for a price."""
    await asyncio.sleep(PACE_S)
    if carrier == "Lumen":
        raise ConnectionError("HTTP 503 from the carrier")
    return f"{carrier}: €136.80"


@tool(effects="read")
async def embed(page: str) -> str:
    """Put a page of the handbook into the index."""
    await asyncio.sleep(1.5)
    return f"{page}: 384 numbers"


_NOTES = "# Changes\n\n## 1.4.0, 22 November 2026\n\n" + "".join(
    f"- {line}\n"
    for line in (
        "Runs resume in 40 ms after a worker is lost",
        "`fork` takes another model",
        "Approvals show what was edited, and by whom",
        "Fixed: a cancelled child left its group open",
    )
)

support = Agent(
    "support",
    instructions="Answer people about their orders.",
    model=PacedLLM(
        by_text={
            "Order 7": [
                calls_tools(
                    ("look_up", {"order": "7"}), reasoning="The order first: what was it, and what did it cost?"
                ),
                calls_tools(("refund", {"order": "7", "euros": 49.0}), content="It arrived broken; I refund it."),
                says("Order 7 is refunded: **€49.00** are on their way."),
            ],
        },
        script=[
            calls_tools(("look_up", {"order": "12"})),
            says("Your parcel is *out for delivery* with Noord.\n\n- It left at 08:12\n- It arrives before 18:00"),
        ],
    ),
    tools=[look_up, refund],
)
release = Agent(
    "release",
    instructions="Cut releases.",
    model=PacedLLM(
        [
            calls_tools(
                ("look_up", {"order": "1.4"}), reasoning="The entries since 1.3.2 are complete; the date is today."
            ),
            calls_tools(("edit_file", {"path": "CHANGELOG.md", "text": _NOTES})),
            says("Release 1.4 is cut."),
        ]
    ),
    tools=[look_up, edit_file],
)
restock = Agent(
    "restock",
    instructions="Order what runs out.",
    model=PacedLLM(
        [
            calls_tools(*(("stock", {"item": item}) for item in ("tea", "rice", "salt", "oil"))),
            calls_tools(("place_order", {"item": "tea", "count": 12}), reasoning="Tea and salt run out before Friday."),
            calls_tools(("place_order", {"item": "salt", "count": 8})),
            says("Ordered 12 tea and 8 salt."),
        ]
    ),
    tools=[stock, place_order],
)
quote = Agent(
    "quote",
    instructions="Collect quotes.",
    model=PacedLLM(
        [
            calls_tools(("fetch_quote", {"carrier": "Noord"}), ("fetch_quote", {"carrier": "Lumen"})),
            calls_tools(("fetch_quote", {"carrier": "Lumen"})),
            ConnectionError("the model's provider does not answer"),
        ]
    ),
    tools=[fetch_quote],
)
index = Agent(
    "index",
    instructions="Keep the index of the handbook.",
    model=PacedLLM([calls_tools(("embed", {"page": f"page-{at}"})) for at in range(200)]),
    tools=[embed],
)

agents = [support, release, restock, quote, index]
