from harborage import Agent, tool


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


support = Agent("support", model="openai:gpt-5", tools=[find_order])
print(support.run_sync("What is in order 7?").output)
# > One teapot.
