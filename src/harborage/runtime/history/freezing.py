"""A recorded run as a test: a pytest file, and beside it the record with everything that a replay needs.

Secrets are hidden in what is written, as they are on a cassette. Names follow from the run alone, so that freezing a
run twice gives the same files.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.artifacts import ArtifactScope, ArtifactStore
from harborage.artifacts.media import pictures_in
from harborage.errors import HarborageError
from harborage.events.redaction import secrets_of
from harborage.events.scrubbing import Scrubber
from harborage.runtime.history.builder import build_history

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.history.model import RunHistory

VERSION: Final = 1
_LONGEST_SLUG: Final = 40
_FOLDER: Final = "runs"


class FreezeError(HarborageError):
    """A run cannot be frozen; the text says why and what to do."""


class Attached(msgspec.Struct, frozen=True):
    """A file that the user attached to the run."""

    id: str
    mime_type: str
    filename: str
    namespace: str
    data: bytes


class FrozenRun(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a frozen run: the entries of its journal as JSON, one a line, and the user's files."""

    harborage_frozen_run: int = VERSION
    run_id: str
    goal: str
    agent: str = ""
    attached: tuple[Attached, ...] = ()
    entries: tuple[msgspec.Raw, ...]

    @classmethod
    def load(cls, path: Path) -> FrozenRun:
        """Load the frozen run in the file `path`.

        Raises:
            FreezeError: the file is missing, or is no frozen run of a known version.
        """
        try:
            found = codec.decode(path.read_bytes(), cls)
        except OSError as error:
            raise FreezeError(f"cannot read the frozen run {path}: {error.strerror or error}") from error
        except msgspec.DecodeError as error:
            raise FreezeError(f"{path} is no frozen run: {error}") from error
        if found.harborage_frozen_run != VERSION:
            known = f"its version is {found.harborage_frozen_run}, and {VERSION} is known"
            raise FreezeError(f"{path} is no frozen run that can be played: {known}")
        frozen: FrozenRun = found
        return frozen

    @property
    def record(self) -> list[bytes]:
        """The run's journal, as `Run.history()` returns it."""
        return [bytes(entry) for entry in self.entries]

    async def put_into(self, store: ArtifactStore) -> ArtifactStore:
        """Put the user's files into an artifact store, which is returned."""
        who = build_history(self.record).who
        for one in self.attached:
            await store.put_bytes(
                _scope(who), one.data, mime_type=one.mime_type, filename=one.filename, namespace=one.namespace
            )
        return store


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The two files of a frozen run, and where they go."""

    test: Path
    test_text: str
    run: Path
    run_data: bytes


def freeze(
    record: Sequence[bytes],
    *,
    agent: str,
    root: Path,
    out: Path,
    attached: Sequence[Attached] = (),
    name: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Frozen:
    """Return the files of a test of a run in the folder `out`; `agent` names its agent in the folder `root`.

    They are `test_<name>.py` and `runs/<name>.json`; without a `name` they are named after the goal and the run's id.

    Nothing is written. Values of variables in `environ` whose names say that they are secrets are hidden, and so are
    texts that look like secrets.

    Raises:
        FreezeError: the run has not ended.
        JournalCorruptError: the record cannot be read.
    """
    history = build_history(record)
    if not history.has_ended:
        raise FreezeError(f"run {history.run_id} is still going; freeze it once it has ended")
    scrubber = Scrubber(secrets_of(environ))
    entries = tuple(msgspec.Raw(codec.encode(_clean(codec.decode(entry), scrubber))) for entry in record)
    run = FrozenRun(
        run_id=history.run_id,
        goal=scrubber.text(history.goal),
        agent=agent,
        attached=tuple(attached),
        entries=entries,
    )
    name = name or _name(history)
    cassette = out / _FOLDER / f"{name}.json"
    text = _TEST.format(
        title=_title(run, history),
        name=name,
        folder=_FOLDER,
        agent=agent,
        root=_relative_path(out.resolve(), root.resolve()),
    )
    return Frozen(test=out / f"test_{name}.py", test_text=text, run=cassette, run_data=_to_lines(run))


def write_frozen(frozen: Frozen, *, force: bool = False) -> None:
    """Write both files.

    Raises:
        FreezeError: a file exists and may not be replaced, or they cannot be written.
    """
    there = [str(path) for path in (frozen.test, frozen.run) if path.exists()]
    if there and not force:
        raise FreezeError(f"{' and '.join(there)} would be overwritten; --force does so, -o names another folder")
    try:
        frozen.run.parent.mkdir(parents=True, exist_ok=True)
        frozen.run.write_bytes(frozen.run_data)
        frozen.test.write_text(frozen.test_text, "utf-8")
    except OSError as error:
        raise FreezeError(f"the frozen run cannot be written: {error}; -o names another folder") from error


async def attached_to(record: Sequence[bytes], artifacts: ArtifactStore) -> list[Attached]:
    """Return the files that its user attached to the run and the pictures of its tools, as far as they are kept."""
    history = build_history(record)
    request, seen = history.request, [call.observation for step in history.steps for call in step.calls]
    scope = _scope(request.who)
    found: list[Attached] = []
    for artifact_id in dict.fromkeys(
        (*request.input_artifact_ids, *(one for each in seen for one in pictures_in(each)))
    ):
        ref = await artifacts.get_ref(scope, artifact_id)
        data = None if ref is None else await artifacts.get(scope, artifact_id)
        if ref is not None and data is not None:
            found.append(Attached(ref.id, ref.mime_type, ref.filename, ref.namespace, data))
    return found


def cleaner(environ: Mapping[str, str] = os.environ) -> Callable[[Any], Any]:
    """Return a function that masks in a prompt or a decision the secrets that freezing masks in a journal."""
    scrubber = Scrubber(secrets_of(environ))

    def clean(value: Any) -> Any:
        return codec.decode(codec.encode(_clean(codec.to_plain(value), scrubber)), type(value))

    return clean


def shown_json(data: bytes, environ: Mapping[str, str] = os.environ) -> bytes:
    """Return JSON that may be shown: secrets are hidden as in a frozen run, but tokens of pauses are not.

    Arguments of calls, which are bytes in a decision and text in a call, are shown as JSON.

    Raises:
        RedactionFailedError: it is nested too deeply.
    """
    before = codec.decode(data)
    after = _clean(before, Scrubber(secrets_of(environ)))
    if isinstance(before, dict):
        for pause, shown in zip(before.get("pauses") or (), after.get("pauses") or (), strict=True):
            shown["token"] = pause["token"]
    return codec.encode(_with_readable_args(after))


_FOREIGN: Final = frozenset({"background", "metadata", "observation", "payload", "seen"})
"""Fields with values of tools, models and people, which are not changed."""


def _with_readable_args(value: Any) -> Any:
    """Return `value` with the arguments of calls as JSON."""
    match value:
        case {"args": str(args), **rest} if "tool" in rest or "name" in rest:
            return {**value, "args": _decode_args(args)}
        case dict():
            return {key: inner if key in _FOREIGN else _with_readable_args(inner) for key, inner in value.items()}
        case list():
            return [_with_readable_args(inner) for inner in value]
        case _:
            return value


def _decode_args(text: str) -> Any:
    """Return arguments from JSON text or its base64; any other text is returned unchanged."""
    for data in (text.encode(), _from_base64(text)):
        with suppress(msgspec.DecodeError, RecursionError):
            return codec.decode(data)
    return text


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _clean(value: Any, scrubber: Scrubber) -> Any:
    return _clean_arguments(scrubber.plain(value), scrubber)


def _clean_arguments(value: Any, scrubber: Scrubber) -> Any:
    """Return `value` with secrets hidden in the arguments of calls, which are base64 in JSON."""
    match value:
        case dict():
            return {
                key: _clean_base64(inner, scrubber)
                if key == "args" and isinstance(inner, str)
                else _clean_arguments(inner, scrubber)
                for key, inner in value.items()
            }
        case list():
            return [_clean_arguments(inner, scrubber) for inner in value]
        case _:
            return value


def _clean_base64(text: str, scrubber: Scrubber) -> str:
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text
    cleaned = scrubber.text(decoded)
    return text if cleaned == decoded else base64.b64encode(cleaned.encode()).decode()


def _name(history: RunHistory) -> str:
    """Return a name for the files: the goal, and the end of the run's id, which makes it unique."""
    text = re.sub(r"[^a-z0-9]+", "_", history.goal.lower()).strip("_")
    slug = text[:_LONGEST_SLUG].rstrip("_") or "run"
    return f"{slug}_{history.run_id[-6:].lower()}"


def _title(run: FrozenRun, history: RunHistory) -> str:
    goal = " ".join(run.goal.split())
    short = goal if len(goal) <= 60 else f"{goal[:59]}…"
    plain = short.replace("\\", "/").replace('"', "'")
    return f"Run {run.run_id} of {history.started_at:%Y-%m-%d}: {plain}"


def _relative_path(start: Path, end: Path) -> str:
    """Return the path from one folder to another, as it is written in the test."""
    return Path(os.path.relpath(end, start)).as_posix()


def _to_lines(run: FrozenRun) -> bytes:
    """Return the file with one entry a line, so that two of them can be compared line by line."""
    head = codec.to_plain(run)
    entries = head.pop("entries")
    opening = msgspec.json.format(codec.encode(head), indent=2).rstrip().removesuffix(b"}").rstrip()
    return b"".join(
        [opening, b',\n  "entries": [\n    ', b",\n    ".join(codec.encode(one) for one in entries), b"\n  ]\n}\n"]
    )


def _scope(who: Quadruple) -> ArtifactScope:
    return ArtifactScope(who.tenant_id, who.user_id, who.session_id)


_TEST: Final = '''\
"""{title}

Written by `harborage freeze`. With the answers that models, tools and people gave then, the agent of today must decide
what it decided then; the first difference is shown. Where a change is meant, freeze another run.
"""

from pathlib import Path

from harborage.testing.frozen import assert_replays

HERE = Path(__file__).parent


def test_{name}() -> None:
    """The agent decides as it did when this was recorded."""
    assert_replays(HERE / "{folder}" / "{name}.json", agent="{agent}", root=HERE / "{root}")
'''
