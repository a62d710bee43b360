"""The plugin of pytest, in a project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = '''
import os

import pytest


async def test_a_coroutine(tmp_path, fake_clock):
    """It runs, with fixtures."""
    before = fake_clock.now()
    await fake_clock.run_for(60)
    assert (fake_clock.now() - before).total_seconds() == 60
    assert tmp_path.is_dir()


async def test_one_that_fails():
    assert os.environ.get("HARBORAGE_RECORD", "none") == "openai:gpt-5"


@pytest.mark.parametrize("number", [1, 2])
async def test_a_row(number):
    assert number
'''


def outcome(folder: Path, *options: str) -> str:
    """The last lines of a run of pytest."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HARBORAGE_"))}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *options]
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with tests that are coroutines."""
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    return tmp_path


def test_coroutines_are_tests_without_another_plugin(project: Path) -> None:
    """They get fixtures, and those that fail fail."""
    said = outcome(project)
    assert "1 failed, 3 passed" in said
    assert "assert 'none' == 'openai:gpt-5'" in said


def test_an_option_records_cassettes_anew(project: Path) -> None:
    """It is what the variable HARBORAGE_RECORD is."""
    assert "4 passed" in outcome(project, "--harborage-record", "openai:gpt-5")


def test_a_project_may_leave_coroutines_to_another_plugin(project: Path) -> None:
    """Then they are not run as tests here."""
    (project / "pytest.ini").write_text("[pytest]\nharborage_async = false\n", "utf-8")
    assert "4 failed" in outcome(project)
