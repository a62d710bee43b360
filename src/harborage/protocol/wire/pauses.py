"""The messages of `pause.list`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from harborage.protocol.wire.common import ArtifactReference, Request, WireIdentity


class PauseFilterParts(msgspec.Struct, frozen=True, kw_only=True):
    """Which pauses; without `status` the open ones. `since` and `until` bound when they were opened, both included."""

    status: tuple[str, ...] = ()
    tenant_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class ListPauses(Request, frozen=True, kw_only=True):
    """`pause.list`; `page` 0 is 1, `page_size` 0 is 50."""

    filter: PauseFilterParts = PauseFilterParts()
    page: int = 0
    page_size: int = 0


class PauseSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pause. The keys from `deadline` on are additions, each absent where it has no value.

    `default` is what the deadline does; `approvers` are those who may answer: `user:` and an id, or `scope:` and a
    scope of a token. `decision` and `by` are those of a resumed one. `step`, from 1, and `call_id` name the call that
    waits, as events do; `masked` says that its arguments show a secret as a mask.
    """

    token: str
    reason: str
    state: str
    identity: WireIdentity
    paused_at: datetime
    resumed_at: datetime
    payload: dict[str, Any] | None = None
    payload_ref: ArtifactReference | None = None
    deadline: datetime | None = None
    default: str = ""
    approvers: tuple[str, ...] = ()
    agent_name: str = ""
    decision: str = ""
    by: WireIdentity | None = None
    step: int = 0
    call_id: str = ""
    masked: bool = False


class PausesListed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of `pause.list`, newest first; `truncated` says that no resumed pause is kept any more."""

    snapshots: list[PauseSnapshot]
    page: int
    page_size: int
    page_count: int
    total_rows: int
    truncated: bool = False
