"""The memory of sessions as a part of the runtime: read by a context provider, written when a run reached its goal.

Only runs that a person started are turns of the conversation; a child works on a task of its own, and neither sees nor
adds to what was said.
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
    """Gives a run what was said before in its session, in the conversation tier."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory

    async def provide(self, run: ContextRequest) -> Context | None:
        """The session's summary and newest turns; None when there are none, and for a child.

        Raises:
            MemoryCorruptError: what is stored cannot be read.
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
    """The memory as a source that runs cannot do without: an answer that forgot what was said would be a wrong one."""
    return ContextSource(
        provider=MemoryProvider(memory), name="memory", is_required=True, timeout_s=_READ_S, max_bytes=0
    )


def turn_of(query: str, finish: Finish, trajectory: Trajectory, *, key: str, clock: Clock) -> Turn:
    """What a run that reached its goal adds to its session; `key` keeps it from being added twice."""
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
