"""The seam through which a budget or a policy looks at calls of models, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse

__all__ = ["Governor"]


@runtime_checkable
class Governor(Protocol):
    """Decides whether a call may be made, and hears what it took. It reads the ambient identity; many calls at once."""

    async def pre_call(self, request: CompleteRequest) -> None:
        """Return when the call may be made; whatever this raises is raised in its place, and nothing is sent."""
        ...

    async def post_call(self, request: CompleteRequest, response: CompleteResponse) -> None:
        """Hear of a call that succeeded. What this raises is logged and changes nothing."""
        ...
