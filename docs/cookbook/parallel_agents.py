import asyncio

from harborage import Agent

researcher = Agent("researcher", model="openai:gpt-5", instructions="Answer in one word.")


async def main() -> None:
    questions = ["Does it rain in Oslo?", "Does it rain in Bergen?", "Does it rain in Tromsø?"]
    results = await asyncio.gather(*(researcher.run(question) for question in questions))
    print([result.output for result in results])


if __name__ == "__main__":
    asyncio.run(main())
# > ['Yes', 'Yes', 'Yes']
