from harborage import Agent, Limits, RunFailedError, tool


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


support = Agent("support", model="openai:gpt-5", tools=[find_order], limits=Limits(calls=1))
try:
    support.run_sync("Compare all orders")
except RunFailedError as error:
    print(error.reason)
# > constraints_conflict
