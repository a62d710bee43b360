"""The command that runs the benchmarks: it fails when a promise is missed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(ROOT)
    module = importlib.import_module("benchmarks.__main__")
    monkeypatch.setattr(module, "OUT", tmp_path / "results.json")
    yield module
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def measured(monkeypatch: pytest.MonkeyPatch, main: ModuleType, **figures: Any) -> int:
    async def benchmark() -> list[Any]:
        return [main.Row(name="a row", unit="µs CPU", **figures)]

    monkeypatch.setattr(main, "BENCHMARKS", {"only": benchmark})
    status: int = main.main([])
    return status


def test_a_missed_promise_fails_the_command_and_names_the_row(
    main: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ratio above its limit, a figure above its most or below its least ends the command with 1, by name."""
    for figures in (
        {"ours": 7.0, "bare": 1.0, "limit": 6.0},
        {"ours": 7.0, "limit": 6.0},
        {"ours": 111.0, "most": 110.0},
        {"ours": 0.9, "least": 0.99},
    ):
        assert measured(monkeypatch, main, **figures) == 1, figures
        assert "missed: a row" in capsys.readouterr().err


def test_kept_promises_end_with_zero(main: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at its limit, or without one, ends the command with 0 and is written down."""
    for figures in ({"ours": 6.0, "bare": 1.0, "limit": 6.0}, {"ours": 5.0}, {"ours": 110.0, "most": 110.0}):
        assert measured(monkeypatch, main, **figures) == 0, figures
    assert b'"a row"' in main.OUT.read_bytes()


def test_an_unknown_name_is_refused_with_the_list(main: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark that does not exist ends the command with 2 and shows those that do."""
    assert main.main(["stpes"]) == 2
    assert "stpes" in (said := capsys.readouterr().err)
    assert "steps" in said
