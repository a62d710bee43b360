from fastapi import FastAPI

from harborage import Agent, Identity, Runtime, tool

ADA = Identity("acme", "ada", "s-7")  # in earnest: from the request


@tool(description="Refund an order.", effects="external", approval="always")
def refund(order: str, euros: int) -> str:
    return f"refunded {euros} € for order {order}"


runtime = Runtime([Agent("support", model="openai:gpt-5", tools=[refund])], storage="sqlite:runs.db")
api = FastAPI(lifespan=runtime.lifespan)


@api.post("/runs")
async def start(goal: str):
    run = await runtime.start(goal, who=ADA)
    return {"run": run.id, "asks": (await run.wait_pending()).args}


@api.post("/runs/{run_id}/approve")
async def approve(run_id: str):
    return {"approved": await runtime.get(run_id, who=ADA).approve()}
