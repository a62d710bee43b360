"""A question about a picture: how a run is handed an image, by hand and by the command line.

    harborage run examples/multimodal.py "When is the water highest?" --attach examples/multimodal.png

asks the model that this machine has, if it looks at pictures; `--model script:examples/multimodal.json` plays that
question offline. `python examples/multimodal.py PICTURE QUESTION MODEL` does the same without the command line: a file
goes into the artifact store, and its id into `input_artifacts`. The runtime puts the picture into the first message,
and whatever is no picture as a reference that the model can read with `artifact_fetch`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from harborage import Agent, CallContext, Identity, Runtime, SideEffect, tool
from harborage.app import attach, read_attachment
from harborage.artifacts import ArtifactScope

INSTRUCTIONS = """\
Answer from the picture that is attached. Say what you read off it and how sure you are; guess nothing.
`pictures` says what is attached, if that matters."""


@tool(effects=SideEffect.READ)
async def pictures(call: CallContext) -> list[str]:
    """What is attached to this conversation: name, type and size of each file."""
    assert call.artifacts is not None
    found = await call.artifacts.list(ArtifactScope.of(call.who))
    return [f"{ref.filename} ({ref.mime_type}, {ref.size_bytes:,} bytes)" for ref in found]


agent = Agent(
    name="multimodal",
    description="Answers questions about a picture",
    instructions=INSTRUCTIONS,
    tools=[pictures],
)


async def ask(picture: Path, question: str, model: str) -> str:
    """The model's answer to a question about a picture."""
    who = Identity("local", "you", "pictures")
    async with Runtime(model=model, instructions=INSTRUCTIONS, tools=[pictures]) as runtime:
        # Reading it refuses what only looks like a picture; an artifact belongs to its session, so that every run of
        # the session may use it.
        refs = await attach(runtime.artifacts, who, [read_attachment(picture)])
        run = await runtime.start(question, who=who, input_artifacts=[ref.id for ref in refs])
        return str((await run.finished()).payload)


if __name__ == "__main__":
    place, asked, chosen = sys.argv[1:]
    print(asyncio.run(ask(Path(place), asked, chosen)))  # noqa: T201
