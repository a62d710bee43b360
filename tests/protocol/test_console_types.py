"""The console's types of the wire are those of this server."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_types_of_the_wire_are_what_the_server_has() -> None:
    """A change of a message or a payload changes the console's types with it, so that its own check sees the drift."""
    generator = runpy.run_path(str(ROOT / "console" / "generate_types.py"))
    written: Path = generator["PLACE"]
    assert written.read_text("utf-8") == generator["types_text"](), "run 'make console-types'"
