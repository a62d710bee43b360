"""The sessions of commands: one for each that starts a run, closed when nothing goes on in it any more.

Sessions that a program named are that program's to close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage.artifacts import ArtifactScope, ArtifactStore
from harborage.runtime.history import all_runs
from harborage.store import LIVE, RunQuery

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime
    from harborage.store import Store

__all__ = ["bring_artifacts", "close_own", "is_own", "own_session"]

_PREFIX: Final = "cli-"


def own_session(mark: str) -> str:
    """The session of the command with this mark."""
    return f"{_PREFIX}{mark}"


def is_own(session_id: str) -> bool:
    """Whether a command opened the session."""
    return session_id.startswith(_PREFIX)


async def close_own(runtime: Runtime, store: Store, who: Identity) -> bool:
    """Close the session of `who`, if a command opened it and every run in it is over; whether it did.

    Raises:
        HarborageError: the storage refuses.
    """
    mine = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, statuses=LIVE)
    if not is_own(who.session_id) or await all_runs(store, mine):
        return False
    await runtime.sessions.close(who, "its run is over")
    return True


async def bring_artifacts(store: ArtifactStore, source: Identity, target: Identity) -> None:
    """What was made in one session, in another as well, under the same ids.

    Raises:
        HarborageError: the store refuses.
    """
    scope = ArtifactScope.of(target)
    for ref in await store.list(ArtifactScope.of(source)):
        data = await store.get(ref.scope, ref.id)
        if data is not None:
            await store.put_bytes(
                scope, data, mime_type=ref.mime_type, filename=ref.filename, namespace=ref.namespace, source=ref.source
            )
