"""What was worked out from a history is found again beside it, and nowhere else."""

from __future__ import annotations

import copy

from harborage.planner import CallTool, Step, Trajectory
from harborage.planner.react.memo import StepCursor, kept_with


def steps(count: int) -> list[Step]:
    """That many steps."""
    return [Step(action=CallTool(f"t{index}")) for index in range(count)]


def test_an_object_is_made_once_for_each_trajectory():
    """The same name beside the same trajectory is the same object; other trajectories have their own."""
    first, second = Trajectory(), Trajectory()
    kept = kept_with(first, "a", list)
    assert kept_with(first, "a", list) is kept
    assert kept_with(first, "b", list) is not kept
    assert kept_with(second, "a", list) is not kept


def test_without_a_trajectory_nothing_is_kept():
    """Every call makes its own."""
    assert kept_with(None, "a", list) is not kept_with(None, "a", list)


def test_it_is_no_part_of_the_history():
    """What is kept is neither compared nor serialised."""
    plain, used = Trajectory(query="q"), Trajectory(query="q")
    before = used.serialize()
    kept_with(used, "a", object)
    assert used == plain
    assert used.serialize() == before
    assert Trajectory.deserialize(used.serialize()) == plain


def read(cursor: StepCursor, of: list[Step], first: int = 0) -> None:
    """Read to the end."""
    if not cursor.follows(of, first):
        cursor.restart(of, first)
    for _ in range(cursor.count, len(of)):
        cursor.advance()


def test_a_cursor_follows_a_list_that_grows():
    """What was appended is all that is left to read."""
    cursor, growing = StepCursor(), steps(2)
    assert not cursor.follows(growing)
    read(cursor, growing)
    growing += steps(1)
    assert cursor.follows(growing)
    assert cursor.count == 2


def test_a_cursor_notices_another_list():
    """A copy, a list that lost steps or got others, and another beginning are read anew."""
    cursor, growing = StepCursor(), steps(3)
    read(cursor, growing)
    assert not cursor.follows(copy.copy(growing))
    assert not cursor.follows(growing, 1)
    removed = growing.pop()
    assert not cursor.follows(growing)
    growing += steps(1)
    assert not cursor.follows(growing)
    growing[-1] = removed
    assert cursor.follows(growing)


def test_a_cursor_begins_in_the_middle():
    """Reading from a later step on leaves out those before it; beyond the end there is nothing to read yet."""
    cursor, growing = StepCursor(), steps(3)
    read(cursor, growing, 2)
    assert (cursor.first, cursor.count) == (2, 3)
    assert cursor.follows(growing, 2)
    cursor.restart(growing, 9)
    assert (cursor.first, cursor.count) == (3, 3)
    assert cursor.follows(growing, 3)
