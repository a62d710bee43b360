"""What it costs to import Harborage, build a runtime and ask the command for help, beside an empty interpreter."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from statistics import median

from benchmarks.measure import Row

_ROUNDS = 9
_EMPTY = "pass"
_BUILD = """
import asyncio
from harborage import Runtime, tool

@tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

async def main():
    async with Runtime(model="script:", tools=[add]):
        pass

asyncio.run(main())
"""
_CASES = {
    "import harborage": ("import harborage", None),
    "import and build a runtime": (_BUILD, 110.0),
    "harborage --help": (
        "import sys; sys.argv = ['harborage', '--help']\nfrom harborage.cli.main import main\nmain()",
        None,
    ),
}


async def import_time() -> list[Row]:
    """Milliseconds of CPU of a fresh process; the bare one only starts the interpreter."""
    empty = _process_ms(_EMPTY)
    return [
        Row(name=name, unit="ms CPU", ours=_process_ms(code), bare=empty, most=most, note="bare: an empty interpreter")
        for name, (code, most) in _CASES.items()
    ]


def _process_ms(code: str) -> float:
    # As installed: compiled once, however this process was told to treat bytecode.
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, capture_output=True, env=surroundings)
    spent: list[float] = []
    for _ in range(_ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=False, capture_output=True, env=surroundings)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(spent) * 1e3
