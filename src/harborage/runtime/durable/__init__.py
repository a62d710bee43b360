"""How a run is recorded, executed and continued: the journal of its steps, and the engine over the store of record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.runtime.durable.engine import ControlUnreadableError as ControlUnreadableError
    from harborage.runtime.durable.engine import Engine as Engine
    from harborage.runtime.durable.engine import EngineClosedError as EngineClosedError
    from harborage.runtime.durable.engine import EngineElsewhereError as EngineElsewhereError
    from harborage.runtime.durable.engine import EngineError as EngineError
    from harborage.runtime.durable.engine import EngineStoppedError as EngineStoppedError
    from harborage.runtime.durable.engine import HistoryMismatchError as HistoryMismatchError
    from harborage.runtime.durable.engine import NotPreparedError as NotPreparedError
    from harborage.runtime.durable.engine import RecordRefusedError as RecordRefusedError
    from harborage.runtime.durable.engine import RolloverError as RolloverError
    from harborage.runtime.durable.engine import RunBlockedError as RunBlockedError
    from harborage.runtime.durable.engine import RunEndedError as RunEndedError
    from harborage.runtime.durable.engine import RunFailedError as RunFailedError
    from harborage.runtime.durable.engine import RunLeftError as RunLeftError
    from harborage.runtime.durable.engine import RunNotFoundError as RunNotFoundError
    from harborage.runtime.durable.engine import RunPhase as RunPhase
    from harborage.runtime.durable.engine import RunPutOffError as RunPutOffError
    from harborage.runtime.durable.engine import RunStatus as RunStatus
    from harborage.runtime.durable.engine import RunTakenError as RunTakenError
    from harborage.runtime.loop.seam import Concluded as Concluded
    from harborage.runtime.loop.seam import Durable as Durable
    from harborage.runtime.loop.seam import GatedTools as GatedTools
    from harborage.runtime.loop.seam import RunRequest as RunRequest
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.runtime.durable.engine": (
                "ControlUnreadableError Engine EngineClosedError EngineElsewhereError EngineError "
                "EngineStoppedError HistoryMismatchError NotPreparedError RecordRefusedError RolloverError "
                "RunBlockedError RunEndedError RunFailedError RunLeftError RunNotFoundError RunPhase "
                "RunPutOffError RunStatus RunTakenError"
            ),
            "harborage.runtime.loop.seam": "Concluded Durable GatedTools RunRequest",
        },
    )
