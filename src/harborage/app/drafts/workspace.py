"""The drafts of one project: made from a template, changed file by file, checked, and written into the project."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.app.drafts.folders import (
    MOST_FILE_BYTES,
    MOST_FILES,
    DraftTooLargeError,
    UnsafeDraftPathError,
    changed_at,
    is_part,
    list_files,
    opened,
    path_parts,
    read_file,
    remove_folder,
    write_file,
)
from harborage.app.new_project import NewProjectError, template_files
from harborage.app.project import DATA_FOLDER
from harborage.config import ConfigError, read_config
from harborage.config.loader import FILE_NAME
from harborage.errors import HarborageError
from harborage.ids import made_at, new_id

if TYPE_CHECKING:
    from harborage.identity import Identity

MOST_CONFIG_BYTES: Final = 64 * 1024
"""The largest configuration of a draft that is checked: the time for it grows with its size, and a server spends it."""

_DRAFTS: Final = "drafts"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class DraftError(HarborageError):
    """A draft cannot be made, changed or saved. `code` says which rule, `hint` the way out."""

    def __init__(self, code: str = "", message: str = "", *, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(message)


class DraftFile(msgspec.Struct, frozen=True):
    """A file of a draft with its bytes."""

    path: str
    size: int
    content: bytes


class Draft(msgspec.Struct, frozen=True):
    """A draft as it is kept."""

    id: str
    created_at: datetime
    updated_at: datetime
    files: tuple[DraftFile, ...]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with the configuration of a draft, as `harborage validate` says it."""

    category: str
    file: str
    line: int
    column: int
    message: str
    hint: str = ""


class Workspace:
    """The drafts below `root`, the folder of a project; each belongs to one principal. Its methods block.

    Raises, from every method:
        DraftError: `unsafe_path`: an id, a path or a part of the identity could lead elsewhere.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, who: Identity, name: str, template: str) -> tuple[str, tuple[str, ...]]:
        """Make a draft from a template; return its id and its files.

        Raises:
            DraftError: `invalid_request`, `unknown_template`: there is no such name or template.
        """
        try:
            files = template_files(name, template=template)
        except NewProjectError as error:
            code = error.code if error.code == "unknown_template" else "invalid_request"
            raise DraftError(code, str(error), hint=error.hint) from error
        draft_id = new_id()
        with _refusing(), opened(self._root, self._place(who), makes=True) as at:
            try:
                with opened(at, (draft_id,), makes=True) as folder:
                    for path, data in files.items():
                        write_file(folder, path_parts(path), data)
            except BaseException:
                remove_folder(draft_id, at)
                raise
        return draft_id, tuple(sorted(files))

    def read(self, who: Identity, id: str) -> Draft:
        """Return a draft with all its files.

        Raises:
            DraftError: `not_found`: there is none.
        """
        with self._opened(who, id) as folder:
            files = tuple(_file(folder, path) for path in list_files(folder))
            updated = datetime.fromtimestamp(changed_at(folder), UTC)
        return Draft(id, made_at(id) or updated, updated, files)

    def write(self, who: Identity, id: str, path: str, data: bytes) -> None:
        """Write one file of a draft.

        Raises:
            DraftError: `not_found`: there is none; `invalid_request`: the file is too large, or one too many.
        """
        parts = _parts(path)
        if len(data) > MOST_FILE_BYTES:
            raise DraftError("invalid_request", f"a file has at most {MOST_FILE_BYTES} bytes")
        with self._opened(who, id) as folder:
            there = list_files(folder)
            if parts not in there and len(there) >= MOST_FILES:
                raise DraftError("invalid_request", f"a draft has at most {MOST_FILES} files")
            write_file(folder, parts, data)

    def check(self, who: Identity, id: str) -> list[Problem]:
        """Return what is wrong with the configuration of a draft.

        Raises:
            DraftError: `not_found`: there is no such draft.
        """
        with self._opened(who, id) as folder:
            return _problems(folder)

    def save(self, who: Identity, id: str, output_dir: str) -> tuple[str, ...]:
        """Copy a draft into a new folder of the project; return its files.

        Raises:
            DraftError: `not_found`, `validation_failed`, `output_dir_exists`; nothing is kept.
        """
        target = _parts(output_dir)
        if target[0].startswith("."):
            raise _unsafe("output_dir: a draft is saved beside the code of the project, not in a hidden folder")
        with self._opened(who, id) as folder:
            if problems := _problems(folder):
                raise DraftError("validation_failed", problems[0].message, hint=problems[0].hint)
            files = {path: read_file(folder, path) for path in list_files(folder)}
        with _refusing(), opened(self._root, target[:-1], makes=True) as at:
            _copy(files, target[-1], at, output_dir)
        return tuple("/".join(path) for path in files)

    def discard(self, who: Identity, id: str) -> bool:
        """Delete a draft; return False if there was none."""
        _check_id(id)
        try:
            with _refusing(), opened(self._root, self._place(who)) as at:
                return remove_folder(id, at)
        except FileNotFoundError:
            return False

    @contextmanager
    def _opened(self, who: Identity, id: str) -> Iterator[int]:
        _check_id(id)
        with _refusing(), ExitStack() as stack:
            try:
                at = stack.enter_context(opened(self._root, (*self._place(who), id)))
            except FileNotFoundError as error:
                raise DraftError("not_found", "there is no such draft of yours") from error
            yield at

    @staticmethod
    def _place(who: Identity) -> tuple[str, ...]:
        parts = (who.tenant_id, who.user_id, who.session_id)
        if not all(map(is_part, parts)):
            raise _unsafe("the tenant, user and session of a draft are names of folders, without separators")
        return (DATA_FOLDER, _DRAFTS, *parts)


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse paths that could lead elsewhere, and what is too large, as drafts do."""
    try:
        yield
    except UnsafeDraftPathError as error:
        raise _unsafe(str(error)) from error
    except DraftTooLargeError as error:
        raise DraftError("invalid_request", str(error)) from error


def _unsafe(text: str) -> DraftError:
    return DraftError("unsafe_path", text)


def _check_id(id: str) -> None:
    if not _ID.fullmatch(id):
        raise _unsafe("the id of a draft has up to 64 letters, digits, - and _")


def _parts(path: str) -> tuple[str, ...]:
    with _refusing():
        return path_parts(path)


def _file(folder: int, path: tuple[str, ...]) -> DraftFile:
    data = read_file(folder, path)
    return DraftFile("/".join(path), len(data), data)


def _problems(folder: int) -> list[Problem]:
    try:
        data = read_file(folder, (FILE_NAME,))
    except FileNotFoundError:
        return [Problem("io.not_found", FILE_NAME, 0, 0, f"the draft has no {FILE_NAME}", hint=f"write {FILE_NAME}")]
    if len(data) > MOST_CONFIG_BYTES:
        text = f"{FILE_NAME} has {len(data):,} bytes; a draft's has at most {MOST_CONFIG_BYTES:,}"
        return [Problem("io.read", FILE_NAME, 0, 0, text, hint="shorten it, or check it with harborage validate")]
    try:
        read_config(data)
    except ConfigError as error:
        return [
            Problem(one.category.value, FILE_NAME, one.line, one.column, one.message, one.hint)
            for one in error.findings
        ]
    return []


def _copy(files: dict[tuple[str, ...], bytes], name: str, at: int, shown: str) -> None:
    """Write files into a new folder; of one that cannot be written whole nothing is kept."""
    try:
        os.mkdir(name, dir_fd=at)
    except FileExistsError as error:
        raise DraftError("output_dir_exists", f"{shown} is there already", hint="choose another output_dir") from error
    try:
        with opened(at, (name,)) as folder:
            for path, data in files.items():
                write_file(folder, path, data)
    except BaseException:
        remove_folder(name, at)
        raise
