"""`harborage serve --config`: what is refused before anything is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harborage.cli.main import main
from tests.kit.configurations import text_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_wrong_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each finding with its place, exit code 2."""
    (folder / "c.yaml").write_bytes(text_of({"project": "", "sessions.idle_ttl": "800h"}))
    assert main(["serve", "--config", "c.yaml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "harborage: c.yaml:9:1: config.project: must not be blank (source: c.yaml)",
        "harborage: c.yaml:11:3: config.sessions.idle_ttl: must be at most hard_cap, 720h (source: c.yaml)",
    ]
    assert main(["serve", "--config", "missing.yaml"]) == 2
    assert "there is no file missing.yaml" in capsys.readouterr().err


def test_what_this_version_cannot_do_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No server starts with a key that would promise what nothing keeps."""
    (folder / "c.yaml").write_bytes(text_of({"governance.identity_tiers": {"t": {"max_tokens": 1}}}))
    assert main(["serve", "--config", "c.yaml"]) == 2
    assert "c.yaml:10:3: config.governance.identity_tiers: has no effect in this version" in capsys.readouterr().err


def test_what_the_file_says_is_no_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options that the file replaces are refused, so that nobody wonders which counts."""
    (folder / "c.yaml").write_bytes(text_of())
    assert main(["serve", "--config", "c.yaml", "--keys", "k.json", "--storage", "memory:"]) == 2
    assert "--keys, --storage and --config: say it in c.yaml" in capsys.readouterr().err


REAL = {"llm.driver": "bifrost", "llm.provider": "openai", "llm.model": "gpt-5", "llm.api_key": "env:HOME"}
AGENT = "from harborage import Agent\nagent = Agent('clerk')\n"


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What `harborage dev` says of why it does not start."""
    assert main(["dev", *words, "--json"]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().err)
    return found


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"project": ""}, "boot_config_invalid"),
        ({"llm.provider": ""}, "boot_llm_required"),
        ({"llm.model": "", "llm.api_key": ""}, "boot_llm_required"),
        ({"llm.api_key": "env:NOT_SET_ANYWHERE"}, "boot_llm_required"),
        ({"llm.driver": "mock"}, "boot_llm_required"),
        ({"llm.driver": ""}, "boot_llm_required"),
        ({"project": "", "llm.provider": ""}, "boot_config_invalid"),
    ],
)
def test_a_development_server_that_does_not_start_says_why_by_a_code(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], code: str
) -> None:
    """One object with the error, its code and what is wrong, and exit code 1."""
    (folder / "agent.py").write_text(AGENT, "utf-8")
    (folder / "c.yaml").write_bytes(text_of({**REAL, **changes}))
    assert failed(capsys, "--config", "c.yaml")["code"] == code


def test_the_other_reasons_have_codes_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there, options that the file replaces, agents that cannot be loaded, a taken address."""
    assert failed(capsys, "--config", "missing.yaml")["code"] == "boot_config_invalid"
    (folder / "c.yaml").write_bytes(text_of({"llm.driver": "mock"}))
    assert failed(capsys, "--config", "c.yaml", "--storage", "memory:")["code"] == "boot_config_invalid"
    assert failed(capsys, "nobody.py", "--config", "c.yaml")["code"] == "boot_internal_error"
    assert main(["dev", "nobody.py", "--config", "c.yaml"]) == 1
    line = capsys.readouterr().err
    assert line.startswith("Error: harborage dev: ")
    assert "nobody.py" in line
