"""The tables of the protocol are closed: an entry more, or less, fails here."""

from __future__ import annotations

import pytest

from harborage.protocol.errors import STATUS, Code, ProtocolError
from harborage.protocol.methods import (
    ADDED_METHODS,
    ALL_METHODS,
    CAPABILITIES,
    CONTROLS,
    METHODS,
    PROTOCOL_VERSION,
    Capability,
    InvalidVersionError,
    TokenScope,
    is_compatible,
)

# The path of each; then, for the methods of it: cap of the body in KiB, unknown fields refused, rule of the identity.
TABLE = {
    ("/v1/control/{}", 64, False, "EXACT"): (
        "start cancel pause resume redirect inject_context approve reject prioritize user_message"
    ),
    ("/v1/events", 64, True, "NOT_READ"): "events.subscribe",
    ("/v1/events/aggregate", 32, True, "NOT_READ"): "events.aggregate",
    ("/v1/control/{}", 64, False, "NOT_READ"): (
        "search.query search.sessions search.tasks search.events search.artifacts"
    ),
    ("/v1/control/{}", 64, False, "SAME_USER"): (
        "runtime.info runtime.health runtime.counters runtime.drivers metrics.snapshot governance.posture llm.posture"
        " topology.snapshot mcp.servers.list mcp.servers.get mcp.servers.resources mcp.servers.prompts"
        " mcp.servers.refresh_discovery mcp.servers.probe mcp.servers.health mcp.servers.bindings.list"
        " mcp.servers.policy mcp.servers.refresh_binding mcp.servers.revoke_binding mcp.servers.set_raw_html_trust"
    ),
    ("/v1/pause/list", 32, True, "MATCHING"): "pause.list",
    ("/v1/control/{}", 8192, False, "SCOPE_OBJECT"): "artifacts.list artifacts.put artifacts.get_ref",
    ("/v1/{}", 64, True, "MATCHING"): (
        "memory.list memory.get memory.health flows.list flows.describe flows.runs.list flows.runs.describe flows.run"
        " flows.metrics sessions.list sessions.inspect"
    ),
    ("/v1/{}", 64, True, "NOT_READ"): (
        "tools.list tools.get tools.describe tools.metrics tools.content_stats tools.set_approval_policy"
        " tools.revoke_oauth tasks.list tasks.get agents.list agents.get agents.tools agents.memory agents.governance"
        " agents.skills agents.permissions agents.metrics"
    ),
    ("/v1/{}", 256, True, "MATCHING"): "runs.set_overrides",
    ("/v1/{}", 16, True, "MATCHING"): "auth.rotate_token",
}
ADDED = "runs.steps runs.step runs.fork runs.replay runs.freeze runs.compare"


def test_the_protocol_has_71_methods() -> None:
    """Each has its path, the cap of its body, and the rule of the identity in it."""
    wanted = {
        name: (path.format(name if "control" in path else name.replace(".", "/")), cap * 1024, strict, rule)
        for (path, cap, strict, rule), names in TABLE.items()
        for name in names.split()
    }
    found = {
        one.name: (one.path, one.body_cap, one.refuses_unknown_fields, one.identity.name) for one in METHODS.values()
    }
    assert found == wanted
    assert len(METHODS) == 71


def test_what_we_add_stands_in_a_table_of_its_own() -> None:
    """Six methods, each behind a capability, none of them one of the 71."""
    assert list(ADDED_METHODS) == ADDED.split()
    assert {one.capability for one in ADDED_METHODS.values()} == {Capability.RUN_HISTORY, Capability.RUN_FORK}
    assert all(one.path == f"/v1/runs/{one.name.removeprefix('runs.')}" for one in ADDED_METHODS.values())
    assert not METHODS.keys() & ADDED_METHODS.keys()
    assert len(ALL_METHODS) == 77
    assert not any(one.capability for one in METHODS.values())


def test_only_start_controls_and_topology_need_a_body() -> None:
    """An empty body is a request with nothing but defaults everywhere else."""
    assert {one.name for one in ALL_METHODS.values() if one.needs_body} == {"start", "topology.snapshot", *CONTROLS}


def test_the_one_stream_is_a_get() -> None:
    """All else is posted."""
    assert [one.name for one in ALL_METHODS.values() if one.verb != "POST"] == ["events.subscribe"]


def test_the_codes_are_eleven_and_each_has_its_status() -> None:
    """The set is closed, and sorted as it is shown."""
    assert {str(code): status for code, status in STATUS.items()} == {
        "auth_rejected": 401,
        "identity_required": 401,
        "identity_scope_required": 403,
        "invalid_request": 400,
        "not_found": 404,
        "payload_invalid": 422,
        "presign_unsupported": 501,
        "request_too_large": 413,
        "runtime_error": 500,
        "scope_mismatch": 403,
        "unknown_method": 404,
    }
    assert list(Code) == sorted(Code) == list(STATUS)


def test_an_error_has_the_status_of_its_code_unless_another_is_given() -> None:
    """A stream that has no place left answers with a code whose status is another's."""
    assert ProtocolError(Code.NOT_FOUND, "no run").status == 404
    assert ProtocolError(Code.RUNTIME_ERROR, "too many", status=429).status == 429
    assert ProtocolError().body.message == "runtime_error"


def test_the_capabilities_and_scopes_are_closed() -> None:
    """Four capabilities are the protocol's; two scopes exist."""
    assert list(CAPABILITIES) == ["events_subscribe", "runtime_posture", "task_control", "topology_snapshot"]
    assert list(TokenScope) == ["admin", "console:fleet"]
    assert PROTOCOL_VERSION == "0.1.0"


@pytest.mark.parametrize(("version", "expected"), [("0.1.0", True), ("0.99.3", True), ("1.0.0", False)])
def test_versions_agree_when_their_first_number_does(version: str, expected: bool) -> None:
    """A peer with another first number is not understood."""
    assert is_compatible(version) is expected


@pytest.mark.parametrize("version", ["", "1", "1.2", "1.2.3.4", "a.b.c", "-1.0.0", "1.0.٣", "1. 0.0", "v1.0.0"])
def test_what_is_no_version_is_refused(version: str) -> None:
    """A version is three whole numbers."""
    with pytest.raises(InvalidVersionError, match="three whole numbers"):
        is_compatible(version)
