"""`harborage validate`: texts, JSON, exit codes and the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harborage.cli.main import main
from harborage.config import json_schema
from tests.kit.configurations import text_of

SECRET = "hunter2-canary"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_right_file_is_ok(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, or one object; with --quiet nothing. Without a path it is the folder's own file."""
    (folder / "harborage.yaml").write_bytes(text_of())
    assert main(["validate"]) == 0
    assert capsys.readouterr() == ("harborage.yaml: ok\n", "")
    assert main(["validate", "harborage.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "file": "harborage.yaml"}
    assert main(["validate", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_without_ours_the_other_file_is_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """harbor.yaml is read where harborage.yaml is not there."""
    (folder / "harbor.yaml").write_bytes(text_of())
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == "harbor.yaml: ok\n"


def test_keys_without_effect_are_warnings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are valid, and said."""
    (folder / "c.yaml").write_bytes(text_of({"telemetry.otel_endpoint": "http://x.test"}))
    assert main(["validate", "c.yaml"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "c.yaml: ok\n"
    assert shown.err == "Warning: c.yaml:10:3: telemetry.otel_endpoint has no effect in this version\n"
    assert main(["validate", "c.yaml", "--json"]) == 0
    (notice,) = json.loads(capsys.readouterr().out)["notices"]
    assert (notice["path"], notice["line"], notice["column"]) == ("telemetry.otel_endpoint", 10, 3)


def test_everything_that_is_wrong_is_said_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each finding, with its place, what is wrong and a hint; exit code 1."""
    changes = {"events": {"drvier": "inmem"}, "sessions.idle_ttl": "800h", "state.dsn": [SECRET]}
    (folder / "c.yaml").write_bytes(text_of(changes))
    assert main(["validate", "c.yaml"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    first, *rest = shown.err.splitlines()
    assert first == "Error: harborage validate: c.yaml has 3 problems (nothing was started or changed)"
    assert rest == [
        "  c.yaml:10:3: c.yaml: parse: [10:3] there is no key drvier in events (did you mean driver?)",
        "  c.yaml:12:3: config.sessions.idle_ttl: must be at most hard_cap, 720h (source: c.yaml)",
        "  c.yaml:15:3: c.yaml: parse: [15:3] state.dsn must be a text, or a reference such as env:NAME",
    ]
    assert SECRET not in shown.err


def test_findings_are_one_json_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with a code, a hint, and category, file, line, column, message and hint of each."""
    (folder / "c.yaml").write_bytes(text_of({"events": {"drvier": "inmem"}, "project": ""}))
    assert main(["validate", "c.yaml", "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    body = json.loads(shown.err)
    assert {**body, "errors": []} == {
        "error": "c.yaml has 2 problems",
        "code": "validation_failed",
        "hint": "nothing was started or changed",
        "errors": [],
    }
    assert body["errors"] == [
        {
            "category": "config.parse",
            "file": "c.yaml",
            "line": 10,
            "column": 3,
            "message": "c.yaml: parse: [10:3] there is no key drvier in events",
            "hint": "did you mean driver?",
        },
        {
            "category": "config.semantic",
            "file": "c.yaml",
            "line": 11,
            "column": 1,
            "message": "config.project: must not be blank (source: c.yaml)",
        },
    ]


def test_a_missing_file_has_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, category io.not_found, line 0."""
    assert main(["validate", "missing.yaml"]) == 2
    assert (
        capsys.readouterr().err
        == "Error: harborage validate: there is no file missing.yaml (harborage init makes one)\n"
    )
    assert main(["validate", "missing.yaml", "--json"]) == 2
    body = json.loads(capsys.readouterr().err)
    assert body["code"] == "validation_internal_error"
    assert [(one["category"], one["line"]) for one in body["errors"]] == [("io.not_found", 0)]


def test_a_file_that_cannot_be_read_has_that_code_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder is no file: exit code 2, category io.read."""
    assert main(["validate", str(folder), "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["errors"][0]["category"] == "io.read"


def test_the_environment_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable is checked like the file, and named where it is wrong."""
    (folder / "harborage.yaml").write_bytes(text_of())
    monkeypatch.setenv("HARBORAGE_LLM_CORRECTIONS_ENABLED", "true")
    assert main(["validate"]) == 1
    assert "cannot be set by HARBORAGE_LLM_CORRECTIONS_ENABLED" in capsys.readouterr().err


def test_wrong_use_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown option is one line on stderr, and nothing is checked."""
    assert main(["validate", "--bogus"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Error: harborage validate: ")
    assert shown.err.count("\n") == 1


def test_the_schema_is_printed_for_editors(capsys: pytest.CaptureFixture[str]) -> None:
    """It goes to stdout alone, and no file is needed."""
    assert main(["validate", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
