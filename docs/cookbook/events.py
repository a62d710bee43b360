import asyncio

from harborage import Agent, tool


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


support = Agent("support", model="openai:gpt-5", tools=[find_order])


async def main() -> None:
    async with support.stream("What is in order 7?") as run:
        async for event in run.events():
            if event.type.startswith("tool."):
                print(event.type)


if __name__ == "__main__":
    asyncio.run(main())
# > tool.invoked
# > tool.completed
