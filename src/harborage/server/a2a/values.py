"""What a peer gets: tasks with their states, messages and artifacts, whatever the version of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

TEXT_MODE: Final = "text/plain"
JSON_MODE: Final = "application/json"
ANSWER: Final = "answer"
"""The artifact with the output of a run."""


class State(StrEnum):
    """Where a task is."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self in (State.COMPLETED, State.FAILED, State.CANCELED)


class Text(msgspec.Struct, frozen=True):
    """Words."""

    text: str


class Data(msgspec.Struct, frozen=True):
    """Any JSON value."""

    data: Any


class Blob(msgspec.Struct, frozen=True):
    """A file: a link to its bytes that ends by itself, or the bytes."""

    mime: str
    name: str
    url: str = ""
    data: bytes = b""


Part: TypeAlias = Text | Data | Blob


class Said(msgspec.Struct, frozen=True):
    """A message of the agent."""

    id: str
    parts: tuple[Part, ...]


class Status(msgspec.Struct, frozen=True):
    """Where a task is since when, and what the agent says of it."""

    state: State
    at: datetime
    said: Said | None = None


class Artifact(msgspec.Struct, frozen=True):
    """What a task gave."""

    id: str
    parts: tuple[Part, ...]
    name: str = ""


class Task(msgspec.Struct, frozen=True):
    """A task as it stands."""

    id: str
    context: str
    status: Status
    artifacts: tuple[Artifact, ...] = ()


class StatusChange(msgspec.Struct, frozen=True):
    """A task is somewhere else, or did something; `about` says more to those who know this server."""

    id: str
    context: str
    status: Status
    about: Mapping[str, Any] = {}

    @property
    def is_last(self) -> bool:
        """Whether nothing follows before the peer says something."""
        return self.status.state.is_final or self.status.state is State.INPUT_REQUIRED


class ArtifactPiece(msgspec.Struct, frozen=True):
    """A piece of an artifact, behind those before it or in their place."""

    id: str
    context: str
    artifact: Artifact
    is_behind: bool = False
    is_last: bool = False


Update: TypeAlias = Task | StatusChange | ArtifactPiece
