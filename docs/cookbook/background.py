import asyncio

from harborage import Agent, Result, Run

reporter = Agent("reporter", model="openai:gpt-5")


async def notify(run: Run[str]) -> None:
    result: Result[str] = await run.result()
    print("done:", result.output)


async def main() -> None:
    notified = asyncio.create_task(notify(await reporter.start("Write the weekly report")))
    print("working")
    await notified


if __name__ == "__main__":
    asyncio.run(main())
# > working
# > done: All is well.
