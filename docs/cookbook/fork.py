import asyncio

from harborage import Agent, Identity, Runtime, tool

ADA = Identity("acme", "ada", "s-7")


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


support = Agent("support", model="openai:gpt-5", tools=[find_order])


async def main() -> None:
    async with Runtime([support]) as runtime:
        run = await runtime.start(support, "What is in order 7?", who=ADA)
        print((await run.result()).output)
        other = await runtime.fork(run.id, at=2, who=ADA, goal="Say it in German")
        print((await other.result()).output)


if __name__ == "__main__":
    asyncio.run(main())
# > One teapot.
# > Eine Teekanne.
