"""The reference pages are what the code says now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from harborage.events import EventType
from harborage.runtime.loop.controls import ControlType

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The script that writes the pages."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date(generate: ModuleType) -> None:
    """Each page holds what the script would write, and none is left of what it wrote before."""
    there = {page.name: page.read_text("utf-8") for page in generate.PLACE.glob("*.md")}
    there = {name: text for name, text in there.items() if text.startswith(generate.GENERATED)}
    made = generate.pages()
    stale = sorted(name for name in there.keys() | made.keys() if there.get(name) != made.get(name))
    assert not stale, f"docs/reference is behind the code ({', '.join(stale)}): run 'python docs/generate.py'"


def test_nothing_is_left_out(generate: ModuleType) -> None:
    """Every event type and every control has its row, and every error its line."""
    made = generate.pages()
    assert [event for event in EventType if f"| `{event}` |" not in made["events.md"]] == []
    assert [control for control in ControlType if f"| `{control}` |" not in made["controls.md"]] == []
    errors = generate.error_classes()
    assert len(errors) > 100
    assert [kind for kind in errors if f"- `{kind.__name__}` (" not in made["errors.md"]] == []


def test_writing_gives_the_pages(generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script writes one file a page."""
    monkeypatch.setattr(generate, "PLACE", tmp_path / "reference")
    generate.write()
    assert {page.name for page in (tmp_path / "reference").iterdir()} == set(generate.pages())
