"""The picture example at work: the model gets the picture itself, other files by reference."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harborage import FinishReason, Identity, Runtime
from harborage.app import attach, load_agent, read_attachment
from harborage.llm import ImagePart, TextPart
from harborage.testing.llm import ScriptedLLM

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PICTURE, SCRIPT = EXAMPLES / "multimodal.png", EXAMPLES / "multimodal.json"
ADA = Identity("acme", "ada", "pictures")
AGENT = load_agent(str(EXAMPLES / "multimodal.py"))
EXAMPLE: Any = sys.modules["harborage_target_multimodal"]
QUESTION = "When is the water highest?"


async def test_the_script_answers() -> None:
    """The function of the example gives the answer of the script."""
    assert "2.5 at 11 and at 12" in await EXAMPLE.ask(PICTURE, QUESTION, f"script:{SCRIPT}")


async def test_the_model_gets_the_picture_itself(tmp_path: Path) -> None:
    """A picture is in the first message byte for byte; a text beside it is told by name and reference."""
    note = tmp_path / "note.md"
    note.write_text("# Sund")
    model = ScriptedLLM(["Around noon."])
    async with Runtime(model=model, instructions=AGENT.instructions, tools=AGENT.tools) as runtime:
        refs = await attach(runtime.artifacts, ADA, [read_attachment(PICTURE), read_attachment(note)])
        run = await runtime.start(QUESTION, who=ADA, input_artifacts=[ref.id for ref in refs])
        assert (await run.finished()).reason is FinishReason.GOAL
    parts = [part for message in model.requests[0].messages for part in message.content.parts or ()]
    (picture,) = [part for part in parts if isinstance(part, ImagePart)]
    assert base64.b64decode(picture.data_url.partition(",")[2]) == PICTURE.read_bytes()
    texts = "".join(part.text for part in parts if isinstance(part, TextPart))
    assert "note.md" in texts
    assert refs[1].id in texts


def test_the_command_line_attaches_it(tmp_path: Path) -> None:
    """`--attach` hands the picture to the run, whose tool sees it."""
    words = [str(EXAMPLES / "multimodal.py"), QUESTION, "--attach", str(PICTURE), "--model", f"script:{SCRIPT}"]
    command = "import sys; from harborage.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", command, "run", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "2.5 at 11 and at 12" in done.stdout
    assert "file   multimodal.png image/png, 1.2 KB" in done.stderr
    assert "multimodal.png (image/png, 1,224 bytes)" in done.stderr
