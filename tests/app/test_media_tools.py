"""Pictures, sound and files of tools: as arguments by the ids of artifacts, as results that the model sees."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from harborage import Agent, File, Identity, Image, Model, Runtime, tool
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.events import MemoryEventBus, PatternRedactor
from harborage.llm import CompleteRequest, Deps, ImagePart, Role
from harborage.runtime.effects.model import open_reasoner, takes_pictures
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools import ToolDescriptor
from harborage.tools.errors import UnsupportedTypeError
from tests.app.test_media import PNG, WAV
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@tool(effects="read")
async def draw() -> Image:
    """Draw a dot."""
    return Image(PNG, name="dot.png")


@tool(effects="read")
def compare(order: str) -> list[str | Image]:
    """Compare two pictures."""
    return [f"order {order}", Image(PNG)]


@tool(effects="read")
async def measure(picture: Image, others: list[File] = []) -> str:  # noqa: B006 - copied for each call
    """Measure a picture."""
    return f"{len(picture.data)} bytes of {picture.mime}, {[one.data.decode() for one in others]}"


def shown(request: CompleteRequest) -> list[bytes]:
    parts = [part for message in request.messages for part in message.content.parts or ()]
    return [base64.b64decode(one.data_url.partition(",")[2]) for one in parts if isinstance(one, ImagePart)]


@each_row("asked", [draw, compare])
async def test_a_picture_of_a_tool_is_shown_to_the_model(asked: ToolDescriptor[Any]) -> None:
    """It is kept as an artifact; the answer to the call names it, and a message after it has it."""
    args = {"order": "7"} if asked.tool.name == "compare" else {}
    model = ScriptedLLM([calls_tools((asked.tool.name, args)), says("a dot")])
    async with Runtime([Agent("a", model=model, tools=[asked])]) as runtime:
        run = await runtime.start("go", who=ME)
        result = await run.result()
        [kept] = await runtime.artifacts.list(ArtifactScope.of(ME))
        replayed = await runtime.replay(await run.history())
    assert (shown(model.requests[0]), shown(model.requests[1])) == ([], [PNG])
    assert kept.id in result.messages[2].text
    assert [message.role for message in model.requests[1].messages[-3:-1]] == [Role.TOOL, Role.USER]
    assert (replayed.is_whole, replayed.difference) == (True, None)


async def test_pictures_of_parallel_calls_are_shown_too() -> None:
    """Each once, after the answers."""
    model = ScriptedLLM([calls_tools(("draw", {}), ("compare", {"order": "7"})), says("dots")])
    await Agent("a", model=model, tools=[draw, compare]).run("go")
    assert shown(model.requests[1]) == [PNG, PNG]


async def test_a_picture_survives_a_restart(storage: str) -> None:
    """The worker that goes on with the run shows it, too."""

    @tool(effects="external", approval="always")
    async def pay() -> str:
        """Pay."""
        return "paid"

    first = ScriptedLLM([calls_tools(("draw", {})), calls_tools(("pay", {}))])
    async with Runtime([Agent("a", model=first, tools=[draw, pay])], storage=storage) as runtime:
        keep = runtime.artifacts
        run = await runtime.start("go", who=ME)
        await run.wait_pending()
        second = ScriptedLLM([says("done")])
        data = await keep.get(ArtifactScope.of(ME), (await keep.list(ArtifactScope.of(ME)))[0].id)
    async with Runtime([Agent("a", model=second, tools=[draw, pay])], storage=storage) as runtime:
        assert data == PNG
        await runtime.artifacts.put_bytes(ArtifactScope.of(ME), PNG, mime_type="image/png")
        found = await runtime.run(run.id, who=ME)
        await found.approve()
        await found.finished()
    assert shown(second.requests[-1]) == [PNG]


@each_row(
    "model, wanted",
    [
        ("mock:gpt-3.5-turbo", False),
        ("mock:gpt-5", True),
        ("mock:a-model-of-this-house", True),
        (["mock:gpt-5", Model("mock:gpt-3.5-turbo")], False),
        (ScriptedLLM(), True),
    ],
)
async def test_a_model_that_takes_no_pictures_sees_the_reference_alone(model: Any, wanted: bool) -> None:
    """It would refuse the whole request; of a model that is not known, the provider says so."""
    assert takes_pictures(model) is wanted
    agent = Agent("a", model=model, tools=[draw])
    reasoner = await open_reasoner(
        agent.setup().reasoner,
        Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus()),
        [],
        None,
        redactor=PatternRedactor(),
    )
    assert reasoner.takes_pictures is wanted


async def test_a_tool_gets_the_bytes_of_the_artifact_that_the_model_names() -> None:
    """A list of them, too; the schema says that it is an id."""
    async with Runtime([Agent("a", model=ScriptedLLM([says("x")]))]) as runtime:
        picture = await runtime.artifacts.put_bytes(ArtifactScope.of(ME), PNG, mime_type="image/png")
        file = await runtime.artifacts.put_bytes(ArtifactScope.of(ME), b"a,b", mime_type="text/csv")
        model = ScriptedLLM([calls_tools(("measure", {"picture": picture.id, "others": [file.id]})), says("done")])
        agent = Agent("b", model=model, tools=[measure])
        result = await (await runtime.start(agent, "go", who=ME)).result()
    assert result.messages[2].text == f"{len(PNG)} bytes of image/png, ['a,b']"
    assert measure.tool.args_schema["properties"]["picture"]["format"] == "artifact-id"


async def test_an_id_that_is_none_is_told_to_the_model() -> None:
    """Of no artifact, of one of another kind, or of another session; the tool is not called."""
    async with Runtime([Agent("a", model=ScriptedLLM([says("x")]))]) as runtime:
        sound = await runtime.artifacts.put_bytes(ArtifactScope.of(ME), WAV, mime_type="audio/wav")
        other = Identity("t", "u", "other")
        foreign = await runtime.artifacts.put_bytes(ArtifactScope.of(other), PNG, mime_type="image/png")
        wanted = {"none": "no such artifact", sound.id: "it is audio/wav, and Image is wanted", foreign.id: "no such"}
        for number, (artifact, text) in enumerate(wanted.items()):
            model = ScriptedLLM([calls_tools(("measure", {"picture": artifact})), says("done")])
            agent = Agent(f"b{number}", model=model, tools=[measure])
            result = await (await runtime.start(agent, "go", who=ME)).result()
            assert text in result.messages[2].text


async def test_outside_a_run_a_tool_takes_and_gives_the_values() -> None:
    """It is a function."""
    assert await draw() == Image(PNG)
    assert await measure(Image(PNG)) == f"{len(PNG)} bytes of image/png, []"


def test_a_picture_is_no_output_of_a_model() -> None:
    """It writes text."""
    with pytest.raises(UnsupportedTypeError, match="let a tool return the picture, sound or file"):
        Agent("a", model="mock:", output=Image)


def test_a_recorded_picture_has_its_type_again() -> None:
    """What a workflow gets back of a call is the value, without its bytes until they are loaded."""
    read: Callable[[Any], Any] = draw.read_result
    assert read({"artifact": "x_1", "mime": "image/png", "name": "dot.png"}) == Image.kept("x_1")
    assert compare.read_result(["a", {"artifact": "x_1"}]) == ["a", Image.kept("x_1")]
