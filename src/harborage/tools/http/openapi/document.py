"""An OpenAPI document as it was read, and its references: inside it, or to files beside it. No address is visited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from harborage.artifacts.media import size_text
from harborage.tools.http.errors import DocumentError

MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_REFERENCES: Final = 32
METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


class Node(NamedTuple):
    """A value of a document, and the file that it stands in, so that its references lead on from there."""

    value: Any
    file: Path | None
    place: str = ""

    def get(self, name: str) -> Node:
        """The value under a name; one that is None where there is none."""
        found = self.value.get(name) if isinstance(self.value, Mapping) else None
        return Node(found, self.file, f"{self.place}/{name}")

    def items(self) -> Iterator[tuple[str, Node]]:
        """Each name of an object, with its value."""
        if isinstance(self.value, Mapping):
            for name in self.value:
                yield str(name), self.get(name)

    def each(self) -> Iterator[Node]:
        """Each value of a list."""
        if isinstance(self.value, list):
            for index, one in enumerate(self.value):
                yield Node(one, self.file, f"{self.place}/{index}")

    def text(self, name: str) -> str:
        """The text under a name; empty where there is none."""
        found = self.get(name).value
        return found if isinstance(found, str) else ""


class Document:
    """A document. `name` says what it is in errors.

    Raises:
        DocumentError: it is not there, too large, or no OpenAPI document of version 3.
    """

    def __init__(self, source: str | PathLike[str] | bytes | Mapping[str, Any]) -> None:
        self._folder: Path | None = None
        self._files: dict[Path | None, Any] = {}
        self.name = "the document"
        file: Path | None = None
        if isinstance(source, Mapping):
            found: Any = source
        elif isinstance(source, bytes):
            found = parse(source, self.name)
        else:
            file = Path(source).absolute()
            self.name = Path(source).name
            self._folder = file.parent.resolve()
            found = parse(_read(file, self.name), self.name)
        self._files[file] = found
        self.root = Node(found, file)
        version = str(found.get("openapi", "")) if isinstance(found, Mapping) else ""
        if not version.startswith("3."):
            older = isinstance(found, Mapping) and "swagger" in found
            what = "it is Swagger 2.0; convert it to OpenAPI 3" if older else 'it says no "openapi: 3.…"'
            raise DocumentError("document", self.name, message=f"{self.name}: {what}")
        self.is_30 = version.startswith("3.0")

    def resolve(self, node: Node) -> Node:
        """Return what a node is, once its references are followed.

        Raises:
            DocumentError: one leads nowhere, in a circle, or out of what may be read.
        """
        for _ in range(_MOST_REFERENCES):
            if not isinstance(node.value, Mapping) or not isinstance(node.value.get("$ref"), str):
                return node
            node = self.find(node.value["$ref"], node.file)
        raise DocumentError("document", self.name, message=f"{self.name}: its references lead in a circle")

    def find(self, reference: str, file: Path | None) -> Node:
        """Return what a reference in `file` names.

        Raises:
            DocumentError: as of `resolve`.
        """
        target, _, pointer = reference.partition("#")
        where = file if not target else self._beside(target, file)
        if where not in self._files:
            assert where is not None
            self._files[where] = parse(_read(where, where.name), where.name)
        found = Node(self._files[where], where)
        for step in pointer.split("/")[1:] if pointer.startswith("/") else ():
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found.value, list) and name.isdecimal() and int(name) < len(found.value):
                found = Node(found.value[int(name)], found.file, f"{found.place}/{name}")
            else:
                found = found.get(name)
            if found.value is None:
                raise DocumentError("document", self.name, message=f"{self.name}: {_shown(reference)} leads nowhere")
        return found

    def _beside(self, target: str, file: Path | None) -> Path:
        """The file that a reference names, which is in the folder of the document or below it."""
        if self._folder is None or file is None or ":" in target or target.startswith(("/", "\\")):
            why = "it refers to another document, and none is fetched"
            raise DocumentError("document", self.name, message=f"{self.name}: {why}: {_shown(target)}")
        found = (file.parent / unquote(target)).resolve()
        if not found.is_relative_to(self._folder):
            why = "it refers to a file out of its folder"
            raise DocumentError("document", self.name, message=f"{self.name}: {why}: {_shown(target)}")
        return found


def parse(data: bytes, name: str) -> Any:
    """Return the value of a document in JSON or YAML.

    Raises:
        DocumentError: it is neither.
    """
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass  # it may be YAML, which may begin so, too
    import yaml  # type: ignore[import-untyped] # only for documents that are no JSON

    try:
        return yaml.load(data, Loader=_loader())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f", line {mark.line + 1}" if mark is not None else ""
        raise DocumentError("document", name, message=f"{name}: it is neither JSON nor YAML{at}") from error


def _loader() -> Any:
    """A loader that makes texts of dates, as JSON has them, and merges nothing."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    kept = {
        first: [one for one in rules if one[0] != "tag:yaml.org,2002:timestamp"]
        for first, rules in base.yaml_implicit_resolvers.items()
    }
    return type("DocumentLoader", (base,), {"yaml_implicit_resolvers": kept})


def _read(path: Path, name: str) -> bytes:
    try:
        if not path.is_file():
            raise DocumentError("document", name, message=f"{name}: there is no such file")
        if (size := path.stat().st_size) > MOST_BYTES:
            text = f"{name}: it has {size_text(size)}; at most {size_text(MOST_BYTES)} are read"
            raise DocumentError("document", name, message=text)
        return path.read_bytes()
    except OSError as error:
        raise DocumentError("document", name, message=f"{name}: it cannot be read: {error.strerror}") from error


def _shown(reference: str) -> str:
    return repr(reference[:128])
