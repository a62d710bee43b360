"""`harborage init`: the files, what they do when they are used, and when nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harborage.cli.main import main

FILES = ["agent.py", "tests/test_agent.py", "Makefile", "README.md", "harborage.yaml", "AGENTS.md", "CLAUDE.md"]
HARBORAGE = str(Path(sys.executable).with_name("harborage"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_in(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def use(folder: Path, *words: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a project, without a key and without settings of this machine."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environ |= {"HOME": str(folder.parent), "PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words, cwd=folder, env=environ, input=said, capture_output=True, text=True, timeout=90, check=False
    )


def test_a_new_project_says_how_to_go_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files, and one line that can be pasted."""
    assert main(["init", "shop"]) == 0
    assert capsys.readouterr() == (
        "✓ shop: agent.py, tests/test_agent.py, Makefile, README.md and 3 more\n"
        "  cd shop && make test && harborage chat     (works now, without a key)\n",
        "",
    )
    assert files_in(folder / "shop") == sorted(FILES)
    assert (folder / "shop/AGENTS.md").read_bytes() == (folder / "shop/CLAUDE.md").read_bytes()


def test_a_new_project_works_at_once_without_a_key(folder: Path) -> None:
    """Its configuration is valid, its tests pass, and a conversation answers from the canned text and says so."""
    assert main(["init", "shop", "--quiet"]) == 0
    project = folder / "shop"
    assert use(project, HARBORAGE, "validate").stdout == "harborage.yaml: ok\n"
    tested = use(project, "make", "test", f"PYTHON={sys.executable}")
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
    asked = use(project, HARBORAGE, "chat", "--quiet", said="What is wrong with order 7?\nAnd again?\n")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.count("arrived broken. (This answer is canned, for no model is set up: ") == 2


def test_the_tests_of_a_project_pass_from_any_folder(folder: Path) -> None:
    """Plain pytest finds the agent, too."""
    assert main(["init", "shop", "--quiet"]) == 0
    tested = use(folder, sys.executable, "-m", "pytest", "-q", "shop/tests", "-p", "no:cacheprovider")
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr


def test_json_has_the_whole_paths(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Name, folder and files, all absolute."""
    assert main(["init", "--name", "ship", "--target", "boats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "ship",
        "target_dir": str(folder / "boats"),
        "files": [str(folder / "boats" / file) for file in FILES],
    }


@pytest.mark.parametrize(("called", "name"), [("shop-2", "shop-2"), ("My Shop", "agent")])
def test_the_current_folder_gives_the_name(
    called: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own name if that is one, else agent; no cd is needed."""
    (folder / called).mkdir()
    monkeypatch.chdir(folder / called)
    assert main(["init"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"✓ {name}: ")
    assert shown[1].startswith("  make test && harborage chat")


def test_nothing_is_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file that is there keeps all others from being written; other files do not matter."""
    (folder / "README.md").write_text("mine")
    (folder / "notes.txt").touch()
    assert main(["init", "--json"]) == 1
    body = json.loads(capsys.readouterr().err)
    assert body["code"] == "init_file_exists"
    assert "README.md" in body["error"]
    assert files_in(folder) == ["README.md", "notes.txt"]
    assert (folder / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["Bad/Name"], "init_invalid_project_name"),
        (["--name", "Shop"], "init_invalid_project_name"),
        (["--name", "a" * 65], "init_invalid_project_name"),
        (["shop", "--template", "big"], "init_unknown_template"),
    ],
)
def test_what_is_no_name_or_template_is_refused(
    words: list[str], code: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the code of the rule, and nothing written."""
    assert main(["init", *words, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["code"] == code
    assert files_in(folder) == []
    assert main(["init", *words]) == 1
    assert capsys.readouterr().err.startswith("Error: harborage init: ")


def test_a_failure_on_the_way_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written before it, and the folders that were made, are removed."""
    (folder / "shop").mkdir()
    (folder / "shop/tests").touch()  # a file where a folder must be
    assert main(["init", "shop", "--json"]) == 1
    body = json.loads(capsys.readouterr().err)
    assert (body["code"], body["hint"]) == ("init_failed", "nothing was kept")
    assert files_in(folder) == ["shop/tests"]


def test_wrong_use_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown option is one line, always as text."""
    assert main(["init", "--bogus", "--json"]) == 1
    assert capsys.readouterr().err.startswith("Error: harborage init: ")
