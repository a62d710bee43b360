"""`Image`, `Audio` and `File`: pictures, sound and files as values, which go into a run and come out of its tools.

A value that a program makes holds its bytes. One that is read of a record, or named by a model, holds the id of an
artifact until its bytes are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

from harborage.errors import InvalidOptionError

if TYPE_CHECKING:
    from os import PathLike

    from harborage.artifacts.store import ArtifactStore
    from harborage.artifacts.values import ArtifactRef, ArtifactScope

MOST_BYTES: Final = 32 * 1024 * 1024
"""The size up to which a file is attached to a run."""

_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_ARTIFACT: Final = "artifact"
_BYTES: Final = "application/octet-stream"


class MediaError(InvalidOptionError):
    """A picture, sound or file cannot be used; the text names it and says what to do. `reason` is its second half."""

    def __init__(self, name: str = "", reason: str = "") -> None:
        self.reason = reason
        super().__init__("file", name, message=f"{name}: {reason}")


class Media:
    """What `Image`, `Audio` and `File` have in common; equal ones have the same bytes, or the same artifact."""

    __slots__ = ("_data", "artifact", "mime", "name")
    _family: ClassVar[str] = ""
    _needs: ClassVar[str] = ""

    def __init__(self, source: str | PathLike[str] | bytes, *, mime: str = "", name: str = "") -> None:
        made = type(self).__name__
        if isinstance(source, bytes | bytearray):
            data, found = bytes(source), name
            shown = f"{made}({name or f'{len(data):,} bytes'})"
        elif isinstance(source, str) or hasattr(source, "__fspath__"):
            shown = f"{made}({str(source)!r})"
            found, data = _read(source, shown)
        else:
            raise InvalidOptionError(made, source, 'a path or bytes, such as Image("receipt.png")')
        if not data:
            raise MediaError(shown, "it is empty")
        if len(data) > MOST_BYTES:
            raise MediaError(shown, f"it has {size_text(len(data))}; at most {size_text(MOST_BYTES)} can be attached")
        kind = mime or media_type(found or name, data, shown)
        if self._family and not kind.startswith(self._family):
            raise MediaError(shown, f"{self._needs}; say mime= if it is one, or use File")
        self._data: bytes | None = data
        self.mime = kind
        self.name = name or found
        self.artifact = ""

    @classmethod
    def kept(cls, artifact: str, *, mime: str = "", name: str = "") -> Self:
        """Return the value behind an artifact, whose bytes `load` reads."""
        made = cls.__new__(cls)
        made._data, made.artifact, made.mime, made.name = None, artifact, mime, name
        return made

    @property
    def data(self) -> bytes:
        """The bytes.

        Raises:
            MediaError: they are kept as an artifact and were not loaded.
        """
        if self._data is None:
            raise MediaError(repr(self), "its bytes are not here yet; await its load(store, scope) first")
        return self._data

    @property
    def is_loaded(self) -> bool:
        """Whether its bytes are here."""
        return self._data is not None

    async def load(self, store: ArtifactStore, scope: ArtifactScope) -> Self:
        """Read the bytes of the artifact, unless they are here; return the value itself.

        Raises:
            MediaError: there is no such artifact in this session, or it is of another kind.
        """
        if self._data is not None:
            return self
        ref = await store.get_ref(scope, self.artifact)
        data = None if ref is None else await store.get(scope, self.artifact)
        if ref is None or data is None:
            raise MediaError(
                repr(self.artifact), "there is no such artifact in this session; give an id that is listed"
            )
        if self._family and not ref.mime_type.startswith(self._family):
            raise MediaError(repr(self.artifact), f"it is {ref.mime_type}, and {type(self).__name__} is wanted")
        self._data, self.mime, self.name = data, ref.mime_type, ref.filename
        return self

    async def keep(self, store: ArtifactStore, scope: ArtifactScope, source: dict[str, Any]) -> ArtifactRef:
        """Put the bytes into the session of `scope`; return the artifact."""
        return await store.put_bytes(scope, self.data, mime_type=self.mime, filename=self.name, source=source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Media) or type(other) is not type(self):
            return False
        if self._data is None or other._data is None:
            return bool(self.artifact) and self.artifact == other.artifact
        return (self._data, self.mime) == (other._data, other.mime)

    def __hash__(self) -> int:
        return hash(self.mime)

    def __repr__(self) -> str:
        shown = self.name or self.artifact or self.mime
        return f"{type(self).__name__}({shown!r})"


class Image(Media):
    """A picture: `run(["What is this?", Image("receipt.png")])`. It takes a path or bytes.

    Raises:
        MediaError: it is missing, empty, too large, or no picture.
    """

    __slots__ = ()
    _family = "image/"
    _needs = "it is no picture that is known"


class Audio(Media):
    """Sound, of a path or of bytes.

    Raises:
        MediaError: it is missing, empty, too large, or no sound.
    """

    __slots__ = ()
    _family = "audio/"
    _needs = "it is no sound that is known"


class File(Media):
    """Any file, of a path or of bytes; `name=` is its name where it has no path.

    Raises:
        MediaError: it is missing, empty or too large.
    """

    __slots__ = ()


Goal: TypeAlias = str | Sequence[str | Media]
"""What a run is started with: a text, or texts with pictures, sound and files between them."""


def split_goal(goal: Any) -> tuple[Any, tuple[Media, ...]]:
    """Return the text of a goal, and what lies between its texts. Anything else than a list is returned as it is.

    Raises:
        InvalidOptionError: a part is neither a text nor one of `Image`, `Audio` and `File`, or there is no text.
    """
    if isinstance(goal, Media):
        text = f'goal: write what to do with it, such as ["What is this?", {goal!r}]'
        raise InvalidOptionError("goal", goal, message=text)
    if not isinstance(goal, list | tuple):
        return goal, ()
    for one in goal:
        if not isinstance(one, str | Media):
            raise InvalidOptionError("goal", one, "texts, and Image(…), Audio(…) or File(…) between them")
    text = "\n".join(one for one in goal if isinstance(one, str) and one)
    if not text:
        raise InvalidOptionError("goal", goal, 'a text beside the files, such as ["What is this?", Image("x.png")]')
    return text, tuple(one for one in goal if isinstance(one, Media))


def media_in(value: Any) -> Iterator[Media]:
    """Yield the pictures, sound and files in a value: in lists, dicts and the fields of records, too."""
    if isinstance(value, Media):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from media_in(one)
    elif isinstance(value, dict):
        yield from media_in(list(value.values()))
    else:
        kind = type(value)
        names: Iterable[str] = getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ()))
        yield from media_in([getattr(value, name) for name in names])


async def kept_media(value: Any, store: ArtifactStore | None, scope: ArtifactScope, source: dict[str, Any]) -> Any:
    """Return a result as it is recorded: each picture, sound or file in it, or in its list, is an artifact's reference.

    Raises:
        MediaError: there is no store to keep them in.
    """
    if isinstance(value, list | tuple):
        if not any(isinstance(one, Media) for one in value):
            return value
        return [await kept_media(one, store, scope, source) for one in value]
    if not isinstance(value, Media):
        return value
    if not value.is_loaded:
        return {_ARTIFACT: value.artifact, "mime": value.mime, "name": value.name}
    if store is None:
        raise MediaError(repr(value), "there is no artifact store to keep it in")
    ref = await value.keep(store, scope, source)
    return {_ARTIFACT: ref.id, "mime": value.mime, "name": value.name, "size_bytes": ref.size_bytes}


def pictures_in(observation: Any) -> Iterator[str]:
    """Yield the ids of the pictures that a recorded result refers to."""
    if isinstance(observation, list):
        for one in observation:
            yield from pictures_in(one)
    elif isinstance(observation, dict):
        artifact, mime = observation.get(_ARTIFACT), observation.get("mime")
        if isinstance(artifact, str) and artifact and isinstance(mime, str) and mime.startswith("image/"):
            yield artifact


def image_type(data: bytes) -> str:
    """Return the MIME type of a picture by its first bytes: PNG, JPEG, GIF or WebP; empty for anything else."""
    found = _seen(data)
    return found if found in _PICTURES else ""


def media_type(name: str, data: bytes, shown: str) -> str:
    """Return the MIME type by the content, else by the name, else text or bytes.

    Raises:
        MediaError: the name is that of a picture, and the content is none.
    """
    import mimetypes  # loaded with the first file

    seen = _seen(data)
    named = mimetypes.guess_type(name)[0] or ""
    if not seen and named in _PICTURES:
        raise MediaError(
            shown, f"its name says {named}, but its bytes are no PNG, JPEG, GIF or WebP; name it as what it is"
        )
    return seen or named or ("text/plain" if _is_text(data) else _BYTES)


def size_text(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count:,} bytes" if count < 100_000 else f"{count / 1_000_000:.1f} MB"


def _seen(data: bytes) -> str:
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "")
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), "")


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _read(source: str | PathLike[str], shown: str) -> tuple[str, bytes]:
    """Return the name of a file without its folders, and its bytes.

    Raises:
        MediaError: it is no file, or cannot be read.
    """
    from pathlib import Path

    if isinstance(source, str) and source.partition("://")[0] in ("http", "https", "data", "file"):
        raise MediaError(shown, "it takes a path or bytes, not an address; read it first")
    path = Path(source)
    try:
        if not path.is_file():
            raise MediaError(shown, "it is a folder; name a file" if path.is_dir() else "there is no such file")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise MediaError(shown, f"it has {size_text(size)}; at most {size_text(MOST_BYTES)} can be attached")
        return path.name, path.read_bytes()
    except OSError as error:
        raise MediaError(shown, error.strerror or type(error).__name__) from error
