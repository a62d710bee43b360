import asyncio

from harborage import Agent, tool
from harborage.testing import call, script


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


support = Agent("support", model="openai:gpt-5", tools=[find_order])


async def test_the_order_is_looked_up() -> None:
    model = script(call("find_order", order="7"), "One teapot.")
    result = await support.run("What is in order 7?", model=model)
    assert result.output == "One teapot."
    assert [message.tool for message in result.messages if message.tool] == ["find_order", "find_order"]
    assert len(model.requests) == 2


asyncio.run(test_the_order_is_looked_up())
