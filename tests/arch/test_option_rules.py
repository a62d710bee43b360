"""Options of the package: a word that there is not is refused where it is written, and none is without an effect."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest

import harborage
from harborage.errors import HarborageError

Modules = Mapping[Path, ast.Module]

FOREIGN = ("adapters", "google", "postgres", "testing", "conformance")
"""Packages that need other libraries, or that only tests import."""

READ_LATER = {
    # Decisions: the runtime refuses them at the step, and the planner is told.
    "Finish", "JoinSpec", "RequestPause",
    # The messages of a request and the tasks of a registry are refused by the call that gets them.
    "ChatMessage", "SpawnRequest", "SpawnToolRequest",
}  # fmt: skip
MADE = {
    # What the runtime, a store or a registry makes and hands out; nobody writes one.
    "CallMade", "Concluded", "ControlTaken", "Difference", "EffectivePolicy", "Finding", "GroupCompletion",
    "MemberOutcome", "MemoryPatch", "MemorySnapshot", "Pause", "PauseTaken", "RunStatus", "Source", "Task", "TaskGroup",
    "TaskPage", "TaskPatch", "TaskRow", "TaskSummary",
    # Rows and changes of the store of record, whose drivers are given them by the runtime alone.
    "Change", "ChangeGroup", "GroupQuery", "GroupRow", "Move", "NewRun", "PauseQuery", "PauseRow", "RunCounts",
    "RunQuery", "RunRow", "SessionListQuery", "SettlePause",
}  # fmt: skip
WIRE = ("harborage.events.", "harborage.protocol", "harborage.server", "harborage.config", "harborage.client")
"""Values whose fields are the wire's; a configuration says itself which of its keys have no effect."""
SHOWN = {
    # Part of a larger value that is encoded whole: for a model, a person, a caller or a subscriber.
    "ArtifactStub.hash", "BackgroundMemberOutcome.result_ref", "ControlSignals.pause_requested",
    "ControlSignals.redirect_goal", "RunResult.repair", "SkillResult.score", "StatusStrip.completed",
    "StatusStrip.paused", "StatusStrip.running", "StreamChunk.final", "Sweep.reaped", "TaskCost.per_step",
    "TaskPage.status_strip", "Tool.cost_hint", "Tool.latency_hint", "Tool.safety_notes", "Trajectory.sources",
    "Turn.artifacts_shown", "TurnDigest.artifact_refs", "TurnDigest.observations_summary",
    "TurnDigest.reasoning_summary", "TurnDigest.tools_invoked",
    # Read by a name that is made at run time.
    "CorrectionsProfile.response_shape",
}  # fmt: skip


def packages() -> Iterator[Any]:
    """The packages that list names."""
    for found in pkgutil.walk_packages(harborage.__path__, "harborage."):
        if found.ispkg and not any(one in found.name for one in FOREIGN):
            yield importlib.import_module(found.name)


def public_values() -> set[type[msgspec.Struct]]:
    """The values that packages list."""
    listed = (
        getattr(package, name) for package in (harborage, *packages()) for name in getattr(package, "__all__", ())
    )
    return {one for one in listed if isinstance(one, type) and issubclass(one, msgspec.Struct)}


def words_in(hint: Any) -> Iterator[type[StrEnum]]:
    """The enums that a type allows."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        yield hint
    for part in typing.get_args(hint):
        yield from words_in(part)


def fields_of(value: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The fields with their types; without those of a value whose types are only known to type checkers."""
    try:
        return {field.name: field.type for field in msgspec.structs.fields(value)}
    except NameError:
        return {}


def test_a_word_that_there_is_not_is_refused_where_it_is_written() -> None:
    """In each public value that a caller writes. A new one is refused here, or says above who makes or reads it."""
    tried, accepted, others = 0, [], set[str]()
    for value in public_values():
        worded = [name for name, hint in fields_of(value).items() if any(words_in(hint))]
        if worded and value.__name__ in READ_LATER | MADE:
            others.add(value.__name__)
            continue
        needed = {field.name: "x" for field in msgspec.structs.fields(value) if field.required} if worded else {}
        for name in worded:
            tried += 1
            with suppress(HarborageError):
                value(**{**needed, name: "misspelt"})
                accepted.append(f"{value.__module__}.{value.__name__}.{name}")
    assert not accepted, "\n".join(sorted(accepted))
    assert tried >= 12
    assert others == READ_LATER | MADE, "these have no word any more"


def read_names(modules: Modules) -> set[str]:
    """The attributes that the package reads."""
    read: set[str] = set()
    for tree in modules.values():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    read.add(name)
                case ast.MatchClass(kwd_attrs=names):
                    read.update(names)
                case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                    read.add(name)
    return read


def test_no_option_is_without_an_effect(modules: Modules) -> None:
    """Each field of a public value that callers may leave out is read somewhere, or is listed above as only shown."""
    read, unread = read_names(modules), set[str]()
    for value in public_values():
        if not value.__module__.startswith(WIRE) and fields_of(value):
            options = (field.name for field in msgspec.structs.fields(value) if not field.required)
            unread |= {f"{value.__name__}.{name}" for name in options if name not in read}
    assert unread - SHOWN == set(), "no code reads it"
    assert SHOWN - unread == set(), "it is read now: take it off the list"


@pytest.mark.parametrize(("source", "name"), [("x.limit", "limit"), ("getattr(x, 'limit')", "limit")])
def test_a_read_is_found(source: str, name: str) -> None:
    """As an attribute and by its name; an assignment is none."""
    assert read_names({Path("x.py"): ast.parse(source)}) == {name}
    assert read_names({Path("x.py"): ast.parse(f"self.{name} = 1")}) == set()
