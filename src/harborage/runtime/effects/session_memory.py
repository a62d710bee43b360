"""The memory of sessions: a context provider reads it for a run, and a run that reaches its goal adds a turn.

Only runs that a caller started are turns of the conversation; a child run works on its own task, and neither reads nor
adds to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harborage.memory import SessionMemory, Turn, TurnDigest
from harborage.planner import CallParallel, CallTool, Finish, MemoryBlocks, Trajectory, extract_answer
from harborage.runtime.loop.context import Context, ContextRequest, ContextSource

if TYPE_CHECKING:
    from harborage.clock import Clock

_MOST_TOOLS: Final = 32
_READ_S: Final = 30.0


class MemoryProvider:
    """Gives a run the earlier turns of its session, in the conversation tier."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory

    async def provide(self, run: ContextRequest) -> Context | None:
        """Return the session's summary and newest turns; None if there are none, or for a child run.

        Raises:
            MemoryCorruptError: the stored memory cannot be read.
        """
        if run.is_child:
            return None
        patch = await self._memory.context(run.who.identity)
        if not patch.recent_turns and not patch.summary:
            return None
        conversation: dict[str, Any] = {
            "strategy": patch.strategy,
            "recent_turns": [
                {"user": turn.user_message, "assistant": turn.assistant_response} for turn in patch.recent_turns
            ],
        }
        if patch.summary:
            conversation["summary"] = patch.summary
        return Context(memory_blocks=MemoryBlocks(conversation=conversation))


def memory_source(memory: SessionMemory) -> ContextSource:
    """Return the memory as a required source: without the earlier turns a run would give a wrong answer."""
    return ContextSource(
        provider=MemoryProvider(memory), name="memory", is_required=True, timeout_s=_READ_S, max_bytes=0
    )


def turn_of(query: str, finish: Finish, trajectory: Trajectory, *, key: str, clock: Clock) -> Turn:
    """Return the turn that a run which reached its goal adds to its session; `key` keeps it from being added twice."""
    tools = dict.fromkeys(name for step in trajectory.steps for name in _tools(step.action))
    return Turn(
        user_message=query,
        assistant_response=extract_answer(finish),
        digest=TurnDigest(tools_invoked=tuple(tools)[:_MOST_TOOLS]) if tools else None,
        at=clock.now(),
        key=key,
    )


def _tools(action: object) -> tuple[str, ...]:
    match action:
        case CallTool():
            return (action.tool,)
        case CallParallel():
            return tuple(branch.tool for branch in action.branches)
        case _:
            return ()
