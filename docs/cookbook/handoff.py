import asyncio

from harborage import Agent

billing = Agent("billing", model="openai:gpt-5", description="Refunds and invoices.")
triage = Agent("triage", model="openai:gpt-5", agents=[billing.handoff()])


async def main() -> None:
    chat = triage.session("s-7")
    print((await chat.send("My invoice is wrong")).output)


if __name__ == "__main__":
    asyncio.run(main())
# > Your invoice is corrected.
