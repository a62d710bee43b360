import asyncio

from harborage import Agent, Identity, Runtime, tool

ADA = Identity("acme", "ada", "s-7")


@tool(effects="external", approval="always")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} € for order {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])


async def main() -> None:
    async with Runtime([support], storage="sqlite:runs.db") as today:
        run = await today.start(support, "Refund 40 € for order 7", who=ADA)
        print((await run.wait_pending()).args)
    async with Runtime([support], storage="sqlite:runs.db") as tomorrow:
        run = await tomorrow.run(run.id, who=ADA)
        await run.approve()
        print((await run.result()).output)


if __name__ == "__main__":
    asyncio.run(main())
# > {'order': '7', 'euros': 40}
# > Refunded.
