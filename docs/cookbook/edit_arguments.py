import asyncio

from harborage import Agent, tool


@tool(effects="external", approval="always")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} € for order {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])


async def main() -> None:
    run = await support.start("Refund order 7")
    asked = await run.wait_pending()
    await asked.approve(args={"order": "7", "euros": 30})
    print((await run.result()).messages[-2].text)


if __name__ == "__main__":
    asyncio.run(main())
# > refunded 30 € for order 7
