import asyncio

from harborage import Agent

support = Agent("support", model="openai:gpt-5")


async def main() -> None:
    chat = support.session("s-7")
    print((await chat.send("My order is 7.")).output)
    print((await chat.send("Which order was it?")).output)


if __name__ == "__main__":
    asyncio.run(main())
# > Noted.
# > It was order 7.
