"""Scopes, references and ids: pure rules that every driver shares."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.artifacts import ArtifactRef, ArtifactScope, IdentityRequiredError
from harborage.artifacts.values import (
    candidate_ids,
    covers,
    id_family,
    is_session,
    make_ref,
    require_scope,
    sort_key,
    to_plain_source,
)
from harborage.identity import Identity, Quadruple
from tests.kit.tables import each_row

SCOPE = ArtifactScope("t", "u", "s")
HASH = "0123456789abcdef" * 4

scopes = st.builds(ArtifactScope, *[st.sampled_from(["", "a", "b"])] * 4)


def test_a_scope_is_made_from_an_identity_or_a_quadruple() -> None:
    """The run plays no part; a task is added on request."""
    assert ArtifactScope.of(Identity("t", "u", "s")) == SCOPE
    assert ArtifactScope.of(Quadruple("t", "u", "s", "run"), "k") == ArtifactScope("t", "u", "s", "k")
    assert ArtifactScope("t", "u", "s", "k").identity == Identity("t", "u", "s")


def test_a_reference_is_marked_for_the_redactor() -> None:
    """The mark is on the class, so it costs no field and never reaches the wire."""
    ref = make_ref(SCOPE, HASH, 1, mime_type="", filename="", namespace="", source={})
    assert type(ref).__harborage_reference__ is True
    assert b"harborage_reference" not in codec.encode(ref)


def test_a_reference_survives_the_wire() -> None:
    """A reference is plain data: what is decoded is equal."""
    ref = make_ref(SCOPE, HASH, 7, mime_type="a/b", filename="ü", namespace="n", source={"tool": "t", "n": [1]})
    assert codec.decode(codec.encode(ref), ArtifactRef) == ref


def test_an_id_is_namespace_and_twelve_digits() -> None:
    """The default namespace is `default`; the default kind an octet stream."""
    ref = make_ref(SCOPE, HASH, 1, mime_type="", filename="", namespace="", source={})
    assert (ref.id, ref.namespace, ref.mime_type) == ("default_0123456789ab", "default", "application/octet-stream")


def test_candidate_ids_grow_to_the_whole_hash() -> None:
    """Each longer id begins with the shorter ones; the last is the whole hash, which nothing else can have."""
    ids = list(candidate_ids("n", HASH))
    assert ids[0] == "n_0123456789ab"
    assert ids[-1] == f"n_{HASH}"
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(ids))


@given(st.text(min_size=1), st.text(alphabet="0123456789abcdef", min_size=64, max_size=64))
def test_every_candidate_is_of_one_family(namespace: str, digest: str) -> None:
    """Ids that content may take share a family, so that they are decided one after the other."""
    assert {id_family(one) for one in candidate_ids(namespace, digest)} == {f"{namespace}_{digest[:12]}"}


@each_row("part", ["tenant_id", "user_id", "session_id"])
def test_a_scope_needs_all_but_the_task(part: str) -> None:
    """The error names the operation and the empty part."""
    parts = {"tenant_id": "t", "user_id": "u", "session_id": "s"} | {part: ""}
    with pytest.raises(IdentityRequiredError, match=rf"artifacts\.put: .*{part}"):
        require_scope(ArtifactScope(**parts), "artifacts.put")
    assert not is_session(ArtifactScope(**parts))


def test_a_scope_without_a_task_is_complete() -> None:
    """An empty task is the session's own level."""
    require_scope(SCOPE, "artifacts.put")
    assert is_session(SCOPE)


@given(scopes, scopes)
def test_covering_is_part_by_part(asked: ArtifactScope, stored: ArtifactScope) -> None:
    """A scope covers another when each part of it is empty or equal, and always covers itself."""
    pairs = zip(codec.to_plain(asked).values(), codec.to_plain(stored).values(), strict=True)
    assert covers(asked, stored) is all(one in ("", other) for one, other in pairs)
    assert covers(asked, asked)


def test_listings_are_ordered_by_scope_then_id() -> None:
    """Scope decides before the id does."""
    make = lambda scope, digest: make_ref(scope, digest, 0, mime_type="", filename="", namespace="", source={})  # noqa: E731
    low, high = make(SCOPE, "b" * 64), make(ArtifactScope("t", "u", "s", "k"), "a" * 64)
    twin = make(SCOPE, "c" * 64)
    assert sorted([high, twin, low], key=sort_key) == [low, twin, high]


def test_a_source_becomes_plain_data_of_its_own() -> None:
    """Tuples become lists, nothing is shared with the caller, and no source is an empty one."""
    source = {"tags": ("a",), "more": {"n": 1}}
    plain = to_plain_source(source)
    assert plain == {"tags": ["a"], "more": {"n": 1}}
    source["more"]["n"] = 2  # type: ignore[index]
    assert plain["more"] == {"n": 1}
    assert to_plain_source(None) == {}


@each_row(
    "source, field",
    [
        ({"a": object()}, "source.a"),
        ({"a": [1, float("inf")]}, "source.a[1]"),
        ({"a": {1: 2}}, "source.a <non-string-map-key>"),
    ],
)
def test_a_source_that_is_no_json_is_named_by_its_place(source: dict[str, object], field: str) -> None:
    """The error carries the path of the first offender."""
    with pytest.raises(codec.UnserializableError) as caught:
        to_plain_source(source)
    assert caught.value.field == field
