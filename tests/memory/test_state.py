"""The stored memory of a session, and how it changes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.memory import Memory, MemoryHealth, MemoryHealthError, MemoryStrategy, Turn
from harborage.memory.state import (
    MemoryState,
    add_turn,
    apply_summary,
    check_health_change,
    count_failure,
    fail_recovery,
    finish_recovery,
    make_patch,
    restore_state,
    start_recovery,
)

_ROLLING = Memory(tokens=0, backlog=1_000)


def _named(*turns: Turn) -> str:
    return ",".join(turn.user_message for turn in turns)


@given(st.lists(st.sampled_from(["ok", "fail", "recover", "recover_fail"]), max_size=60))
def test_every_turn_is_in_exactly_one_place(moves: list[str]) -> None:
    """Whatever fails and recovers in which order, each turn is kept, waits, or is in the summary, once and in order."""
    state = MemoryState(strategy=MemoryStrategy.ROLLING_SUMMARY)
    for number, move in enumerate(moves):
        if move in ("ok", "fail"):
            turn = Turn(user_message=f"{number}", assistant_response="a", key=f"{number}")
            state = add_turn(add_turn(state, turn, _ROLLING).state, turn, _ROLLING).state
            if batch := state.batch:
                summary = ",".join(one for one in (state.summary, _named(*batch)) if one)
                state = (apply_summary(state, batch, summary) if move == "ok" else count_failure(state, _ROLLING)).state
        elif state.health is MemoryHealth.DEGRADED:
            state = start_recovery(state).state
            summary = ",".join(one for one in (state.summary, _named(*state.backlog[0])) if one)
            state = (
                finish_recovery(state, state.backlog[0], summary) if move == "recover" else fail_recovery(state)
            ).state
        waiting = [turn for batch in state.backlog for turn in batch]
        places = [state.summary, _named(*waiting, *state.pending, *state.turns)]
        expected = [f"{n}" for n, one in enumerate(moves[: number + 1]) if one in ("ok", "fail")]
        assert ",".join(place for place in places if place) == ",".join(expected)
        assert len(state.turns) <= 4
        assert (state.health is MemoryHealth.DEGRADED) == bool(state.backlog)


def test_a_batch_that_another_process_summarised_is_left_alone() -> None:
    """A summary of turns that are not the oldest pending ones any more changes nothing."""
    turns = tuple(Turn(user_message=f"{n}", assistant_response="a") for n in range(2))
    state = MemoryState(strategy=MemoryStrategy.ROLLING_SUMMARY, pending=turns[1:])
    assert apply_summary(state, turns[:1], "old").state is state
    assert count_failure(MemoryState(strategy=MemoryStrategy.ROLLING_SUMMARY), _ROLLING).reason == ""


def test_a_rolling_summary_heeds_its_budget() -> None:
    """Turns that do not fit into the budget wait for the summary, even a single one that is too large alone."""
    config = Memory(tokens=10)
    state = MemoryState(strategy=MemoryStrategy.ROLLING_SUMMARY)
    for n in range(3):
        state = add_turn(state, Turn(user_message=f"user {n:03}", assistant_response="answered"), config).state
    assert [len(state.turns), len(state.pending)] == [1, 2]
    state = add_turn(state, Turn(user_message="x" * 100, assistant_response="y"), config).state
    assert [len(state.turns), len(state.pending)] == [0, 4]


def test_a_stored_memory_comes_back_as_it_was() -> None:
    """The JSON has strategy, turns and summary, and what is owed; defaults are left out."""
    turn = Turn(user_message="u", assistant_response="a", key="r1")
    state = MemoryState(
        strategy=MemoryStrategy.ROLLING_SUMMARY,
        turns=(turn,),
        summary="s",
        pending=(turn,),
        backlog=((turn,),),
        failures=3,
        health=MemoryHealth.DEGRADED,
        keys=("r1",),
    )
    assert restore_state(codec.encode(state), _ROLLING) == state
    plain = MemoryState(strategy=MemoryStrategy.TRUNCATION, turns=(Turn(user_message="u", assistant_response="a"),))
    assert codec.decode(codec.encode(plain)) == {
        "strategy": "truncation",
        "turns": [{"user_message": "u", "assistant_response": "a"}],
    }
    assert make_patch(state).summary == ""


_LEGAL = {
    ("healthy", "healthy"),
    ("healthy", "retry"),
    ("retry", "retry"),
    ("retry", "healthy"),
    ("retry", "degraded"),
    ("degraded", "degraded"),
    ("degraded", "recovering"),
    ("recovering", "recovering"),
    ("recovering", "healthy"),
    ("recovering", "degraded"),
}


def test_every_edge_is_legal_or_refused() -> None:
    """The ten edges of the health machine pass, and the six others are refused by name; blank stands for healthy."""
    for prior, new in product(MemoryHealth, repeat=2):
        if (prior, new) in _LEGAL:
            check_health_change(prior, new)
            continue
        with pytest.raises(MemoryHealthError, match=f"from {prior} to {new}"):
            check_health_change(prior, new)
    check_health_change("", "retry")
