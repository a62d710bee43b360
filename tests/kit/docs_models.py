"""What the models of the documentation say: the lines of `tests/data/docs_models.json`, by page or program."""

from __future__ import annotations

import json
from pathlib import Path

from harborage.llm import ToolCallStructured
from harborage.testing.conformance.llm_bench import Answer

ROOT = Path(__file__).resolve().parents[2]


def answers_for(page: str) -> list[Answer]:
    """What the model of a page says, call by call."""
    lines = json.loads((ROOT / "tests" / "data" / "docs_models.json").read_text("utf-8")).get(page, [])
    return [
        Answer(
            content=line.get("content", ""),
            calls=[
                ToolCallStructured(f"call-{at}", call["name"], json.dumps(call["args"]).encode())
                for at, call in enumerate(line.get("calls", []))
            ],
        )
        for line in lines
    ]
