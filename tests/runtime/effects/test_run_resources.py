"""What a planner says beside its decision, one step at a time."""

from __future__ import annotations

from harborage.events import Event, EventType, PatternRedactor
from harborage.identity import Quadruple
from harborage.planner import ToolCallDeferred
from harborage.runtime.effects.run_resources import StepNotes

WHO = Quadruple("t", "u", "s", "r")


def test_a_silent_step_leaves_no_notes() -> None:
    """Nothing said is not the same as an empty queue."""
    notes = StepNotes(None, PatternRedactor())
    assert (notes.reasoning, notes.preamble, notes.pending, notes.has_announced) == ("", "", None, False)


def test_the_last_word_counts() -> None:
    """Each note replaces the one before it; a queue is kept as it was handed over."""
    notes = StepNotes(None, PatternRedactor())
    queue = [ToolCallDeferred("a")]
    for text in ("one", "two"):
        notes.on_reasoning(text)
        notes.on_assistant_content(text)
    notes.on_pending_tool_calls(queue)
    queue.clear()
    assert (notes.reasoning, notes.preamble, notes.pending) == ("two", "two", (ToolCallDeferred("a"),))
    notes.on_pending_tool_calls([])
    assert notes.pending == ()


def test_an_announced_decision_is_noticed() -> None:
    """Every event goes on to where events go; only that of a decision is remembered."""
    received: list[Event] = []
    notes = StepNotes(received.append, PatternRedactor())
    for kind, has_announced in ((EventType.PLANNER_FINISH, False), (EventType.PLANNER_DECISION, True)):
        notes.emit(Event(kind, WHO, None))
        assert notes.has_announced is has_announced
    assert [event.type for event in received] == ["planner.finish", "planner.decision"]
    StepNotes(None, PatternRedactor()).emit(Event(EventType.PLANNER_DECISION, WHO, None))
