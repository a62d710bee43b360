from harborage import Agent, CallTool, Decision, Finish, FinishReason, RunContext, tool


@tool(effects="read")
def find_order(order: str) -> str:
    """Find an order."""
    return f"order {order}: one teapot"


class Clerk:
    """Looks the order up, and finishes with what it found."""

    async def next(self, run: RunContext) -> Decision:
        if not run.trajectory.steps:
            return CallTool("find_order", b'{"order": "7"}')
        return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)


clerk = Agent("clerk", planner=Clerk(), tools=[find_order])
print(clerk.run_sync("What is in order 7?").output)
# > order 7: one teapot
