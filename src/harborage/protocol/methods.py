"""The closed table of methods: the route of each, how its body is read, and whose identity the body may name.

The 71 methods of the protocol stand in `METHODS`, what this implementation adds in `ADDED_METHODS`. Nothing else is
served under a method's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final

import msgspec

from harborage.errors import HarborageError

PROTOCOL_VERSION: Final = "0.1.0"

_KIB: Final = 1024


class TokenScope(StrEnum):
    """What a token may hold beyond its principal's own."""

    ADMIN = "admin"
    CONSOLE_FLEET = "console:fleet"


class Capability(StrEnum):
    """What a server offers that another may not."""

    EVENTS_SUBSCRIBE = "events_subscribe"
    RUNTIME_POSTURE = "runtime_posture"
    TASK_CONTROL = "task_control"
    TOPOLOGY_SNAPSHOT = "topology_snapshot"
    RUN_FORK = "run_fork"
    RUN_HISTORY = "run_history"
    MEMORY_FACTS = "memory_facts"


CAPABILITIES: Final = (
    Capability.EVENTS_SUBSCRIBE,
    Capability.RUNTIME_POSTURE,
    Capability.TASK_CONTROL,
    Capability.TOPOLOGY_SNAPSHOT,
)
"""The capabilities of the protocol; the others are additions."""


class IdentityRule(Enum):
    """How the identity in a body is held against the verified one."""

    EXACT = auto()
    """All blank, or all three equal; impersonation is possible."""
    SAME_USER = auto()
    """Each part that is not blank must be the verified one, except the tenant, which needs a scope."""
    SCOPE_OBJECT = auto()
    """The object `scope` names it; `identity` is not read."""
    NOT_READ = auto()
    """The verified one counts, whatever the body says."""
    MATCHING = auto()
    """Each part that is not blank must be the verified one."""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method. `body_cap` is in bytes; `capability` is set where a server may lack the method."""

    name: str
    path: str
    verb: str = "POST"
    body_cap: int = 64 * _KIB
    refuses_unknown_fields: bool = True
    needs_body: bool = False
    identity: IdentityRule = IdentityRule.MATCHING
    capability: Capability | None = None


CONTROLS: Final = (
    "cancel",
    "pause",
    "resume",
    "redirect",
    "inject_context",
    "approve",
    "reject",
    "prioritize",
    "user_message",
)
"""The nine steering controls."""

CONTROL_PATH: Final = "/v1/control/{method}"


def _on_control(names: Iterable[str], rule: IdentityRule, *, cap: int = 64, needs_body: bool = False) -> list[Method]:
    return [
        Method(
            name=name,
            path=f"/v1/control/{name}",
            body_cap=cap * _KIB,
            refuses_unknown_fields=False,
            needs_body=needs_body,
            identity=rule,
        )
        for name in names
    ]


def _family(
    family: str,
    verbs: str,
    *,
    rule: IdentityRule = IdentityRule.MATCHING,
    cap: int = 64,
    capability: Capability | None = None,
) -> list[Method]:
    """The methods of a family, of which each has a path of its own; dots in a verb become slashes."""
    return [
        Method(
            name=f"{family}.{verb}",
            path=f"/v1/{family}/{verb.replace('.', '/')}",
            body_cap=cap * _KIB,
            identity=rule,
            capability=capability,
        )
        for verb in verbs.split()
    ]


_MCP: Final = (
    "list get resources prompts refresh_discovery probe health bindings.list policy refresh_binding revoke_binding"
    " set_raw_html_trust"
)
_POSTURE: Final = (
    "runtime.info",
    "runtime.health",
    "runtime.counters",
    "runtime.drivers",
    "metrics.snapshot",
    "governance.posture",
    "llm.posture",
)


def _table(methods: Iterable[Method]) -> Mapping[str, Method]:
    return MappingProxyType({method.name: method for method in methods})


METHODS: Final[Mapping[str, Method]] = _table(
    [
        *_on_control(("start", *CONTROLS), IdentityRule.EXACT, needs_body=True),
        Method(name="events.subscribe", path="/v1/events", verb="GET", identity=IdentityRule.NOT_READ),
        *_family("events", "aggregate", rule=IdentityRule.NOT_READ, cap=32),
        *_on_control(
            [f"search.{index}" for index in ("query", "sessions", "tasks", "events", "artifacts")],
            IdentityRule.NOT_READ,
        ),
        *_on_control(_POSTURE, IdentityRule.SAME_USER),
        *_family("pause", "list", cap=32),
        *_on_control(["topology.snapshot"], IdentityRule.SAME_USER, needs_body=True),
        *_on_control(("artifacts.list", "artifacts.put", "artifacts.get_ref"), IdentityRule.SCOPE_OBJECT, cap=8 * _KIB),
        *_family("memory", "list get health"),
        *_on_control([f"mcp.servers.{verb}" for verb in _MCP.split()], IdentityRule.SAME_USER),
        *_family(
            "tools",
            "list get describe metrics content_stats set_approval_policy revoke_oauth",
            rule=IdentityRule.NOT_READ,
        ),
        *_family("tasks", "list get", rule=IdentityRule.NOT_READ),
        *_family("flows", "list describe runs.list runs.describe run metrics"),
        *_family("agents", "list get tools memory governance skills permissions metrics", rule=IdentityRule.NOT_READ),
        *_family("sessions", "list inspect"),
        *_family("runs", "set_overrides", cap=256),
        *_family("auth", "rotate_token", cap=16),
    ]
)
"""The methods of the protocol by name: exactly 71."""

ADDED_METHODS: Final[Mapping[str, Method]] = _table(
    [
        *_family("runs", "steps step", capability=Capability.RUN_HISTORY),
        *_family("runs", "fork replay freeze compare", capability=Capability.RUN_FORK),
    ]
)
"""What this implementation adds, by name; a server without the capability answers `unknown_method`."""

ALL_METHODS: Final[Mapping[str, Method]] = _table([*METHODS.values(), *ADDED_METHODS.values()])
"""Both tables."""


class InvalidVersionError(HarborageError, ValueError):
    """A protocol version is three whole numbers, such as 0.1.0."""

    def __init__(self, version: object = "") -> None:
        self.version = version
        super().__init__(f"{version!r} is no protocol version; three whole numbers, such as {PROTOCOL_VERSION!r}")


def is_compatible(version: str, with_version: str = PROTOCOL_VERSION) -> bool:
    """Whether a peer that speaks `version` understands one that speaks `with_version`: they have the same first number.

    Raises:
        InvalidVersionError: one of them is no version.
    """
    return _numbers(version)[0] == _numbers(with_version)[0]


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidVersionError(version)
    return tuple(map(int, parts))
