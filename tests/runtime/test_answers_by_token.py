"""An answer that names a token resolves the pause or call of that token, or nothing."""

from __future__ import annotations

import pytest

from harborage import (
    CallTool,
    Decision,
    EventType,
    Finish,
    FinishReason,
    Identity,
    PauseReason,
    RequestPause,
    RunContext,
    Runtime,
    SideEffect,
    tool,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.pauses import AlreadyResumedError

WHO = Identity("t", "u", "s")


@tool(side_effects=SideEffect.WRITE)
async def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


class _PublishThenAsk:
    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        if not run.trajectory.steps:
            return CallTool("publish", b'{"text":"draft"}')
        if run.trajectory.resume_hint is not None:
            return Finish(FinishReason.GOAL, run.trajectory.steps[0].observation)
        return RequestPause(PauseReason.AWAIT_INPUT, {"question": "go on?"})


async def test_a_used_approval_token_does_not_answer_the_next_pause() -> None:
    """A REJECT under the token of a call that was answered is refused and leaves the open pause alone."""
    async with Runtime(planner=_PublishThenAsk(), tools=[publish], approvals={"publish": AlwaysDeny()}) as rt:
        run = await rt.start("publish", who=WHO)
        token = ""
        async for event in run.events():
            if event.type == EventType.TOOL_APPROVAL_REQUESTED:
                token = event.payload.pause_token  # type: ignore[union-attr]
                await run.approve(token)
            elif event.type == EventType.PAUSE_REQUESTED and token:
                with pytest.raises(AlreadyResumedError, match=r"was resolved before \(approve by \w+ at "):
                    await run.reject(token)
                with pytest.raises(AlreadyResumedError):
                    await run.resume({"token": token})
                await run.resume()
        finish = await run.result()
    assert (finish.reason, finish.payload) == (FinishReason.GOAL, "published draft")


async def test_arguments_that_the_tool_does_not_take_use_no_approval_up() -> None:
    """The answer is recorded as failed, the call waits on, and the next answer counts."""
    async with Runtime(planner=_PublishThenAsk(), tools=[publish], approvals={"publish": AlwaysDeny()}) as rt:
        run = await rt.start("publish", who=WHO)
        answers = iter([{"text": 7}, {"words": "x"}, {"text": "better"}])
        outcomes: list[str] = []
        token = ""
        async for event in run.events():
            match event.type:
                case EventType.TOOL_APPROVAL_REQUESTED:
                    token = event.payload.pause_token  # type: ignore[union-attr]
                    await run.approve(token, args=next(answers))
                case EventType.CONTROL_APPLIED:
                    outcomes.append(event.payload.outcome)  # type: ignore[union-attr]
                    if outcomes[-1] == "failed":
                        (pause,) = await run.waiting()
                        assert pause.token == token
                        await run.approve(token, args=next(answers))
                case EventType.PAUSE_REQUESTED if outcomes:
                    await run.resume()
        assert (await run.result()).payload == "published better"
    assert outcomes == ["failed", "failed", "applied", "applied"]
