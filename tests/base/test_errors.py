"""What was looked for and is not there: one family of errors, which a caller can catch as one."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

import harborage
from harborage.artifacts import ArtifactNotFoundError
from harborage.drivers import DriverUnknownError
from harborage.errors import HarborageError, NotFoundError
from harborage.identity import Quadruple
from harborage.llm import UnknownDriverError
from harborage.planner import ToolContextLostError
from harborage.runtime.approval import ApprovalNotFoundError
from harborage.runtime.durable.engine import RunEndedError, RunNotFoundError
from harborage.runtime.pauses import PauseNotFoundError
from harborage.runtime.steering import InboxNotFoundError
from harborage.sessions import SessionNotFoundError
from harborage.state import RecordNotFoundError
from harborage.store.errors import RowNotFoundError
from harborage.tasks import GroupNotFoundError, PatchNotFoundError, TaskNotFoundError
from harborage.tools import HandleUnknownError, ToolNotFoundError
from tests.kit.tables import each_row

MISSING: Mapping[str, tuple[NotFoundError, str]] = {
    "approval": (ApprovalNotFoundError("x-1"), "approval"),
    "artifact": (ArtifactNotFoundError("x-1"), "artifact"),
    "driver": (DriverUnknownError("planner", "x-1", ("react",)), "planner driver"),
    "group": (GroupNotFoundError("x-1"), "task group"),
    "handle": (HandleUnknownError("x-1"), "handle"),
    "inbox": (InboxNotFoundError(run=Quadruple("t", "u", "s", "x-1")), "inbox"),
    "live handle": (ToolContextLostError("x-1"), "handle"),
    "patch": (PatchNotFoundError("x-1"), "patch"),
    "model driver": (UnknownDriverError("x-1", ("mock",)), "llm driver"),
    "pause": (PauseNotFoundError("x-1"), "pause"),
    "record": (RecordNotFoundError("x-1"), "state record"),
    "row": (RowNotFoundError("x-1", what="pause"), "pause"),
    "run": (RunNotFoundError("x-1"), "run"),
    "run that has ended": (RunEndedError("x-1"), "run"),
    "session": (SessionNotFoundError("x-1"), "session"),
    "task": (TaskNotFoundError("x-1"), "task"),
    "tool": (ToolNotFoundError("x-1"), "tool"),
}
OF_A_PROVIDER = {"ModelNotFoundError"}  # an answer of another service, not a lookup of this package


@each_row("name", sorted(MISSING))
def test_an_error_says_what_was_looked_for(name: str) -> None:
    """The kind and the id are attributes of the error, and its text names both and what to do."""
    error, what = MISSING[name]
    assert isinstance(error, HarborageError)
    assert (error.what, error.id) == (what, "x-1")
    text = str(error)
    assert "x-1" in text
    assert what.split()[-1] in text
    assert any(mark in text for mark in ("; ", ": "))


def test_a_bare_error_says_what_its_class_is_for() -> None:
    """Without an id the text is the first line of the class."""
    assert str(NotFoundError()).startswith("Nothing here has the id that was asked for")
    assert str(NotFoundError("7")) == "no object '7' here; check the id, and whose it is"
    assert str(NotFoundError("7", what="lamp", message="the lamp is out")) == "the lamp is out"


def classes_that_end_with(ending: str) -> list[tuple[str, str]]:
    """Module and name of each class of the package with such a name."""
    root = Path(next(iter(harborage.__path__)))
    return [
        (".".join(("harborage", *path.relative_to(root).with_suffix("").parts)), node.name)
        for path in sorted(root.rglob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith(ending)
    ]


def test_every_class_of_that_name_is_of_the_family() -> None:
    """A caller who catches `NotFoundError` misses none."""
    found = [(module, name) for module, name in classes_that_end_with("NotFoundError") if name not in OF_A_PROVIDER]
    assert len(found) > 10
    for module, name in found:
        assert issubclass(getattr(import_module(module), name), NotFoundError), f"{module}.{name}"


def test_all_are_caught_as_one() -> None:
    """One except clause is enough for a caller who asks several packages."""
    for error, _ in MISSING.values():
        with pytest.raises(NotFoundError):
            raise error


def test_a_driver_that_is_not_known_is_one_error_for_every_seam() -> None:
    """A caller who opens models, stores and planners by name catches one class, which lists what there is."""
    error = UnknownDriverError("x-1", ("mock", "openai"))
    assert isinstance(error, DriverUnknownError)
    assert (error.name, error.known) == ("x-1", ("mock", "openai"))
    assert str(error) == "llm: unknown driver x-1 (registered: mock,openai)"
