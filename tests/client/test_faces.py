"""A remote runtime and its runs have the face of local ones: the same names, which take the same options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from harborage.client import RemoteRun, RemoteRuntime
from harborage.client.runtime import RemoteOptions
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.runtime.starting import RunOptions

OF_A_SERVICE = ("aclose", "get", "pending", "run", "runs", "session", "start")
"""What code that starts and steers runs uses of a runtime; the rest is for the process in which it is."""

STAYS_HERE: Mapping[str, set[str]] = {
    "aclose": {"grace"},  # the runs are the server's
    "session": {"deps"},  # values of this process
    "control": {"by"},  # the server knows who sends it
    "fork": {"limits", "deadline"},  # those of the run hold
    "freeze": {"test", "root", "force"},  # the files come as an answer, and may be written into a folder
}


def parameters(owner: type[Any], name: str) -> set[str]:
    """The parameters of a method; none of an attribute."""
    found = inspect.getattr_static(owner, name)
    return set(inspect.signature(getattr(owner, name)).parameters) if inspect.isfunction(found) else set()


def public(owner: type[Any]) -> set[str]:
    """The names that are there for callers."""
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize("name", OF_A_SERVICE)
def test_a_remote_runtime_takes_what_a_local_one_takes(name: str) -> None:
    """Each method is there, with every parameter that can travel."""
    assert parameters(Runtime, name) - parameters(RemoteRuntime, name) == STAYS_HERE.get(name, set())


def test_a_start_takes_every_option_that_can_travel() -> None:
    """What stays here are values of this process, and what the agents of the server decide."""
    stays = set(RunOptions.__annotations__) - set(RemoteOptions.__annotations__)
    assert stays == {"context", "deadline", "deps", "max_steps", "remembers"}
    assert set(RemoteOptions.__annotations__) < set(RunOptions.__annotations__)


@pytest.mark.parametrize("name", sorted(public(Run)))
def test_a_remote_run_takes_what_a_local_one_takes(name: str) -> None:
    """Each name is there, with every parameter that can travel, and of the same kind."""
    assert name in public(RemoteRun)
    assert parameters(Run, name) - parameters(RemoteRun, name) == STAYS_HERE.get(name, set())
    ours, theirs = (inspect.getattr_static(owner, name) for owner in (Run, RemoteRun))
    assert isinstance(ours, property) is isinstance(theirs, property)
    assert inspect.iscoroutinefunction(ours) is inspect.iscoroutinefunction(theirs)
