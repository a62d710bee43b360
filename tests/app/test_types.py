"""What a type checker infers for an agent: its output, wherever it is read, and the lines that it must refuse."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from dataclasses import dataclass
from typing import Literal

from harborage import Agent, Identity, Runtime

@dataclass
class Answer:
    text: str

@dataclass
class Refusal:
    why: str

WHO = Identity("t", "u", "s")
plain = Agent("plain", model="openai:gpt-5")
typed = Agent("typed", model="openai:gpt-5", output=Answer)
either = Agent("either", model="openai:gpt-5", output=Answer | Refusal)
several = Agent("several", model="openai:gpt-5", output=list[Answer])
word = Agent("word", model="openai:gpt-5", output=Literal["yes", "no"])

async def main() -> None:
    reveal_type((await plain.run("go")).output)
    reveal_type((await typed.run("go")).output)
    reveal_type((await either.run("go")).output)
    reveal_type((await several.run("go")).output)
    reveal_type((await word.run("go")).output)
    reveal_type((await (await typed.start("go")).result()).output)
    reveal_type(typed.run_sync("go").output)
    reveal_type((await typed.session("s").send("go")).output)
    reveal_type((await typed.replace(instructions="Be brief.").run("go")).output)
    async with Runtime([plain, typed]) as runtime:
        reveal_type((await (await runtime.start(typed, "go", who=WHO)).result()).output)
        reveal_type((await runtime.session(either, who=WHO).send("go")).output)
        await runtime.start(typed, who=WHO)  # refused
        await runtime.start(typed, "go")  # refused
        await runtime.start(typed, 5, who=WHO)  # refused
        await runtime.start(typed, "go", who="ada")  # refused
        await runtime.start(typed, "go", who=WHO, max_stps=3)  # refused
    Agent(model="openai:gpt-5")  # refused
    Agent("a", modell="openai:gpt-5")  # refused
    Agent("a", tools=5)  # refused
    Agent("a", limits={"steps": 3})  # refused
    Agent("a", output=5)  # refused
    await typed.run(5)  # refused
    await typed.run("go", who="ada")  # refused
    await typed.run("go", limit=3)  # refused
    typed.run("go").output  # refused
    typed.session(5)  # refused
    number: int = (await typed.run("go")).output  # refused
"""
INFERRED = ["str", "Answer", "Answer | Refusal", "list[Answer]", "Literal['yes'] | Literal['no']", *["Answer"] * 5]


def test_the_output_of_an_agent_is_inferred_and_mistakes_are_refused(tmp_path: Path) -> None:
    """By mypy in its strict mode: each marked line has an error, and no other line has one."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, "utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=110,
    )
    revealed = re.findall(r'Revealed type is "(.*)"', checked.stdout)
    assert [re.sub(r"program\.|builtins\.", "", one) for one in revealed][: len(INFERRED)] == INFERRED, checked.stdout
    wanted = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")}
    found = {int(number) for number in re.findall(r"program\.py:(\d+): error", checked.stdout)}
    assert found == wanted, checked.stdout
