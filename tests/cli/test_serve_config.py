"""`harborage serve --config`: what is refused before anything is served."""

from __future__ import annotations

from pathlib import Path

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
