"""What the planner sees of a result that is too large to show."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.artifacts import ArtifactRef, ArtifactScope, MemoryArtifactStore
from harborage.concurrency import CANCEL_GRACE_S, STOP
from harborage.identity import Quadruple
from harborage.runtime.dispatch import (
    DEFAULT_HEAVY_THRESHOLD,
    PREVIEW_FIELD_MAX_BYTES,
    PREVIEW_TOTAL_MAX_BYTES,
    Projection,
    heavy_truncation_summary,
    project,
    project_observation,
)
from harborage.runtime.effects.user_code import STORE_TIMEOUT_S
from harborage.testing.clock import FakeClock, settle
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
SESSION = ArtifactScope("t", "u", "s")
CUT = "...(truncated)"


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("test.heavy")


def of_size(size: int) -> dict[str, str]:
    """An object whose JSON takes exactly `size` bytes."""
    value = {"text": "x" * (size - len('{"text":""}'))}
    assert len(codec.encode(value)) == size
    return value


def preview(value: Any) -> str:
    """The preview of a value, whatever its size."""
    text = heavy_truncation_summary("t", codec.encode(value))["preview"]
    assert isinstance(text, str)
    return text


# The summary


def test_the_limits_are_these() -> None:
    """The published constants."""
    assert (DEFAULT_HEAVY_THRESHOLD, PREVIEW_FIELD_MAX_BYTES, PREVIEW_TOTAL_MAX_BYTES) == (32768, 1024, 16384)


def test_the_summary_has_five_keys() -> None:
    """Tool, size, the sign of truncation, the preview, and the artifact when there is one."""
    encoded = b'{"id":1}'
    summary = {"tool": "search", "size_bytes": 8, "truncated": True, "preview": '{"id":1}'}
    assert heavy_truncation_summary("search", encoded) == summary
    assert heavy_truncation_summary("search", encoded, "art_1") == summary | {"artifact_ref": "art_1"}


def test_fields_are_shown_in_sorted_order() -> None:
    """An object's small fields are kept word for word, sorted by key at the top and untouched below."""
    assert preview({"b": [1, {"z": 1, "a": 2}], "a": None, "c": "é"}) == '{"a":null,"b":[1,{"z":1,"a":2}],"c":"é"}'


@each_row("value", ["x" * 1022, [0] * 510 + [10], {"k": "x" * 1016}])
def test_a_field_of_1024_bytes_is_kept(value: Any) -> None:
    """The limit of a field is inclusive, for any kind of value."""
    assert len(codec.encode(value)) == 1024
    assert json.loads(preview({"id": 1, "field": value})) == {"id": 1, "field": value}


@each_row("value", ["x" * 1023, [0] * 512, {"k": "x" * 1017}, "é" * 511 + "x"])
def test_a_field_of_1025_bytes_is_left_out(value: Any) -> None:
    """A larger field is replaced by its size in bytes."""
    assert len(codec.encode(value)) == 1025
    assert json.loads(preview({"id": 1, "field": value})) == {"id": 1, "field": "[omitted: 1025 bytes]"}


def test_a_wrapper_is_opened_once() -> None:
    """An object whose only value is an object of several fields is shown from inside."""
    wrapped = {"data": {"id": 1, "blob": "x" * 5000}}
    assert json.loads(preview(wrapped)) == {"id": 1, "blob": "[omitted: 5002 bytes]"}
    assert preview({"data": {"deep": {"id": 1, "n": 2}, "m": 3}}) == '{"deep":{"id":1,"n":2},"m":3}'


@each_row(
    "value", [{"data": {"id": 1}}, {"data": {}}, {"data": [1, 2]}, {"data": "x"}, {"data": {"a": 1, "b": 2}, "n": 3}]
)
def test_what_is_no_wrapper_stays_closed(value: Any) -> None:
    """One field inside, none, something else than an object, or several fields outside: nothing is opened."""
    assert json.loads(preview(value)) == value


def test_a_wrapper_of_a_wrapper_is_opened_once_only() -> None:
    """The second level is not opened, so a large one is left out whole."""
    inner = {"id": 1, "blob": "x" * 5000}
    assert json.loads(preview({"a": {"b": inner}})) == {"a": f"[omitted: {len(codec.encode({'b': inner}))} bytes]"}


def test_an_object_of_many_fields_is_cut() -> None:
    """The preview as a whole ends after 16384 bytes, with a mark that says so."""
    value = {f"k{n:03}": "x" * 1000 for n in range(40)}
    shown = preview(value)
    assert shown == codec.encode(value).decode()[:PREVIEW_TOTAL_MAX_BYTES] + CUT


@pytest.mark.parametrize("size", [16383, 16384])
def test_a_preview_that_just_fits_is_not_cut(size: int) -> None:
    """The limit of the whole is inclusive."""
    value = "x" * (size - 2)
    assert preview(value) == f'"{value}"'


@pytest.mark.parametrize("value", [["x" * 100] * 400, "x" * 40000])
def test_what_is_no_object_is_cut_at_its_size(value: Any) -> None:
    """Lists and strings show their beginning."""
    assert preview(value) == codec.encode(value).decode()[:PREVIEW_TOTAL_MAX_BYTES] + CUT


def test_a_cut_does_not_split_a_character() -> None:
    """A character that would not fit whole is left out; the preview is valid text of at most 16384 bytes."""
    for lead in ("", "x", "xx"):
        body = preview(lead + "€" * 10000).removesuffix(CUT)
        assert body == f'"{lead}' + "€" * ((PREVIEW_TOTAL_MAX_BYTES - 1 - len(lead)) // 3)


def test_bytes_that_are_no_json_are_shown_as_they_are() -> None:
    """A summary never fails on its input."""
    assert heavy_truncation_summary("t", b"{broken \xff")["preview"] == "{broken \ufffd"
    assert heavy_truncation_summary("t", b"")["preview"] == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=12,
)


def naive(value: Any) -> Any:
    """The rules read one by one, on decoded data."""
    if len(value) == 1:
        (inner,) = value.values()
        if isinstance(inner, dict) and len(inner) > 1:
            value = inner
    sizes = {key: len(codec.encode(field)) for key, field in value.items()}
    return {key: field if sizes[key] <= 1024 else f"[omitted: {sizes[key]} bytes]" for key, field in value.items()}


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=4), st.integers(0, 3000))
def test_the_preview_agrees_with_a_naive_reading_of_the_rules(value: dict[str, Any], filler: int) -> None:
    """Whatever the object, the preview is what a slow reference makes of it, keys sorted."""
    if value:
        value[next(iter(value))] = "x" * filler
    shown = json.loads(preview(value))
    assert shown == naive(value)
    assert list(shown) == sorted(shown)


# The projection


@each_row("value", [None, 0, "", "text", [], {}, {"a": [1, 2]}])
def test_a_small_result_is_shown_as_it_is(value: Any) -> None:
    """Raw and shown are the same object, and the bytes are its JSON."""
    assert project("t", value) == Projection(value, value, json.dumps(value, separators=(",", ":")).encode())


def test_the_threshold_is_the_first_heavy_size() -> None:
    """One byte less is inline, exactly as many bytes are heavy."""
    light, heavy = of_size(99), of_size(100)
    assert project("t", light, threshold=100).llm is light
    shown = project("t", heavy, threshold=100)
    assert shown.is_heavy
    assert shown.raw is heavy
    assert shown.llm == heavy_truncation_summary("t", codec.encode(heavy))
    assert shown.encoded == codec.encode(heavy)


def test_the_default_threshold_is_32_kib() -> None:
    """Without a threshold a result is heavy from 32768 bytes on."""
    assert not project("t", of_size(32767)).is_heavy
    assert project("t", of_size(32768)).is_heavy


def test_nothing_is_nothing_at_any_threshold() -> None:
    """None stays None even when its JSON would count as heavy."""
    assert project("t", None, threshold=1) == Projection(None, None, b"null")


def test_an_exempt_result_is_shown_whole_up_to_twice_the_threshold() -> None:
    """A window of an artifact is not sent to the store again; a tool that returns all of it is heavy like any other."""
    value = of_size(199)
    assert project("t", value, threshold=100, exempt=True) == Projection(value, value, codec.encode(value))
    assert project("t", of_size(200), threshold=100, exempt=True).is_heavy


async def test_a_store_that_does_not_answer_costs_the_reference_and_no_more(logger: logging.Logger) -> None:
    """The call goes on with the summary."""
    clock = FakeClock()

    class Hangs(MemoryArtifactStore):
        async def put_bytes(self, *args: Any, **options: Any) -> ArtifactRef:
            await asyncio.Event().wait()
            raise AssertionError

    work = project_observation("t", of_size(100), who=RUN, store=Hangs(), threshold=100, logger=logger, clock=clock)
    task = asyncio.create_task(work)
    await clock.run_for(STORE_TIMEOUT_S)
    shown = await task
    assert shown.is_heavy
    assert "artifact_ref" not in shown.llm


async def test_a_store_that_ignores_its_cancellation_is_left(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """When its time is up, and when the run is to end: neither waits for it longer than the grace."""
    clock, is_over = FakeClock(), False

    class Ignores(MemoryArtifactStore):
        async def put_bytes(self, *args: Any, **options: Any) -> ArtifactRef:
            while not is_over:
                with suppress(asyncio.CancelledError):
                    await asyncio.get_running_loop().create_future()
            raise AssertionError

    def kept() -> asyncio.Task[Projection]:
        work = project_observation(
            "t", of_size(100), who=RUN, store=Ignores(), threshold=100, logger=logger, clock=clock
        )
        return asyncio.create_task(work)

    late, ended = kept(), kept()
    await settle()
    ended.cancel(STOP)
    await settle()
    await clock.run_for(CANCEL_GRACE_S)
    with pytest.raises(asyncio.CancelledError):
        await ended
    await clock.run_for(STORE_TIMEOUT_S)
    await clock.run_for(CANCEL_GRACE_S)
    assert (await late).is_heavy
    assert [record.getMessage() for record in caplog.records].count(
        "the artifact store was abandoned: it ignored its cancellation"
    ) == 2
    is_over = True


class Opaque:
    """Something without a JSON form."""


def endless() -> list[Any]:
    value: list[Any] = []
    for _ in range(20_000):
        value = [value]
    return value


@each_row("value", [Opaque(), {"a": [Opaque()]}, float("nan"), {None: 1, "a": Opaque()}, endless()])
@each_row("exempt", [True, False])
def test_a_result_without_a_json_form_is_an_error_for_the_planner(value: Any, exempt: bool) -> None:
    """The planner gets the reason; the raw value stays readable in this process."""
    shown = project("t", value, exempt=exempt)
    assert shown.raw is value
    assert shown.encoded == b""
    assert not shown.is_heavy
    assert shown.llm.keys() == {"tool", "error"}
    assert shown.llm["tool"] == "t"
    if isinstance(value, Opaque):
        assert shown.llm["error"] == "t returned Opaque; annotate the result or return JSON"
    else:
        assert shown.llm["error"].startswith("observation could not be JSON-encoded: ")


def test_the_error_names_the_place() -> None:
    """The path of the offender is in the text."""
    assert "observation.a[0]" in project("t", {"a": [Opaque()]}).llm["error"]


def test_a_record_is_previewed_like_an_object() -> None:
    """What encodes as an object is shown field by field, whatever its Python type."""

    class Row(msgspec.Struct):
        id: int
        blob: str

    shown = project("t", Row(1, "x" * 2000), threshold=1)
    assert json.loads(shown.llm["preview"]) == {"id": 1, "blob": "[omitted: 2002 bytes]"}


# Keeping it


async def test_a_heavy_result_is_kept_whole(logger: logging.Logger) -> None:
    """The artifact holds the whole JSON under the session, and says where it came from."""
    store, clock = MemoryArtifactStore(), FakeClock()
    value = {"data": {"id": 1, "blob": "x" * 5000}}
    shown = await project_observation("search", value, who=RUN, store=store, threshold=1000, logger=logger, clock=clock)
    ref = await store.get_ref(SESSION, shown.llm["artifact_ref"])
    assert ref is not None
    assert shown.llm == heavy_truncation_summary("search", shown.encoded, ref.id)
    assert codec.decode(await store.get(SESSION, ref.id) or b"") == value
    assert (ref.filename, ref.mime_type, ref.scope) == ("tool-result-search.json", "application/json", SESSION)
    assert ref.source == {
        "source": "tool",
        "producer": "dev-tool-executor",
        "tool": "search",
        "run_id": "r",
        "created_at": "2026-01-01T00:00:00.000000Z",
    }


class Recording:
    """A store that keeps the bytes objects that it was given, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.given: list[bytes] = []
        self._failure = failure

    async def put_bytes(self, scope: ArtifactScope, data: bytes, **options: Any) -> ArtifactRef:
        self.given.append(data)
        if self._failure is not None:
            raise self._failure
        return await MemoryArtifactStore().put_bytes(scope, data, **options)


async def test_a_result_is_encoded_once(logger: logging.Logger) -> None:
    """The store gets the same bytes object that is handed on."""
    store = Recording()
    shown = await project_observation(
        "t",
        of_size(100),
        who=RUN,
        store=store,  # type: ignore[arg-type]
        threshold=100,
        logger=logger,
    )
    assert store.given[0] is shown.encoded


@pytest.mark.parametrize(
    ("value", "exempt"), [(of_size(99), False), (of_size(100), True), (None, False), (Opaque(), False)]
)
async def test_what_is_shown_whole_is_not_kept(logger: logging.Logger, value: Any, exempt: bool) -> None:
    """Small, exempt, empty and unencodable results never reach the store."""
    store = Recording()
    shown = await project_observation(
        "t",
        value,
        who=RUN,
        store=store,  # type: ignore[arg-type]
        threshold=100,
        logger=logger,
        exempt=exempt,
    )
    assert shown == project("t", value, threshold=100, exempt=exempt)
    assert store.given == []


@pytest.mark.parametrize("store", [None, Recording(OSError("disk full"))])
async def test_a_result_that_cannot_be_kept_is_only_cut(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, store: Any
) -> None:
    """Without a store, or with one that fails, the summary has no reference and a warning says what was lost."""
    value = of_size(100)
    with caplog.at_level(logging.WARNING, "test.heavy"):
        shown = await project_observation("t", value, who=RUN, store=store, threshold=100, logger=logger)
    assert shown == project("t", value, threshold=100)
    assert "artifact_ref" not in shown.llm
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (vars(record)["tool"], vars(record)["size_bytes"], vars(record)["run_id"]) == ("t", 100, "r")
    assert "xxx" not in caplog.text
    assert (record.exc_info is not None) is (store is not None)
