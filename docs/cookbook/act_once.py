import asyncio

from harborage import Agent, CallContext, tool

ORDERS: dict[str, str] = {}


@tool(effects="external", idempotent=True)
def order(ctx: CallContext, item: str) -> str:
    """Order an item. The supplier knows an order again by its key."""
    return ORDERS.setdefault(ctx.idempotency_key, f"order {len(ORDERS) + 1}: {item}")


buyer = Agent("buyer", model="openai:gpt-5", tools=[order])


async def main() -> None:
    result = await buyer.run("Order tea")
    print(result.output, list(ORDERS.values()))


if __name__ == "__main__":
    asyncio.run(main())
# > Tea is ordered. ['order 1: tea']
