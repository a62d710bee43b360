"""The planner's word lists: their wire strings and what counts as a word."""

from __future__ import annotations

import pytest

from harborage.planner import ChunkKind, FinishReason, JoinKind, PauseReason, ReasoningReplayMode, SourceKind, WakeMode
from tests.kit.tables import each_row

WORDS = {
    JoinKind: ["all", "first_success", "keyed", "n"],
    FinishReason: ["goal", "no_path", "cancelled", "deadline_exceeded", "constraints_conflict"],
    PauseReason: ["approval_required", "await_input", "external_event", "constraints_conflict"],
    WakeMode: ["push", "poll", "hybrid"],
    ReasoningReplayMode: ["never", "text"],
    ChunkKind: ["content", "reasoning", "reset"],
    SourceKind: ["tool", "memory", "skill", "user_message", "artifact"],
}


@each_row("kind", WORDS, ids=lambda kind: kind.__name__)
def test_wire_strings(kind):
    """Each list holds exactly its wire strings, in order."""
    assert [str(word) for word in kind] == WORDS[kind]


@each_row("kind", WORDS, ids=lambda kind: kind.__name__)
def test_membership_is_validity(kind):
    """A wire string and its member are valid; other spellings, types and the empty string are not."""
    for word in WORDS[kind]:
        assert word in kind
        assert kind(word) in kind
        assert kind.is_valid(word)
    for wrong in ("", "nonsense", WORDS[kind][0].upper(), f" {WORDS[kind][0]}", None, 1, ["all"]):
        assert wrong not in kind


@each_row("kind", [kind for kind in WORDS if kind is not ReasoningReplayMode])
def test_empty_is_invalid(kind):
    """The empty string is no word."""
    assert not kind.is_valid("")


@each_row("value", ["Never", "TEXT", "provider_native", "always", "yes", None, 0, b""])
def test_invalid_replay_modes(value):
    """Replay modes are spelled in lower case and there are two of them."""
    assert not ReasoningReplayMode.is_valid(value)


def test_unset_replay_is_valid_configuration():
    """Configuration may leave the replay mode empty, although that is no mode."""
    assert ReasoningReplayMode.is_valid("")
    assert "" not in ReasoningReplayMode


@pytest.mark.parametrize("value", ["", "eager"])
def test_invalid_wake_modes(value):
    """A planner cannot declare a wake mode that does not exist."""
    assert not WakeMode.is_valid(value)


def test_word_is_its_wire_string():
    """A word prints as what travels."""
    assert str(WakeMode.PUSH) == "push"
    assert f"{FinishReason.NO_PATH}" == "no_path"
    assert PauseReason.AWAIT_INPUT == "await_input"
