"""Grants: approvals that hold beyond the call that they were given for, each a record with an owner and an end.

A grant for a run is for one tool until the run ends; one for always is for one tool with the very same arguments, in
all runs of its principal. Those of a principal are one record, which any process may change.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.errors import HarborageError, NotFoundError
from harborage.identity import Identity, Quadruple, require_triple
from harborage.ids import named_id, new_id
from harborage.runtime.loop.controls import Remember
from harborage.state.errors import RecordNotFoundError
from harborage.state.store import StateRecord, StateStore, SwappingStateStore

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.runtime.effects.approval.model import ApprovalRequest

GRANT_TIME: Final[dict[Remember, timedelta]] = {Remember.RUN: timedelta(days=30), Remember.ALWAYS: timedelta(days=90)}
"""How long a grant holds at most; one for a run ends with the run, if that is sooner."""

MOST_GRANTS: Final = 200
"""How many grants of a principal are kept; above that, those end that would have ended first."""

_KIND: Final = "approval.grants"
_SHOWN_BYTES: Final = 1024

IsLive = Callable[[str], Awaitable[bool]]
"""Returns whether the run with this id has not ended."""


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of `tool` by the runs of `owner` passes without being asked about, until `ends_at`.

    `remember` says which: those of the run `run_id`, or those in any run with the arguments that it was given for.
    `args` are these as an approver was shown them, None where they are long. `granted_by` approved; `question` is what
    a hook had asked, "" for a call that its tool or a policy gates.
    """

    id: str
    owner: Identity
    tool: str
    remember: Remember
    created_at: datetime
    ends_at: datetime
    run_id: str = ""
    question: str = ""
    args: Any = None
    granted_by: Identity | None = None


class GrantNotFoundError(NotFoundError):
    """The principal has no such grant."""

    what = "grant"
    fix = "it was revoked, has ended, or never was: list those there are"


class GrantsUnavailableError(HarborageError):
    """Grants cannot be kept: the state store of this runtime has no conditional update."""


class Grants:
    """The grants of all principals, in `state`. `is_live` says whether a grant for a run still holds."""

    def __init__(self, state: StateStore, clock: Clock, is_live: IsLive) -> None:
        self._state = state
        self._clock = clock
        self._is_live = is_live

    async def list(self, *, who: Identity) -> list[Grant]:
        """Return the grants of `who` that hold, oldest first.

        Raises:
            IdentityRequiredError: `who` is incomplete.
            StateError: the store refused.
        """
        require_triple(who, "grants")
        now = self._clock.now()
        _, kept = await self._load(who)
        return [one for one in kept if now < one.ends_at and await self._holds(one)]

    async def revoke(self, grant_id: str, *, who: Identity) -> None:
        """End a grant: calls that it would have let pass are asked about again.

        Raises:
            IdentityRequiredError: `who` is incomplete.
            GrantNotFoundError: `who` has no such grant.
            StateError: the store refused.
        """
        require_triple(who, "grants.revoke")

        def without(grants: builtins.list[Grant]) -> builtins.list[Grant]:
            left = [one for one in grants if one.id != grant_id]
            if len(left) == len(grants):
                raise GrantNotFoundError(grant_id)
            return left

        await self._change(who, without)

    async def find(self, request: ApprovalRequest) -> Grant | None:
        """Return the grant with which a call may run; None for one that a person must approve.

        Raises:
            StateError: the store refused.
        """
        wanted = {grant_id(request, remember) for remember in Remember}
        now = self._clock.now()
        _, kept = await self._load(request.identity.identity)
        return next((one for one in kept if one.id in wanted and now < one.ends_at), None)

    async def add(
        self, request: ApprovalRequest, remember: Remember, *, shown: Any = None, by: Identity | None = None
    ) -> None:
        """Grant calls like that of `request`; once, however often it is repeated. `shown` are its arguments redacted.

        Raises:
            GrantsUnavailableError: the store cannot keep grants.
            StateError: the store refused.
        """
        who, now = request.identity.identity, self._clock.now()
        new = Grant(
            id=grant_id(request, remember),
            owner=who,
            tool=request.tool,
            remember=remember,
            created_at=now,
            ends_at=now + GRANT_TIME[remember],
            run_id=request.identity.run_id if remember is Remember.RUN else "",
            question=request.question,
            args=shown if len(codec.encode(shown)) <= _SHOWN_BYTES else None,
            granted_by=by,
        )

        def with_new(grants: builtins.list[Grant]) -> builtins.list[Grant]:
            left = [one for one in grants if one.id != new.id and now < one.ends_at]
            left.sort(key=lambda one: one.ends_at)
            return [*left[max(0, len(left) + 1 - MOST_GRANTS) :], new]

        await self._change(who, with_new)

    async def _holds(self, grant: Grant) -> bool:
        return not grant.run_id or await self._is_live(grant.run_id)

    async def _load(self, who: Identity) -> tuple[str, builtins.list[Grant]]:
        """Return the event id of the record of a principal, "" where there is none, and its grants."""
        try:
            record = await self._state.load(who.with_run(""), _KIND)
        except RecordNotFoundError:
            return "", []
        grants: builtins.list[Grant] = codec.decode(record.data, builtins.list[Grant])
        return record.event_id, grants

    async def _change(self, who: Identity, change: Callable[[builtins.list[Grant]], builtins.list[Grant]]) -> None:
        state = self._state
        if not isinstance(state, SwappingStateStore):
            raise GrantsUnavailableError()
        while True:
            after, grants = await self._load(who)
            data = codec.encode(sorted(change(grants), key=lambda one: (one.created_at, one.id)))
            if await state.swap(StateRecord(new_id(), who.with_run(""), _KIND, data), after=after):
                return


def grant_id(request: ApprovalRequest, remember: Remember) -> str:
    """Return the id of the grant that lets a call pass."""
    who: Quadruple = request.identity
    only = who.run_id if remember is Remember.RUN else _canonical(request.args)
    return named_id(who.tenant_id, who.user_id, who.session_id, str(remember), only, request.tool, request.question)


def _canonical(args: bytes) -> str:
    """Return arguments in the one form of all those that mean the same to a tool."""
    try:
        return codec.encode_canonical(codec.decode(args.strip() or b"{}")).decode()
    except (msgspec.DecodeError, codec.UnserializableError):
        return args.hex()
