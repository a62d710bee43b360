import asyncio

from harborage import Agent

poet = Agent("poet", model="openai:gpt-5")


async def main() -> None:
    async with poet.stream("Two lines about tides") as run:
        async for text in run.text():
            print(text, end="", flush=True)
        print(f" ({(await run.result()).usage.model_calls} call)")


if __name__ == "__main__":
    asyncio.run(main())
# > It comes, it goes. (1 call)
