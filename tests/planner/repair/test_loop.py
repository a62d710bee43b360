"""The ladder asks again when an answer cannot be used, within its limits, and then ends the run well."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import IdentityMissingError, Quadruple, current_quadruple
from harborage.llm import CompleteRequest, CompleteResponse, Role
from harborage.planner import (
    CallParallel,
    CallTool,
    ChunkKind,
    Finish,
    FinishReason,
    InvalidConfigError,
    JoinKind,
    RepairExhaustedError,
    RunContext,
)
from harborage.planner.repair import RepairLoop, RepairSignals
from harborage.testing.llm import ScriptedLLM, says

pytestmark = pytest.mark.anyio

GOOD = '{"tool": "a", "args": {"x": 1}}'


def refuse(action):
    """Accepts arguments that have an x."""
    if b'"x"' not in action.args:
        raise ValueError("x is missing")


async def test_a_good_answer_is_the_decision(run, request_, emitted):
    """One call of the model, one call of a tool, nothing repaired and no event."""
    llm = ScriptedLLM([says(GOOD, reasoning="because")])
    result = await RepairLoop().run(run, llm, request_, refuse)
    assert result.decision == CallTool("a", b'{"x": 1}')
    assert result.reasoning == "because"
    assert result.repair == RepairSignals()
    assert [call.request for call in llm.calls] == [request_]
    assert emitted == []


async def test_bad_then_good(run, request_):
    """An answer without an action is asked for again, and the repair is reported."""
    llm = ScriptedLLM([says("hello"), says(GOOD, reasoning="second")])
    result = await RepairLoop().run(run, llm, request_)
    assert result.decision == CallTool("a", b'{"x": 1}')
    assert result.repair == RepairSignals(args_repaired=True)
    assert result.reasoning == "second"
    assert len(llm.calls) == 2


async def test_the_corrective_turn(run, request_):
    """It is the original, the bad answer, and what was wrong; an earlier correction is not in it."""
    llm = ScriptedLLM([says("first"), says(""), says(GOOD)])
    await RepairLoop(max_consecutive_arg_failures=5).run(run, llm, request_)
    second, third = (call.request.messages for call in llm.calls[1:])
    assert second[:2] == third[:2] == request_.messages
    assert [message.role for message in second[2:]] == [Role.ASSISTANT, Role.USER]
    assert second[2].content.text == "first"
    assert "tool" in second[3].content.text
    assert [message.role for message in third[2:]] == [Role.USER]
    assert "first" not in third[2].content.text


async def test_invalid_arguments_are_reported(run, request_):
    """What the validator says of the first bad action goes back to the model."""
    llm = ScriptedLLM([says('[{"tool": "a", "args": {"x": 1}}, {"tool": "b"}, {"tool": "c"}]'), says(GOOD)])
    result = await RepairLoop().run(run, llm, request_, refuse)
    assert result.decision == CallTool("a", b'{"x": 1}')
    assert "tool=b arg-validation: x is missing" in llm.calls[1].request.messages[-1].content.text


async def test_several_actions(run, request_):
    """Several actions become one parallel call that waits for all, and count as such."""
    result = await RepairLoop().run(run, ScriptedLLM([f"{GOOD} and {GOOD}"]), request_, refuse)
    assert isinstance(result.decision, CallParallel)
    assert len(result.decision.branches) == 2
    assert result.decision.join.kind is JoinKind.ALL
    assert result.repair == RepairSignals(multi_action=True)


@pytest.mark.parametrize("loop", [RepairLoop(arg_fill_enabled=False), RepairLoop()])
async def test_without_judgement(run, request_, loop):
    """Without a validator, or with judging switched off, actions go on as they are."""
    validator = None if loop.limits.arg_fill_enabled else refuse
    result = await loop.run(run, ScriptedLLM(['{"tool": "a"}']), request_, validator)
    assert result.decision == CallTool("a", b"{}")


async def test_the_guard_stops_a_storm(run, request_, emitted):
    """Two failures over arguments are enough, however many attempts are left."""
    llm = ScriptedLLM(["no"] * 9)
    result = await RepairLoop(repair_attempts=5, max_consecutive_arg_failures=2).run(run, llm, request_)
    assert len(llm.calls) == 2
    assert isinstance(result.decision, Finish)
    assert result.decision.metadata["repair_consecutive_arg_failures"] == 2


async def test_attempts_run_out(run, request_, emitted):
    """The attempts are the limit where the guard is further away; then one event says why, and nothing is raised."""
    llm = ScriptedLLM([says("no"), says('{"tool": "b"}'), says("no", reasoning="last")])
    loop = RepairLoop(repair_attempts=3, max_consecutive_arg_failures=9)
    result = await loop.run(run, llm, request_, refuse)
    assert len(llm.calls) == 3
    assert result.decision.reason is FinishReason.NO_PATH
    metadata = result.decision.metadata
    assert metadata["followup"] is True
    assert metadata["repair_attempts"] == 3
    assert metadata["repair_error"] == str(RepairExhaustedError()) == "planner: schema repair exhausted"
    assert metadata["repair_chain"].startswith("parser failed: ")
    assert "; tool=b arg-validation: x is missing; " in metadata["repair_chain"]
    assert result.reasoning == "last"
    assert result.repair == RepairSignals(args_repaired=True, multi_action=False)
    (event,) = emitted
    assert event.type == "planner.repair_exhausted"
    assert event.payload.identity == run.quadruple
    assert (event.payload.attempts, event.payload.consecutive_arg_failures) == (3, 3)
    assert len(event.payload.reasons) == 3


async def test_giving_up_needs_no_listener(run, request_):
    """Without a listener the finish is the same."""
    run.emit = None
    result = await RepairLoop(repair_attempts=1).run(run, ScriptedLLM(["no"]), request_)
    assert result.decision.reason is FinishReason.NO_PATH


async def test_long_reasons_are_cut(run, request_, emitted):
    """A reason has 256 bytes and the chain 1024, each with an ellipsis; a tool's name is made safe."""

    def explode(action):
        raise ValueError("ü" * 500)

    llm = ScriptedLLM([f'{{"tool": "{"n" * 90}\\n"}}'] * 9)
    loop = RepairLoop(repair_attempts=9, max_consecutive_arg_failures=9)
    result = await loop.run(run, llm, request_, explode)
    reasons = emitted[0].payload.reasons
    assert all(reason.startswith("tool=" + "n" * 64 + "… arg-validation: ü") for reason in reasons)
    assert all(256 <= len(reason.encode()) <= 256 + len("…".encode()) for reason in reasons)
    chain = result.decision.metadata["repair_chain"]
    assert chain.endswith("…")
    assert len(chain.encode()) <= 1024 + len("…".encode())


async def test_dropped_fields_are_reported(run, request_, emitted):
    """One event for each legacy field of each action; the action is taken all the same."""
    result = await RepairLoop().run(
        run, ScriptedLLM(['{"tool": "a", "thought": "t", "reasoning": "r", "args": {}}']), request_
    )
    assert result.decision == CallTool("a", b"{}")
    assert [event.type for event in emitted] == ["planner.action_extra_field_dropped"] * 2
    assert {event.payload.field for event in emitted} == {"thought", "reasoning"}


async def test_a_failing_model_fails_the_step(run, request_):
    """What the client raises is raised, the very same object, and nothing is tried again."""
    failure = ConnectionError("gone")
    llm = ScriptedLLM([failure, GOOD])
    with pytest.raises(ConnectionError) as caught:
        await RepairLoop().run(run, llm, request_)
    assert caught.value is failure
    assert len(llm.calls) == 1


async def test_a_cancelled_caller_gets_its_cancellation(request_, run):
    """A cancellation is raised before the first call of the model, and between two calls; there is no soft ending."""

    def stop(request: CompleteRequest) -> CompleteResponse:
        asyncio.current_task().cancel()
        return says("no")

    for script, calls in (([GOOD], 0), ([stop, GOOD], 1)):
        llm = ScriptedLLM(script)

        async def step(llm=llm, before=calls == 0):
            if before:
                asyncio.current_task().cancel()
            return await RepairLoop().run(run, llm, request_)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(step())
        assert len(llm.calls) == calls


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id", "run_id"])
async def test_identity_is_needed(run, request_, part):
    """A run without one of its four parts is refused, and the message names the part."""
    parts = {name: getattr(run.quadruple, name) for name in run.quadruple.__struct_fields__}
    run.quadruple = Quadruple(**{**parts, part: ""})
    llm = ScriptedLLM([GOOD])
    with pytest.raises(IdentityMissingError, match=part):
        await RepairLoop().run(run, llm, request_)
    assert llm.calls == []


async def test_a_client_is_needed(run, request_):
    """A missing client is refused before anything else."""
    with pytest.raises(InvalidConfigError):
        await RepairLoop().run(RunContext(quadruple=Quadruple()), None, request_)


async def test_the_answer_is_streamed(run, request_):
    """Where the run listens, each attempt is streamed to it by kind; the caller's request is not changed."""
    pieces = []
    run.on_chunk = lambda delta, done, kind: pieces.append((delta, done, kind))
    llm = ScriptedLLM([says("no", reasoning="hm"), GOOD], piece=100)
    await RepairLoop().run(run, llm, request_)
    assert not request_.stream
    assert all(call.request.stream for call in llm.calls)
    assert pieces == [
        ("hm", False, ChunkKind.REASONING),
        ("", True, ChunkKind.REASONING),
        ("no", False, ChunkKind.CONTENT),
        ("", True, ChunkKind.CONTENT),
        ("", False, ChunkKind.RESET),
        ("", True, ChunkKind.REASONING),
        (GOOD, False, ChunkKind.CONTENT),
        ("", True, ChunkKind.CONTENT),
    ]


async def test_giving_up_voids_nothing(run, request_):
    """A reset comes before each further attempt, and none after the last."""
    kinds = []
    run.on_chunk = lambda delta, done, kind: kinds.append(kind)
    await RepairLoop(max_consecutive_arg_failures=3).run(run, ScriptedLLM(["no"] * 3), request_)
    assert kinds.count(ChunkKind.RESET) == 2
    assert kinds[-1] is ChunkKind.CONTENT


async def test_one_loop_serves_128_runs(request_):
    """Runs on one loop do not see each other's failures, and each call is made under its own run's identity."""
    loop = RepairLoop()

    class Client:
        async def complete(self, request):
            number = int(current_quadruple().run_id)
            await asyncio.sleep(0)
            assert current_quadruple().run_id == str(number)
            has_failed = len(request.messages) > 2
            return says(GOOD if has_failed or number % 2 else "no")

        async def close(self): ...

    async def one(number: int):
        run = RunContext(quadruple=Quadruple("t", "u", "s", str(number)))
        return await loop.run(run, Client(), request_)

    results = await asyncio.gather(*(one(number) for number in range(128)))
    for number, result in enumerate(results):
        assert result.decision == CallTool("a", b'{"x": 1}')
        assert result.repair.args_repaired is (number % 2 == 0)
