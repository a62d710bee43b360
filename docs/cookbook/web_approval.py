from contextlib import asynccontextmanager

from fastapi import FastAPI

from harborage import Agent, Identity, Runtime, tool

ADA = Identity("acme", "ada", "s-7")  # in earnest: from the request


@tool(effects="external", approval="always")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} € for order {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])
runtime = Runtime([support], storage="sqlite:runs.db")


@asynccontextmanager
async def lifespan(api: FastAPI):
    async with runtime:
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/runs")
async def start(goal: str):
    return {"run": (await runtime.start(support, goal, who=ADA)).id}


@api.get("/runs/{run_id}/pending")
async def pending(run_id: str):
    return (await (await runtime.run(run_id, who=ADA)).wait_pending()).args


@api.post("/runs/{run_id}/approve")
async def approve(run_id: str):
    run = await runtime.run(run_id, who=ADA)
    await run.approve()
    return {"answer": (await run.result()).output}
