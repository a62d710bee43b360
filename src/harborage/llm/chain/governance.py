"""The outermost layer: a governor may refuse a call before anything is done for it, and hears of every success."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from harborage.llm.chain.layer import Layer

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse

__all__ = ["Governed"]

log = logging.getLogger(__name__)


class Governed(Layer):
    """Asks the governor of `Deps` around every call; without one it passes calls on."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        governor = self._deps.governance
        if governor is None:
            return await self._inner.complete(request)
        await governor.pre_call(request)
        response = await self._inner.complete(request)
        try:
            await governor.post_call(request, response)
        except Exception as error:  # noqa: BLE001 - the answer is there and paid for; nobody may take it away
            log.warning("llm: the governor failed after a call of %s: %s", request.model or "the model", error)
        return response
