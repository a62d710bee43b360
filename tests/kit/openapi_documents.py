"""OpenAPI documents of real products, from npm packages of pinned versions: `path = document("figma")`.

They are fetched once, by `npm pack`, and kept beside the environment of the tests. No package runs anything.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

import pytest

PLACE: Final = Path(sys.prefix) / "foreign"


class Packed(NamedTuple):
    """A document in a package of npm: the package, its version and checksum, and the file in it."""

    package: str
    version: str
    file: str
    sha512: str

    @property
    def kept(self) -> Path:
        name = self.package.strip("@").replace("/", "-")
        return PLACE / f"{name}-{self.version}{Path(self.file).suffix}"


PACKED: Final = {
    "figma": Packed(
        "@figma/rest-api-spec",
        "0.43.0",
        "openapi/openapi.yaml",
        "sbFm28WM8MsawyLSYO9Ddne+8xytWU5D7oCOOWyzRvLpd9InFHihC37dQBVJVzAVyT7HpwYtU4wlm+ALogC38g==",
    ),
    "directus": Packed(
        "@directus/specs",
        "15.2.0",
        "dist/openapi.json",
        "JauzDjbFbeoZ9AceWh/pbG/U2R2/5V8jP7Ldp/bpSPbsDu392uXEUQGTfWkowLqgRXtjmGHP5vIZoUJpjqaFPw==",
    ),
    "blockfrost": Packed(
        "@blockfrost/openapi",
        "0.1.93",
        "openapi.yaml",
        "gC0NOZk+9MSa5aK846gbcU12VqbZwzVpZmgO6314e9ExJo9g3QsMmniplewOhI5fJQVHR0A7lgCVqk/pbK1iKA==",
    ),
    "notion": Packed(
        "@notionhq/notion-mcp-server",
        "2.5.2",
        "scripts/notion-openapi.json",
        "5nPSwHMnugSGAhSJS5vVIlMao+iTJO9HoWGpCnT8lJNrPy3rZMqs1V/CPiN4MuxF+5EBgRE/f/Tirl6Wfi75Mg==",
    ),
}
"""The documents by a short name."""


def document(name: str) -> Path:
    """Return the file of a document, fetched with the first use; without npm the test is skipped."""
    packed = PACKED[name]
    if packed.kept.exists():
        return packed.kept
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"the document of {packed.package} is fetched by npm, which is not on PATH")
    PLACE.mkdir(exist_ok=True)
    with (PLACE / f"{name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not packed.kept.exists():
            _fetch(npm, packed)
    return packed.kept


def _fetch(npm: str, packed: Packed) -> None:
    wanted = f"{packed.package}@{packed.version}"
    folder = PLACE / f"fetching-{packed.kept.stem}"
    folder.mkdir(exist_ok=True)
    command = [npm, "pack", wanted, "--silent", "--pack-destination", str(folder)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, f"npm pack {wanted} failed:\n{ended.stderr}"
    [archive] = folder.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert found == packed.sha512, f"{wanted} is not what was pinned"
    with tarfile.open(archive) as files:
        content = files.extractfile(f"package/{packed.file}")
        assert content is not None
        draft = packed.kept.with_suffix(".draft")
        draft.write_bytes(content.read())
    draft.rename(packed.kept)
    shutil.rmtree(folder)
