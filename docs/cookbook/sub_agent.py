import asyncio
from dataclasses import dataclass

from harborage import Agent


@dataclass
class Notes:
    fact: str
    year: int


researcher = Agent("researcher", model="openai:gpt-5", description="Looks things up.", output=Notes)
writer = Agent("writer", model="openai:gpt-5", agents=[researcher])


async def main() -> None:
    print((await writer.run("When was tea first sold in London?")).output)


if __name__ == "__main__":
    asyncio.run(main())
# > In 1657, at Garway's.
