"""A run's history becomes the messages that another framework's agent would have had."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.identity import Quadruple
from harborage.llm import ArtifactStub, ChatMessage, Content, FilePart, ImagePart, Role, TextPart
from harborage.planner import (
    BackgroundResult,
    CallTool,
    InputArtifactView,
    ResumeHint,
    RunContext,
    SteeringInjection,
    Step,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.adapters.base import build_messages, convert_content, render_stub, render_text
from tests.kit.tables import each_row

WHO = Quadruple("tenant", "user", "session", "run")


def seen(run: RunContext) -> list[tuple[str, str]]:
    """The conversation as roles and texts."""
    return [(str(message.role), render_text(message)) for message in build_messages(run)]


def a_run(trajectory: Trajectory | None = None, **fields: object) -> RunContext:
    """A run that was started with `find it`."""
    return RunContext(quadruple=WHO, query="find it", trajectory=trajectory, **{"goal": "find it", **fields})


def test_a_new_run_is_the_request_alone() -> None:
    """The user's words are sent as they are; there is no system message, which is the agent's own business."""
    assert seen(a_run(Trajectory())) == [("user", "find it")]
    assert seen(a_run()) == [("user", "find it")]


def test_a_run_without_a_goal_says_so() -> None:
    """A conversation never begins with an empty message."""
    assert seen(RunContext(quadruple=WHO)) == [("user", "(no goal was given)")]


def test_a_redirect_stands_where_it_came() -> None:
    """The first message stays what the user asked for; the new goal comes after the step it followed."""
    steps = [Step(action=CallTool("look", b"{}", "c1"), observation="nothing")]
    redirect = SteeringInjection(kind="redirect", payload={"goal": "stop looking"}, at_step=1)
    texts = seen(a_run(Trajectory(steps=steps, steering_inputs=[redirect]), goal="stop looking"))
    assert [role for role, _ in texts] == ["user", "assistant", "tool", "user"]
    assert texts[0][1] == "find it"
    assert texts[2][1] == "nothing"
    assert texts[3][1].endswith("stop looking")


def test_a_summary_stands_for_the_steps_it_covers() -> None:
    """With a summary the request states the current goal, because the redirect may be among what was summarised."""
    trajectory = Trajectory(steps=[Step(action=CallTool("look"), observation="old")])
    trajectory.steering_inputs.append(SteeringInjection(kind="redirect", payload={"goal": "new"}, at_step=0))
    trajectory.summarise(TrajectorySummary(facts=("it is green",), note="half done"))
    trajectory.steps.append(Step(action=CallTool("touch"), observation="cold"))
    texts = seen(a_run(trajectory, goal="new"))
    assert texts[0][1].startswith("new\n")
    assert "Facts: it is green" in texts[0][1]
    assert "Note: half done" in texts[0][1]
    assert [text for _, text in texts[1:]] == ["", "cold"]


@pytest.mark.parametrize("is_noted", [False, True])
def test_the_answer_to_a_pause_is_rendered_once(is_noted: bool) -> None:
    """It comes from the hint, or from the history where it is recorded there."""
    trajectory = Trajectory(resume_hint=ResumeHint(pause_token="t", resume_payload={"word": "yes"}))
    if is_noted:
        trajectory.steering_inputs.append(SteeringInjection(kind="resumed", payload={"word": "yes"}, at_step=0))
    texts = seen(a_run(trajectory))
    assert [text for _, text in texts[1:] if "yes" in text] == [texts[-1][1]]
    assert len(texts) == 2


def test_background_results_and_context_are_reported() -> None:
    """What ended in the background comes last, and what the caller gave comes first."""
    trajectory = Trajectory()
    trajectory.background["g1"] = BackgroundResult(
        group_id="g1", status="completed", resolved_at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    texts = seen(a_run(trajectory, llm_context={"place": "Oslo"}))
    assert "Oslo" in texts[0][1]
    assert texts[1] == ("user", "find it")
    assert "g1" in texts[-1][1]


def test_attachments_come_with_the_request() -> None:
    """Pictures are media; everything else is a stub in words."""
    picture = InputArtifactView(id="a1", mime="image/png", bytes=b"\x89PNG")
    (first,) = build_messages(a_run(Trajectory(), input_artifacts=[picture]))
    assert convert_content(first, lambda part: part) == list(first.content.parts)
    paper = InputArtifactView(id="a2", mime="text/csv", filename="t.csv")
    (second,) = build_messages(a_run(Trajectory(), input_artifacts=[paper]))
    assert convert_content(second, render_stub) == render_text(second)
    assert "t.csv" in render_text(second)


def test_text_in_pieces_is_one_text() -> None:
    """A long text that was cut into pieces reads as before."""
    message = ChatMessage(Role.USER, Content(parts=(TextPart("one "), TextPart("text"))))
    assert convert_content(message, render_stub) == render_text(message) == "one text"


@each_row(
    "part, text",
    [
        (TextPart("words"), "words"),
        (ImagePart(url="https://example.org/x.png"), "https://example.org/x.png"),
        (FilePart(data_url="data:x", mime="application/pdf"), "(an attachment of type application/pdf)"),
        (
            FilePart(artifact=ArtifactStub("a1", "text/plain", 3)),
            '{"artifact_ref":"a1","mime":"text/plain","size_bytes":3}',
        ),
    ],
)
def test_a_part_in_words(part: object, text: str) -> None:
    """What cannot be sent as a medium is named, never dropped."""
    assert render_stub(part) == text
