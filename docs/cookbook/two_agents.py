import asyncio

from harborage import Agent, Identity, Runtime, json_schema

ADA = Identity("acme", "ada", "s-7")
URGENT = {"type": "object", "properties": {"urgent": {"type": "boolean"}}, "required": ["urgent"]}

triage = Agent("triage", model="openai:gpt-5", output=json_schema(URGENT))
support = Agent("support", model="openai:gpt-5")


async def main() -> None:
    async with Runtime([triage, support]) as runtime:
        found = await (await runtime.start(triage, "My teapot is broken", who=ADA)).result()
        if found.output["urgent"]:
            print((await (await runtime.start(support, "Help at once", who=ADA)).result()).output)


if __name__ == "__main__":
    asyncio.run(main())
# > I am on it.
