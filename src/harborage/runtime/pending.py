"""An open question of a run, with the methods that answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.planner import PauseReason
    from harborage.runtime.loop.pauses import Pause


class TakesAnswers(Protocol):
    """The run that waits."""

    async def approve(self, token: str = "", *, reason: str = "", args: dict[str, Any] | None = None) -> bool: ...

    async def reject(self, reason: str = "", *, token: str = "") -> bool: ...

    async def resume(self, payload: dict[str, Any] | None = None) -> bool: ...


class Question:
    """One open question of a run. `token` names it; `deadline` is until when it can be answered, None for ever.

    `tool` and `args` are those of the call that waits for approval; for any other question they are empty.
    """

    def __init__(self, pause: Pause) -> None:
        self.pause = pause

    @property
    def token(self) -> str:
        """What names the question in an answer."""
        return self.pause.token

    @property
    def run_id(self) -> str:
        """The run that waits."""
        return self.pause.identity.run_id

    @property
    def reason(self) -> PauseReason:
        """Why the run waits."""
        return self.pause.reason

    @property
    def tool(self) -> str:
        """The tool whose call waits for approval."""
        return str(self._payload.get("tool") or "")

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of that call, without secrets."""
        summary = self._payload.get("args_summary")
        given = summary.get("args") if isinstance(summary, dict) else None
        return given if isinstance(given, dict) else {}

    @property
    def question(self) -> str:
        """What the person is asked."""
        return str(self._payload.get("question") or self._payload.get("reason") or "")

    @property
    def deadline(self) -> datetime | None:
        """Until when it can be answered."""
        return self.pause.deadline

    @property
    def _payload(self) -> dict[str, Any]:
        return self.pause.payload or {}

    def __repr__(self) -> str:
        return f"Pending({self.tool or self.reason}, token={self.token!r})"


class Pending(Question):
    """One open question of a run, with the methods that answer it."""

    def __init__(self, run: TakesAnswers, pause: Pause) -> None:
        super().__init__(pause)
        self._run = run

    async def approve(self, *, args: dict[str, Any] | None = None, reason: str = "") -> bool:
        """Approve it; `args` replace the arguments of the call.

        Raises:
            Exception: as of `Run.approve`.
        """
        return await self._run.approve(self.token, args=args, reason=reason)

    async def reject(self, reason: str = "") -> bool:
        """Reject it; the planner sees the reason.

        Raises:
            Exception: as of `Run.reject`.
        """
        return await self._run.reject(reason, token=self.token)

    async def answer(self, value: Any) -> bool:
        """Answer it with a value, which the planner sees.

        Raises:
            Exception: as of `Run.resume`.
        """
        return await self._run.resume({"token": self.token, "answer": value})
