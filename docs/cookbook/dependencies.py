from dataclasses import dataclass

from harborage import Agent, CallContext, tool


@dataclass
class Shop:
    orders: dict[str, str]


@tool(effects="read")
def find_order(ctx: CallContext[Shop], order: str) -> str:
    """Find an order."""
    return ctx.deps.orders[order]


support = Agent("support", model="openai:gpt-5", deps=Shop, tools=[find_order])
print(support.run_sync("What is in order 7?", deps=Shop({"7": "one teapot"})).output)
# > One teapot.
