"""What messages of every family share: who a request is for, references to artifacts, times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.protocol.methods import PROTOCOL_VERSION

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactRef
    from harborage.identity import Identity, Quadruple

NO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
"""What an answer holds where there is no time."""


class PrincipalParts(msgspec.Struct, frozen=True, kw_only=True):
    """A principal as a request names one; a blank part is not said."""

    tenant: str = ""
    user: str = ""
    session: str = ""


class IdentityScope(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a request is for. `run` and `scope` are read by controls, the last three by impersonation alone."""

    tenant: str = ""
    user: str = ""
    session: str = ""
    run: str = ""
    scope: str = ""
    actor: PrincipalParts | None = None
    requester: PrincipalParts | None = None
    impersonating: PrincipalParts | None = None

    @property
    def is_blank(self) -> bool:
        """Whether no part of the triple is said."""
        return not (self.tenant or self.user or self.session)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request; every family accepts `identity`."""

    identity: IdentityScope = IdentityScope()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that names the version of the protocol."""

    protocol_version: str = PROTOCOL_VERSION


class WireIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose something is, in an answer; `run` is absent where none is meant."""

    tenant: str
    user: str
    session: str
    run: str = ""

    @classmethod
    def of(cls, who: Identity | Quadruple) -> WireIdentity:
        """Return `who` as it travels."""
        run = getattr(who, "run_id", "")
        return cls(tenant=who.tenant_id, user=who.user_id, session=who.session_id, run=run)


class ArtifactReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reference to an artifact, without its owner."""

    id: str
    mime_type: str = ""
    size_bytes: int = 0
    filename: str = ""
    sha256: str = ""

    @classmethod
    def of(cls, ref: ArtifactRef) -> ArtifactReference:
        """Return `ref` as it travels."""
        return cls(
            id=ref.id,
            mime_type=ref.mime_type,
            size_bytes=ref.size_bytes,
            filename=ref.filename,
            sha256=ref.sha256,
        )


def time_or_none(moment: datetime | None) -> datetime:
    """Return a moment for an answer: the year 1 for None."""
    return NO_TIME if moment is None else moment
