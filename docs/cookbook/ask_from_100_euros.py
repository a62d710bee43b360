import asyncio
import json

from harborage import Agent, tool
from harborage.runtime.approval import ApprovalRequest


def is_large(request: ApprovalRequest) -> tuple[bool, str]:
    euros = json.loads(request.args)["euros"]
    return euros >= 100, f"{euros} euros"


@tool(effects="external", approval=is_large)
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} € for order {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])


async def main() -> None:
    print((await support.run("Refund 40 € for order 7")).output)
    run = await support.start("Refund 400 € for order 7")
    print((await run.wait_pending()).question)
    await run.approve()
    print((await run.result()).output)


if __name__ == "__main__":
    asyncio.run(main())
# > Refunded 40 €.
# > 400 euros
# > Refunded 400 €.
