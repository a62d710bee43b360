import asyncio
from datetime import timedelta

from harborage import WorkflowContext, tool, workflow


@tool(effects="external", idempotent=True, retries=2)
async def order(item: str, count: int) -> str:
    """Order something."""
    return f"{count} {item} ordered"


@workflow
async def restock(ctx: WorkflowContext, goal: str) -> str:
    placed = await ctx.call(order, item=goal, count=20)
    await ctx.sleep(timedelta(milliseconds=1))  # of days, too: it holds no memory
    return placed


if __name__ == "__main__":
    print(asyncio.run(restock.run("tea")).output)
# > 20 tea ordered
