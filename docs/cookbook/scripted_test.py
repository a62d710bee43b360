import asyncio

from harborage import Agent, tool
from harborage.testing.llm import ScriptedLLM, calls_tools


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


support = Agent("support", model="openai:gpt-5", tools=[find_order])


async def test_the_order_is_looked_up() -> None:
    model = ScriptedLLM([calls_tools(("find_order", {"order": "7"})), "One teapot."])
    result = await support.replace(model=model).run("What is in order 7?")
    assert result.output == "One teapot."
    assert [message.tool for message in result.messages if message.tool] == ["find_order", "find_order"]
    assert len(model.requests) == 2


asyncio.run(test_the_order_is_looked_up())
