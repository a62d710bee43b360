"""Files under a root: list, read, search and write. The folder walk and its refusals are `rooted`.

Texts only, in UTF-8. Every call is bounded: in what it returns, and in how much it looks at.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from os import PathLike
from typing import Final, NotRequired, TypedDict

import msgspec

from harborage.tools.enums import SideEffect
from harborage.tools.function import tool
from harborage.tools.model import ToolDescriptor
from harborage.tools.policy import ToolPolicy
from harborage.tools.standard.errors import FileRefusedError, PathRefusedError
from harborage.tools.standard.root import Entry, Root, list_entries, may_hold_secrets
from harborage.tools.text import read_window

_ONCE: Final = ToolPolicy(max_retries=0)
_TAGS: Final = ("standard", "files")
_SKIPPED: Final = frozenset({".git", ".hg", ".venv", "__pycache__", "node_modules"})
_MAX_DEPTH: Final = 32
_MARGIN: Final = 4  # bytes around a window, to see whether a character is cut


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one call may return or look at. Sizes are in bytes.

    `read_bytes` is returned at most by one read, `write_bytes` written by one write; `entries` are listed, `matches`
    found; a search looks into `search_files` files, into none larger than `search_file_bytes`.
    """

    read_bytes: int = 64 * 1024
    write_bytes: int = 1024 * 1024
    entries: int = 500
    matches: int = 100
    search_files: int = 5_000
    search_file_bytes: int = 2 * 1024 * 1024


class ListedEntry(TypedDict):
    """One entry of a folder; `kind` is file, folder, link or other."""

    path: str
    kind: str
    size_bytes: NotRequired[int]


class Listing(TypedDict):
    """The entries below a folder; `truncated` when there are more."""

    entries: list[ListedEntry]
    truncated: bool


class FilePiece(TypedDict):
    """A piece of a text file. `size_bytes` is the whole file's; `next_offset` is where to read on."""

    path: str
    size_bytes: int
    offset: int
    content: str
    truncated: bool
    next_offset: NotRequired[int]


class Match(TypedDict):
    """One line that holds the searched text; `offset` is where in its file the line begins."""

    path: str
    line: int
    offset: int
    text: str


class Matches(TypedDict):
    """What a search found; `truncated` when it stopped at a limit. `skipped` files are no text, too large, or have a
    name that usually means secrets."""

    matches: list[Match]
    searched: int
    skipped: int
    truncated: bool


class Written(TypedDict):
    """The file that was written."""

    path: str
    size_bytes: int
    created: bool


def file_tools(
    root: str | PathLike[str],
    *,
    can_write: bool = True,
    limits: FileLimits = FileLimits(),  # noqa: B008 - frozen
) -> list[ToolDescriptor]:
    """`list_files`, `read_file`, `search_files` and, with `can_write`, `write_file`, all below `root`.

    Raises:
        PathRefusedError: `root` is no folder.
    """
    folder = Root(root)
    readers = [_list_files(folder, limits), _read_file(folder, limits), _search_files(folder, limits)]
    return [*readers, _write_file(folder, limits)] if can_write else readers


def _list_files(root: Root, limits: FileLimits) -> ToolDescriptor:
    def list_files(path: str = "", pattern: str = "", recursive: bool = False) -> Listing:
        """List files and folders.

        Args:
            path: the folder, relative to the root; empty for the root itself
            pattern: only paths that match, such as *.py or docs/*.md; a name alone matches in any folder
            recursive: also what is in the folders below
        """
        found: list[ListedEntry] = []
        for where, entry in _walk(root, path, depth=_MAX_DEPTH if recursive else 1):
            if pattern and not _is_match(where, pattern):
                continue
            if len(found) == limits.entries:
                return Listing(entries=found, truncated=True)
            found.append(_to_listed(where, entry))
        return Listing(entries=found, truncated=False)

    return tool(list_files, effects=SideEffect.READ, tags=_TAGS, policy=_ONCE, source="standard")


def _read_file(root: Root, limits: FileLimits) -> ToolDescriptor:
    def read_file(path: str, offset: int = 0, max_bytes: int = 0) -> FilePiece:
        """Read a text file, in pieces if it is long.

        Args:
            path: the file, relative to the root
            offset: the byte to begin at; take next_offset of the last piece to read on
            max_bytes: how much to read at once; as much as allowed unless given
        """
        wanted = min(max_bytes, limits.read_bytes) if max_bytes > 0 else limits.read_bytes
        with root.file(path) as (handle, size):
            if not 0 <= offset <= size:
                raise FileRefusedError(path, f"offset {offset} is outside the file, which has {size} bytes")
            return _read_piece(handle, path, size, offset, wanted)

    return tool(read_file, effects=SideEffect.READ, tags=_TAGS, policy=_ONCE, source="standard")


def _search_files(root: Root, limits: FileLimits) -> ToolDescriptor:
    def search_files(text: str, path: str = "", pattern: str = "", ignore_case: bool = True) -> Matches:
        """Find the lines of text files that hold a text, in a folder and below it; files of secrets are skipped.

        Args:
            text: what to look for, as it is; not a regular expression
            path: the folder, relative to the root; empty for the root itself
            pattern: only files that match, such as *.py
            ignore_case: whether capital and small letters are the same
        """
        if not text or "\n" in text:
            raise FileRefusedError(path, "give a text of one line to look for")
        search = _Search(root, limits, text, ignore_case)
        for where, entry in _walk(root, path, depth=_MAX_DEPTH):
            if entry.kind != "file" or (pattern and not _is_match(where, pattern)):
                continue
            if not search.search_file(where, entry.size_bytes):
                break
        return search.result()

    return tool(search_files, effects=SideEffect.READ, tags=_TAGS, policy=_ONCE, source="standard")


def _write_file(root: Root, limits: FileLimits) -> ToolDescriptor:
    def write_file(path: str, content: str, overwrite: bool = False) -> Written:
        """Write a text file; missing folders are made.

        Args:
            path: the file, relative to the root
            content: the whole text of the file
            overwrite: replace a file that is there
        """
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise FileRefusedError(path, "the content is not valid Unicode") from error
        if len(data) > limits.write_bytes:
            raise FileRefusedError(path, f"the content has {len(data)} bytes; at most {limits.write_bytes} are written")
        created = root.write(path, data, overwrite=overwrite)
        return Written(path=path, size_bytes=len(data), created=created)

    return tool(
        write_file,
        effects=SideEffect.WRITE,
        tags=_TAGS,
        policy=_ONCE,
        source="standard",
        safety_notes="Replaces whole files below the root when overwrite is set.",
    )


def _walk(root: Root, path: str, *, depth: int) -> Iterator[tuple[str, Entry]]:
    """Yield the entries below a folder by path, names in order; folders such as `.git` are listed, not entered."""
    prefix = path.strip("/")
    with root.folder(path) as folder:
        found = sorted(list_entries(folder), key=lambda entry: entry.name)
    for entry in found:
        where = f"{prefix}/{entry.name}" if prefix not in ("", ".") else entry.name
        yield where, entry
        if entry.kind == "folder" and depth > 1 and entry.name not in _SKIPPED:
            try:
                yield from _walk(root, where, depth=depth - 1)
            except (PathRefusedError, FileRefusedError):
                continue  # gone, replaced by a link, or unreadable; its siblings are still listed


def _is_match(path: str, pattern: str) -> bool:
    name = path if "/" in pattern else path.rpartition("/")[2]
    return fnmatch.fnmatchcase(name, pattern)


def _to_listed(path: str, entry: Entry) -> ListedEntry:
    listed = ListedEntry(path=path, kind=entry.kind)
    if entry.kind == "file":
        listed["size_bytes"] = entry.size_bytes
    return listed


def _read_piece(handle: int, path: str, size: int, offset: int, wanted: int) -> FilePiece:
    """Read whole characters from `offset` on; only this piece is read, however long the file is."""
    start = max(0, offset - _MARGIN)
    data = os.pread(handle, offset - start + wanted + _MARGIN, start)
    window = read_window(data, offset - start, wanted)
    try:
        content = window.data.decode()
    except UnicodeDecodeError as error:
        raise FileRefusedError(path, "it is not text in UTF-8, so it is not shown") from error
    if "\0" in content:
        raise FileRefusedError(path, "it holds NUL bytes, so it is binary and not shown")
    end = start + window.end
    piece = FilePiece(path=path, size_bytes=size, offset=start + window.start, content=content, truncated=end < size)
    if end < size:
        piece["next_offset"] = end
    return piece


class _Search:
    """The progress of one search."""

    def __init__(self, root: Root, limits: FileLimits, text: str, ignore_case: bool) -> None:
        self._root = root
        self._limits = limits
        self._text = text.casefold() if ignore_case else text
        self._ignore_case = ignore_case
        self._matches: list[Match] = []
        self._searched = 0
        self._skipped = 0
        self._is_cut = False

    def search_file(self, path: str, size: int) -> bool:
        """Search one file; False when a limit is reached."""
        if self._searched + self._skipped == self._limits.search_files:
            self._is_cut = True
            return False
        content = self._read_content(path, size)
        if content is None:
            self._skipped += 1
            return True
        self._searched += 1
        return self._add_matches(path, content)

    def result(self) -> Matches:
        """Return the matches."""
        return Matches(matches=self._matches, searched=self._searched, skipped=self._skipped, truncated=self._is_cut)

    def _read_content(self, path: str, size: int) -> str | None:
        if size > self._limits.search_file_bytes or may_hold_secrets(path):
            return None
        try:
            with self._root.file(path) as (handle, now):
                data = os.pread(handle, min(now, self._limits.search_file_bytes), 0)
        except (PathRefusedError, FileRefusedError):
            return None
        if b"\0" in data:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None

    def _add_matches(self, path: str, content: str) -> bool:
        if self._text not in (content.casefold() if self._ignore_case else content):
            return True
        offset = 0
        for number, line in enumerate(content.split("\n"), 1):
            if self._text in (line.casefold() if self._ignore_case else line):
                if len(self._matches) == self._limits.matches:
                    self._is_cut = True
                    return False
                self._matches.append(Match(path=path, line=number, offset=offset, text=line[:_LINE_CHARS].rstrip("\r")))
            offset += len(line.encode()) + 1
        return True


_LINE_CHARS: Final = 240
