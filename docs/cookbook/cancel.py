import asyncio

from harborage import Agent, RunFailedError, tool


@tool(effects="external", approval="always")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} € for order {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])


async def main() -> None:
    run = await support.start("Refund order 7")
    await run.wait_pending()
    await run.cancel(hard=True)
    try:
        await run.result()
    except RunFailedError as error:
        print(error.reason)


if __name__ == "__main__":
    asyncio.run(main())
# > cancelled
