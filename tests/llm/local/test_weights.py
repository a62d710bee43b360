"""The file that a model string means, and the error when it is missing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from harborage.llm.local.weights import (
    KNOWN_WEIGHTS,
    UnknownWeightsError,
    WeightsMissingError,
    data_folder,
    find_file,
    find_weights,
    is_intact,
    is_ready,
    models_folder,
    place_of,
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
