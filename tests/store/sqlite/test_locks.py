"""A worker's lock says that its process lives, and goes with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harborage.store.errors import WorkerKnownError
from harborage.store.sqlite.locks import WorkerLocks


@pytest.fixture
def locks(path: Path) -> WorkerLocks:
    """The locks of one process."""
    return WorkerLocks(path)


@pytest.fixture
def others(path: Path) -> WorkerLocks:
    """The locks of what counts as another process: the kernel tells handles apart, not processes."""
    return WorkerLocks(path)


def files(path: Path) -> list[str]:
    """What lies in the folder of locks."""
    return sorted(os.listdir(path.with_name(f"{path.name}-workers")))


def test_a_lock_is_seen_by_others_until_it_is_dropped(locks: WorkerLocks, others: WorkerLocks, path: Path) -> None:
    """Taking makes the file, dropping removes it; doing either twice is fine."""
    assert not others.is_held("a")
    locks.take("a")
    locks.take("a")
    assert locks.is_held("a")
    assert others.is_held("a")
    assert files(path) == ["a.lock"]
    locks.drop("a")
    locks.drop("a")
    assert not others.is_held("a")
    assert files(path) == []


def test_any_name_is_a_name(locks: WorkerLocks, others: WorkerLocks, path: Path) -> None:
    """A worker's name cannot lead out of the folder."""
    names = ["../../x", "a/b", "é", "."]
    for name in names:
        locks.take(name)
    assert all(others.is_held(name) for name in names)
    assert len(files(path)) == len(names)
    locks.drop_all()
    assert not path.with_name(f"{path.name}-workers").exists()


def test_one_name_is_one_process(locks: WorkerLocks, others: WorkerLocks) -> None:
    """A name that another process lives under is refused, and free once that one has ended."""
    locks.take("a")
    with pytest.raises(WorkerKnownError, match="another process is the worker a"):
        others.take("a")
    locks.drop("a")
    others.take("a")


def test_the_dead_are_cleared_away(locks: WorkerLocks, others: WorkerLocks, path: Path) -> None:
    """Files of workers that are gone are removed, those of the living stay."""
    locks.take("alive")
    (path.with_name(f"{path.name}-workers") / "dead.lock").touch()
    assert not others.is_held("dead")
    others.clean_up()
    assert files(path) == ["alive.lock"]
    assert others.is_held("alive")


def test_a_folder_that_vanishes_is_made_again(locks: WorkerLocks, others: WorkerLocks) -> None:
    """The last worker to leave removes the folder; the next worker makes it anew."""
    locks.take("a")
    locks.drop_all()
    others.drop_all()
    others.take("b")
    assert locks.is_held("b")


def test_a_file_that_was_cleared_away_under_a_newcomer_is_made_again(
    locks: WorkerLocks, others: WorkerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is taken for a dead worker's between its making and its locking is made anew, and that one locked."""
    made = os.open
    rivals = [others]

    def open_slowly(file: Path, flags: int, mode: int = 0o777) -> int:
        handle = made(file, flags, mode)
        if rivals and flags & os.O_CREAT:
            rivals.pop().clean_up()
        return handle

    monkeypatch.setattr(os, "open", open_slowly)
    locks.take("a")
    monkeypatch.undo()
    assert others.is_held("a")


def test_what_cannot_be_asked_counts_as_alive(
    locks: WorkerLocks, others: WorkerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another user's file may not be opened, only the heartbeat can tell."""
    locks.take("a")

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert others.is_held("a")
