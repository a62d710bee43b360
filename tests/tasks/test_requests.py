"""Two requests have one fingerprint exactly when they ask for the same task."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from harborage.identity import Quadruple
from harborage.tasks import Propagate, SpawnRequest, TaskKind
from harborage.tasks.requests import fingerprint
from tests.kit.tables import each_row

WORDS = st.text(alphabet="ab\x00|,[]\"'", max_size=4)
REQUESTS = st.builds(
    SpawnRequest,
    identity=st.builds(Quadruple, WORDS, WORDS, WORDS, WORDS),
    kind=st.sampled_from(list(TaskKind)),
    priority=st.integers(-2, 2),
    parent_task_id=st.none() | WORDS,
    description=WORDS,
    query=WORDS,
    propagate_on_cancel=st.sampled_from(["", *Propagate]),
    notify_on_complete=st.booleans(),
    input_artifact_ids=st.lists(WORDS, max_size=3).map(tuple),
)


def compared(request: SpawnRequest) -> tuple[Any, ...]:
    """What counts in a request."""
    return (
        request.identity,
        request.kind,
        request.priority,
        request.parent_task_id,
        request.propagate_on_cancel or "cascade",
        request.notify_on_complete,
        request.description,
        request.query,
        request.input_artifact_ids,
    )


@given(REQUESTS, REQUESTS)
def test_fingerprints_are_equal_exactly_for_equal_requests(one: SpawnRequest, two: SpawnRequest) -> None:
    """No two different requests share a fingerprint, however their texts are cut; equal ones always do."""
    assert (fingerprint(one) == fingerprint(two)) == (compared(one) == compared(two))


@each_row("change", [{"group_id": "g"}, {"idempotency_key": "k"}, {"propagate_on_cancel": "cascade"}])
def test_what_is_not_compared(change: dict[str, str]) -> None:
    """The group and the key are not compared, and the default policy may be spelt out."""
    request = SpawnRequest(identity=Quadruple("t", "u", "s"), kind="background", query="q")
    assert fingerprint(msgspec.structs.replace(request, **change)) == fingerprint(request)


def test_the_fingerprint_keeps_no_text() -> None:
    """A fingerprint is a hash of fixed length: it gives no secret away."""
    request = SpawnRequest(identity=Quadruple("t", "u", "s"), kind="background", query="Bearer abc" * 50)
    assert len(fingerprint(request)) == 64
    assert "abc" not in fingerprint(request)
