"""`artifacts.*` over a served runtime: whose artifacts are seen, what an upload must be, and what a link needs."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope
from harborage.identity import Identity
from harborage.server.services import ServerOptions
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ADA_TOO = Identity("acme", "ada", "s-9")
MINUTE = 60 * 10**9


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server whose limit for uploads is small."""
    async with serving(storage=request.param, folder=tmp_path, options=ServerOptions(max_artifact_bytes=64)) as one:
        yield one


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def put(served: Served, data: bytes = b"hello", *, who: Identity = ADA, **opts: Any) -> dict[str, Any]:
    """Upload something and return its reference."""
    reply = await served.wire.post("artifacts.put", {"bytes": b64(data), "opts": opts}, who=who)
    assert reply.status == 200, reply.body
    ref: dict[str, Any] = reply.json["ref"]
    return ref


async def ids(served: Served, body: Any = None, **options: Any) -> set[str]:
    """The file names of a list."""
    reply = await served.wire.post("artifacts.list", body, **options)
    assert reply.status == 200, reply.body
    assert reply.json["total_matched"] >= len(reply.json["rows"])
    return {row["ref"]["filename"] for row in reply.json["rows"]}


async def test_an_upload_is_answered_with_its_reference_and_listed(served: Served) -> None:
    """Every key that a client reads without a check is there, and nothing else."""
    ref = await put(served, filename="a.txt", mime_type="text/plain", namespace="notes", tags=["x"])
    assert ref["id"].startswith("notes_")
    assert ref["scope"] == {"tenant": "acme", "user": "ada", "session": "s-1"}
    assert set(ref) == {"id", "mime_type", "size_bytes", "filename", "sha256", "namespace", "scope"}
    listed = (await served.wire.post("artifacts.list")).json
    assert set(listed) == {"rows", "total_matched", "protocol_version"}
    (row,) = listed["rows"]
    assert row["ref"] == ref
    assert (row["tags"], row["source"], set(row)) == (
        ["x"],
        "user_upload",
        {"ref", "tags", "source", "driver", "created_at"},
    )
    assert not row["created_at"].startswith("0001-")
    (event,) = await served.events("artifacts.uploaded", ADA)
    assert event == {
        "artifact_id": ref["id"],
        "mime_type": "text/plain",
        "size_bytes": 5,
        "source": "user_upload",
        "namespace": "notes",
    }


async def test_an_upload_of_no_known_type_says_so(served: Served) -> None:
    """A client shows the type of every file."""
    ref = await put(served, b"")
    assert (ref["mime_type"], ref["size_bytes"], ref["namespace"]) == ("application/octet-stream", 0, "default")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"bytes": b64(b"x" * 64)}, 200, ""),
        ({"bytes": b64(b"x" * 65)}, 413, "request_too_large"),
        ({"bytes": "not base64!"}, 400, "invalid_request"),
        ({"bytes": b64(b"x"), "opts": {"source": "nobody"}}, 400, "invalid_request"),
        ({"bytes": b64(b"x"), "opts": {"source": "planner", "tags": None, "namespace": None}}, 200, ""),
        ({"bytes": b64(b"x"), "scope": {"TenantID": "x", "UserID": "y", "SessionID": "z"}}, 200, ""),
        ({"bytes": b64(b"x"), "scope": None, "identity": {"tenant": "rival", "user": "eve"}}, 200, ""),
        ({"bytes": b64(b"x"), "scope": {"tenant": "acme", "user": "ada", "session": "s-1", "what": 1}}, 200, ""),
        ({"bytes": b64(b"x"), "scope": {"tenant": "acme", "user": "ada", "session": ""}}, 401, "identity_required"),
        ({"bytes": b64(b"x"), "scope": {"user": "ada", "session": "s-1"}}, 401, "identity_required"),
        ({"bytes": b64(b"x"), "scope": {"tenant": "acme", "user": "ben"}}, 401, "identity_required"),
        ({"bytes": b64(b"x"), "scope": {"session": "s-2"}}, 401, "identity_required"),
        (
            {"bytes": "not base64!", "scope": {"tenant": "rival", "user": "ada", "session": "s-1"}},
            403,
            "scope_mismatch",
        ),
    ],
)
async def test_what_an_upload_must_be(served: Served, body: Any, status: int, code: str) -> None:
    """The owner is checked before the scope of the token, and that before the content."""
    reply = await served.wire.post("artifacts.put", body)
    assert reply.status == status, reply.body
    if code:
        assert reply.code == code
        assert (await served.wire.post("artifacts.list")).json["total_matched"] == 0
    elif status == 200:
        assert reply.json["ref"]["scope"] == {"tenant": "acme", "user": "ada", "session": "s-1"}


async def test_an_admin_may_store_in_another_tenant_and_it_is_audited(served: Served) -> None:
    """A reader's scope is not enough."""
    body = {"bytes": b64(b"x"), "scope": {"tenant": "rival", "user": "ada", "session": "s-1"}}
    refused = await served.wire.post("artifacts.put", body, scopes=("console:fleet",))
    assert (refused.status, refused.code) == (403, "scope_mismatch")
    assert (await served.wire.post("artifacts.put", body, scopes=("admin",))).status == 200
    (event,) = await served.events("audit.admin_scope_used")
    assert event["Method"] == "artifacts.put"


async def test_what_is_stored_beside_the_content_is_redacted(served: Served) -> None:
    """It is shown in lists and to models; the content stays what it is."""
    ref = await put(served, b"Bearer abc.def", filename="Bearer abc.def.txt")
    assert "abc" not in ref["filename"]
    assert await served.rt.artifacts.get(ArtifactScope.of(ADA), ref["id"]) == b"Bearer abc.def"


async def test_a_redactor_that_refuses_stores_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be made safe is not kept."""

    class Refusing:
        def redact(self, value: Any) -> Any:
            raise RuntimeError("no")

    import msgspec

    rt = served.rt
    assert rt._open is not None
    parts, crew = rt._open
    monkeypatch.setattr(rt, "_open", (msgspec.structs.replace(parts, redactor=Refusing()), crew))
    reply = await served.wire.post("artifacts.put", {"bytes": b64(b"x")})
    assert (reply.status, reply.code) == (500, "runtime_error")
    assert (await served.wire.post("artifacts.list")).json["rows"] == []


async def fill(served: Served) -> None:
    """One artifact of each principal, and one more of another session of ada's."""
    for who in (ADA, ADA_TOO, BEN, EVE):
        await put(served, who.session_id.encode(), who=who, filename=who.session_id)


@pytest.mark.parametrize(
    ("scope", "scopes", "expected"),
    [
        (None, (), {"s-1"}),
        ({}, (), {"s-1"}),
        ({"tenant": "acme"}, (), {"s-1", "s-9"}),
        ({"tenant": "acme", "user": "ada", "session": ""}, (), {"s-1", "s-9"}),
        ({"tenant": "acme", "user": "", "session": ""}, ("console:fleet",), {"s-1", "s-2", "s-9"}),
        ({"tenant": "acme"}, ("admin",), {"s-1", "s-2", "s-9"}),
        ({"tenant": "acme", "session": "s-1"}, ("admin",), {"s-1"}),
        ({"tenant": "rival"}, ("console:fleet",), {"s-3"}),
        ({"tenant": "acme", "user": "ada", "session": "s-1", "task": "nobody"}, (), set()),
    ],
)
async def test_whose_artifacts_are_listed(served: Served, scope: Any, scopes: tuple[str, ...], expected: Any) -> None:
    """A blank session is any, a blank user any with a scope, and the caller's own without one."""
    await fill(served)
    assert await ids(served, {"scope": scope}, scopes=scopes) == expected
    audited = await served.events("audit.admin_scope_used")
    assert [one["Method"] for one in audited] == (["artifacts.list"] if scope == {"tenant": "rival"} else [])


@pytest.mark.parametrize(
    ("scope", "status", "code"),
    [
        ({"tenant": "rival"}, 403, "scope_mismatch"),
        ({"tenant": "acme", "user": "ben"}, 401, "identity_required"),
        ({"tenant": "acme", "session": "s-9"}, 401, "identity_required"),
        ({"user": "ada"}, 401, "identity_required"),
    ],
)
async def test_lists_that_are_refused(served: Served, scope: Any, status: int, code: str) -> None:
    """A foreign tenant needs a scope; another user or session is not the verified one."""
    reply = await served.wire.post("artifacts.list", {"scope": scope, "source": ["nobody"]})
    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {"a", "b", "c"}),
        ({"mime_type": ["text/plain"]}, {"a"}),
        ({"source": ["planner"]}, {"b"}),
        ({"source": ["planner", "user_upload"]}, {"a", "b", "c"}),
        ({"tags": ["x", "nobody"]}, {"a", "c"}),
        ({"size_range": {"min_bytes": 2}}, {"b", "c"}),
        ({"size_range": {"min_bytes": 2, "max_bytes": 2}}, {"b"}),
        ({"size_range": None, "created_range": None, "mime_type": None}, {"a", "b", "c"}),
        ({"created_range": {"after": "2999-01-01T00:00:00Z"}}, set()),
        ({"created_range": {"after": "0001-01-01T00:00:00Z", "before": "2999-01-01T00:00:00Z"}}, {"a", "b", "c"}),
        ({"created_range": {"before": "2000-01-01T00:00:00Z"}}, set()),
    ],
)
async def test_filters_of_a_list(served: Served, filters: Any, expected: set[str]) -> None:
    """Bounds are included, lists are any-of, and what is null is not asked."""
    await put(served, b"1", filename="a", mime_type="text/plain", tags=["x"])
    await put(served, b"22", filename="b", source="planner", tags=["y"])
    await put(served, b"333", filename="c", tags=["x", "y"])
    assert await ids(served, filters) == expected


async def test_a_list_is_newest_first_and_cut_at_its_limit(served: Served) -> None:
    """What was cut off is counted; a limit out of range is brought into it."""
    for n in range(3):
        await put(served, str(n).encode(), filename=str(n))
    for limit, expected in ((2, ["2", "1"]), (0, ["2", "1", "0"]), (-5, ["2", "1", "0"]), (9_999, ["2", "1", "0"])):
        reply = (await served.wire.post("artifacts.list", {"limit": limit})).json
        assert [row["ref"]["filename"] for row in reply["rows"]] == expected
        assert reply["total_matched"] == 3
    assert (await served.wire.post("artifacts.list", {"source": ["nobody"]})).code == "invalid_request"


@pytest.mark.parametrize(
    ("source", "expected", "at"),
    [
        ({}, "", "0001-01-01T00:00:00Z"),
        ({"source": "flow"}, "system", "0001-01-01T00:00:00Z"),
        ({"tool": "grep", "created_at": 0}, "tool", "1970-01-01T00:00:00Z"),
        ({"producer": "x", "created_at": "2026-01-02T03:04:05Z"}, "system", "2026-01-02T03:04:05Z"),
        ({"flow": "x", "created_at": "when?"}, "system", "0001-01-01T00:00:00Z"),
        ({"source": "tool", "tool": "x"}, "tool", "0001-01-01T00:00:00Z"),
    ],
)
async def test_who_made_an_artifact(served: Served, source: Any, expected: str, at: str) -> None:
    """What its maker wrote beside it says who and when; an unknown source is absent, an unknown time the zero time."""
    await served.rt.artifacts.put_text(ArtifactScope.of(ADA), "x", source=source)
    (row,) = (await served.wire.post("artifacts.list")).json["rows"]
    assert (row.get("source", ""), row["created_at"]) == (expected, at)


@pytest.mark.parametrize("expiry", [0, -1, MINUTE, 7 * 24 * 60 * MINUTE])
async def test_a_link_or_501(served: Served, expiry: int) -> None:
    """What is on disk is given out by the server; what is in memory has no links."""
    ref = await put(served)
    reply = await served.wire.post("artifacts.get_ref", {"id": ref["id"], "expiry": expiry})
    if served.rt.artifacts.__class__.__name__ == "MemoryArtifactStore":
        assert (reply.status, reply.code) == (501, "presign_unsupported")
        return
    assert reply.status == 200
    assert set(reply.json) == {"ref", "presigned_url", "url", "expires_at", "protocol_version"}
    assert reply.json["ref"] == ref
    assert reply.json["url"] == reply.json["presigned_url"]
    assert reply.json["url"].startswith("http://127.0.0.1:8000/artifacts/")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"id": "nobody"}, 404, "not_found"),
        ({"id": "", "expiry": 1}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"id": "nobody", "expiry": MINUTE // 2}, 400, "invalid_request"),
        ({"id": "nobody", "expiry": 7 * 24 * 60 * MINUTE + 1}, 400, "invalid_request"),
        ({"id": "", "scope": {"tenant": "acme", "user": "ada", "session": ""}}, 401, "identity_required"),
        ({"id": "nobody", "scope": {"tenant": "acme", "user": "ben", "session": "s-1"}}, 401, "identity_required"),
        ({"id": "", "scope": {"tenant": "rival", "user": "ada", "session": "s-1"}}, 403, "scope_mismatch"),
    ],
)
async def test_order_of_what_a_link_needs(served: Served, body: Any, status: int, code: str) -> None:
    """Identity, scope, id, expiry, and only then whether it is there; the driver comes last."""
    reply = await served.wire.post("artifacts.get_ref", body)
    assert (reply.status, reply.code) == (status, code)


async def test_another_session_user_or_tenant_has_no_link(served: Served) -> None:
    """An id that somebody else knows says nothing."""
    ref = await put(served)
    for who in (ADA_TOO, BEN, EVE):
        reply = await served.wire.post("artifacts.get_ref", {"id": ref["id"]}, who=who)
        assert (reply.status, reply.code) == (404, "not_found")


async def test_an_artifact_of_a_task_is_found_without_the_task(served: Served) -> None:
    """A client that shows an event knows the session alone."""
    kept = await served.rt.artifacts.put_text(ArtifactScope.of(ADA, "task-1"), "x", filename="of a task")
    reply = await served.wire.post("artifacts.get_ref", {"id": kept.id})
    assert reply.status in (200, 501)
    assert await ids(served) == {"of a task"}
    row = (await served.wire.post("artifacts.list")).json["rows"][0]
    assert row["ref"]["scope"]["task"] == "task-1"
