import asyncio

from harborage import Agent, tool


@tool(effects="external", approval="always")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} € for order {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])


async def main() -> None:
    run = await support.start("Refund order 7")
    await (await run.wait_pending()).reject("too much")
    print((await run.result()).output)


if __name__ == "__main__":
    asyncio.run(main())
# > I did not refund it: too much.
