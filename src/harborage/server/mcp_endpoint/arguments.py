"""The tools, with the arguments that each takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from harborage.errors import HarborageError

MOST_WAIT_S: Final = 240.0
"""How long a call waits for a run at most, in seconds; clients give up after 300."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_MOST_NAME_CHARS: Final = 100

RunId = Annotated[str, Meta(min_length=1, description="The id of the run.")]
Wait = Annotated[float, Meta(ge=0, le=MOST_WAIT_S, description="How many seconds to wait for its end or a question.")]


class ArgumentsError(HarborageError):
    """The arguments of a tool do not fit; the text says which."""


class Steering(StrEnum):
    """What can be done to a run that goes on."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    REDIRECT = "redirect"
    MESSAGE = "message"


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a tool."""


class RunAgent(_Arguments, frozen=True, kw_only=True):
    """Run the agent towards a goal, and wait for what it gives. It may ask for an approval before."""

    goal: Annotated[str, Meta(min_length=1, description="What the agent shall do.")]
    key: Annotated[str, Meta(description="The same key starts no second run.")] = ""
    wait_seconds: Wait = MOST_WAIT_S


class StartRun(_Arguments, frozen=True, kw_only=True):
    """Start a run of an agent and return its id at once; run_status waits for it."""

    agent: Annotated[str, Meta(description="The name of the agent; the first one by default.")] = ""
    goal: Annotated[str, Meta(min_length=1, description="What the agent shall do.")]
    key: Annotated[str, Meta(description="The same key starts no second run.")] = ""


class StatusOfRun(_Arguments, frozen=True, kw_only=True):
    """Return how far a run is: its status, its output, and what it asks."""

    run_id: RunId
    wait_seconds: Wait = 0


class ListRuns(_Arguments, frozen=True, kw_only=True):
    """List the newest runs of this session."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SteerRun(_Arguments, frozen=True, kw_only=True):
    """Pause, resume, cancel or redirect a run that goes on, or send it a message."""

    run_id: RunId
    action: Steering
    text: Annotated[str, Meta(description="The new goal of redirect, or the message.")] = ""


class AnswerRun(_Arguments, frozen=True, kw_only=True):
    """Answer what a run asks: approve or reject a call, or give the value that it asks for.

    Ask the person before you approve anything.
    """

    run_id: RunId
    token: Annotated[str, Meta(description="The question; by default the only open one.")] = ""
    approved: Annotated[bool | None, Meta(description="For an approval: whether the call may be made.")] = None
    reason: str = ""
    args: Annotated[dict[str, Any] | None, Meta(description="Other arguments for the approved call.")] = None
    value: Annotated[Any, Meta(description="For any other question: the answer.")] = None
    wait_seconds: Wait = MOST_WAIT_S


Arguments = RunAgent | StartRun | StatusOfRun | ListRuns | SteerRun | AnswerRun

FIXED: Final[Mapping[str, type[Arguments]]] = {
    "start_run": StartRun,
    "run_status": StatusOfRun,
    "list_runs": ListRuns,
    "steer_run": SteerRun,
    "answer_run": AnswerRun,
}
"""The tools that every server has."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: its name, what it takes, and the agent that it runs."""

    name: str
    takes: type[Arguments]
    agent: str = ""
    description: str = ""

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing."""
        return self.takes in (StatusOfRun, ListRuns)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        _, parts = msgspec.json.schema_components([self.takes], ref_template="#/$defs/{name}")
        schema = dict(parts.pop(self.takes.__name__))
        schema.pop("title", None)
        schema.pop("description", None)
        return {**schema, "$defs": parts} if parts else schema

    def read(self, arguments: Mapping[str, Any] | None) -> Arguments:
        """Return the arguments of a call.

        Raises:
            ArgumentsError: they do not fit.
        """
        try:
            return msgspec.convert(dict(arguments or {}), self.takes)
        except msgspec.ValidationError as error:
            raise ArgumentsError(f"{self.name}: {error}") from error


def tools_of(agents: Iterable[tuple[str, str]]) -> dict[str, ToolSpec]:
    """Return the tools over agents, each given by its name and description, by their names."""
    found: dict[str, ToolSpec] = {}
    for agent, description in agents:
        name = f"run_{_NOT_IN_NAMES.sub('_', agent)[:_MOST_NAME_CHARS]}"
        while name in found or name in FIXED:
            name += "_agent"
        text = f"Run the agent {agent} towards a goal, and wait for what it gives. {description}".strip()
        found[name] = ToolSpec(name=name, takes=RunAgent, agent=agent, description=text)
    for name, takes in FIXED.items():
        found[name] = ToolSpec(name=name, takes=takes, description=" ".join((takes.__doc__ or "").split()))
    return found
