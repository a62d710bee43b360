"""Sessions: conversations that are opened, touched, listed, closed for good, and swept when they are abandoned.

`model` has the values, `registry` the operations and the sweep. Sessions are rows of the store of record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.sessions.model import Reaped as Reaped
    from harborage.sessions.model import Session as Session
    from harborage.sessions.model import SessionAlreadyOpenError as SessionAlreadyOpenError
    from harborage.sessions.model import SessionClosedError as SessionClosedError
    from harborage.sessions.model import SessionCorruptError as SessionCorruptError
    from harborage.sessions.model import SessionError as SessionError
    from harborage.sessions.model import SessionFilter as SessionFilter
    from harborage.sessions.model import SessionInspection as SessionInspection
    from harborage.sessions.model import SessionLimits as SessionLimits
    from harborage.sessions.model import SessionMismatchError as SessionMismatchError
    from harborage.sessions.model import SessionNotFoundError as SessionNotFoundError
    from harborage.sessions.model import SessionPolicy as SessionPolicy
    from harborage.sessions.model import SessionRegistryClosedError as SessionRegistryClosedError
    from harborage.sessions.model import Sweep as Sweep
    from harborage.sessions.registry import FLEET_SCOPES as FLEET_SCOPES
    from harborage.sessions.registry import SessionRegistry as SessionRegistry
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.sessions.model": (
                "Reaped Session SessionAlreadyOpenError SessionClosedError SessionCorruptError SessionError "
                "SessionFilter SessionInspection SessionLimits SessionMismatchError SessionNotFoundError "
                "SessionPolicy SessionRegistryClosedError Sweep"
            ),
            "harborage.sessions.registry": "FLEET_SCOPES SessionRegistry",
        },
    )
