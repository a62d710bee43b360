"""`harborage scaffold`: a project around a configuration, with a stub and a test for each of its tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harborage.app.new_project import NewProjectError, scaffold_project
from harborage.cli.main import main
from tests.kit.configurations import text_of

BASE = ["Makefile", "README.md", "agent.py", "conftest.py", "harborage.yaml", "tests/test_agent.py"]
TOOLS = [
    {"name": "refund", "description": 'Pay "money" back.', "input": {"order": "string", "euros": "number"},
     "output": {"paid": "boolean", "notes": "[]string"}},
    {"name": "billing-Look-Up", "description": "Look up\nmore.", "input": {"page": "integer"}},
    {"name": "class", "description": "A word of Python."},
    {"name": "billing_look_up", "description": "Nearly the same name."},
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_in(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def said_by_tests(project: Path) -> str:
    """What the project's own tests say, run by this Python."""
    environ = os.environ | {"PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)]
    done = subprocess.run(
        words, cwd=project.parent, env=environ, capture_output=True, text=True, timeout=90, check=False
    )
    return done.stdout + done.stderr


def test_a_project_is_valid_and_its_tests_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a configuration a new one is written; nothing needs to be edited."""
    assert main(["scaffold", "--name", "shop"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "  cd shop && make test"
    assert files_in(folder / "shop") == BASE
    assert main(["validate", "shop/harborage.yaml"]) == 0
    assert "1 passed" in said_by_tests(folder / "shop")


def test_each_declared_tool_becomes_a_stub_and_a_test(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration of the folder is copied as it is, and the stubs have the declared names, types and results."""
    data = text_of({"tools.custom": TOOLS}) + b"# a comment that stays\n"
    (folder / "harborage.yaml").write_bytes(data)
    assert main(["scaffold", "--name", "shop", "--json"]) == 0
    names = ["billing_look_up", "billing_look_up_", "class_", "refund"]
    made = sorted([*BASE, *(f"tools/{name}.py" for name in names), *(f"tests/test_{name}.py" for name in names)])
    assert json.loads(capsys.readouterr().out) == {"name": "shop", "output_dir": "shop", "files": made}
    assert (folder / "shop/harborage.yaml").read_bytes() == data
    assert main(["validate", "shop/harborage.yaml", "--quiet"]) == 0
    shown = said_by_tests(folder / "shop")
    assert "5 passed" in shown, shown


def test_another_configuration_may_be_named(folder: Path) -> None:
    """--from-config wins over the file of the folder."""
    (folder / "harborage.yaml").write_text("broken: [")
    (folder / "other.yaml").write_bytes(text_of())
    assert main(["scaffold", "--name", "shop", "--from-config", "other.yaml", "--output", "out", "--quiet"]) == 0
    assert (folder / "out/harborage.yaml").read_bytes() == text_of()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--name", "Bad/Name"], "invalid_project_name"),
        (["--name", ""], "invalid_project_name"),
        (["--name", "shop", "--template", "big"], "unknown_template"),
        (["--name", "there"], "output_dir_exists"),
        (["--name", "shop", "--from-config", "missing.yaml"], "upstream_config_invalid"),
        (["--name", "shop", "--from-config", "bad.yaml"], "upstream_config_invalid"),
        (["--name", "shop", "--from-config", "field.yaml"], "scaffold_failed"),
        (["--name", "shop", "--from-config", "tool.yaml"], "scaffold_failed"),
        (["--name", "shop", "--output", "file/shop"], "scaffold_failed"),
    ],
)
def test_what_cannot_be_made_is_refused(
    words: list[str], code: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the code of the rule, and nothing written."""
    (folder / "there").mkdir()
    (folder / "file").touch()
    (folder / "bad.yaml").write_bytes(text_of({"project": ""}))
    field = {"name": "pay", "description": "d", "input": {"order-id": "string"}}
    (folder / "tool.yaml").write_bytes(text_of({"tools.custom": [{"name": "a.b", "description": "d"}]}))
    (folder / "field.yaml").write_bytes(text_of({"tools.custom": [field]}))
    before = files_in(folder)
    assert main(["scaffold", *words, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["code"] == code
    assert files_in(folder) == before
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["there"]


def test_a_patch_writes_only_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that are there stay as they are, and are named as skipped."""
    assert main(["scaffold", "--name", "shop", "--quiet"]) == 0
    (folder / "shop/agent.py").write_text("mine")
    (folder / "shop/README.md").unlink()
    assert main(["scaffold", "--name", "shop", "--patch", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "shop",
        "output_dir": "shop",
        "files": ["README.md"],
        "skipped": [file for file in BASE if file != "README.md"],
    }
    assert (folder / "shop/agent.py").read_text() == "mine"
    assert main(["scaffold", "--name", "shop", "--patch"]) == 0
    assert "6 files were there already" in capsys.readouterr().out


def test_a_name_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --name it is wrong use: one line, exit code 1."""
    assert main(["scaffold"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Error: harborage scaffold: ")
    assert "--name" in shown


NAMES = st.text(st.sampled_from("aZ09_-. x"), min_size=1, max_size=20)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, TEXTS), max_size=4, unique_by=lambda one: one[0]))
def test_every_stub_is_python_whatever_its_tool_is_called(
    tmp_path_factory: pytest.TempPathFactory, named: list[tuple[str, str]]
) -> None:
    """Names and descriptions may hold any text: the files compile, or the configuration is refused."""
    folder = tmp_path_factory.mktemp("stubs")
    tools = [{"name": name, "description": text, "output": {"ok": "boolean"}} for name, text in named]
    (folder / "c.yaml").write_bytes(text_of({"tools.custom": tools}))
    try:
        made = scaffold_project("shop", folder / "shop", config=folder / "c.yaml")
    except NewProjectError as error:
        codes = {error.code}
    else:
        codes = set()
        for file in (one for one in made.files if one.endswith(".py")):
            compile((made.folder / file).read_text("utf-8"), file, "exec")
    assert codes <= {"upstream_config_invalid", "scaffold_failed"}
