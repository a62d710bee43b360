"""The root of the error tree, and the rule that a class's docstring is its default message.

Each room declares its own errors next to the code that raises them; this file holds what they share.

    HarborageError
    ├── MissingExtraError                 an optional dependency is not installed; names the extra
    ├── identity.IdentityError            who is asking is missing or incomplete
    │   ├── IdentityIncompleteError
    │   ├── IdentityMissingError
    │   └── IdentityRequiredError
    ├── codec.UnserializableError         a value cannot become JSON; names the path
    ├── drivers.DriverError               a name→factory table was used wrongly
    ├── events.EventError                 bus, filters, replay, redaction
    ├── artifacts.ArtifactError           content store
    ├── state.StateError                  record store
    ├── llm.LLMError                      the edge to language models; drawn in llm.errors
    ├── tools.ToolError                   catalog, policy, invocation
    ├── tasks.TaskError                   task registry and groups
    ├── planner.PlannerError              decisions, trajectory, compression, planners
    └── runtime: SteeringError · PauseError · ApprovalError · EngineError
"""

from __future__ import annotations

import inspect


class HarborageError(Exception):
    """Something in Harborage went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or first_sentence(type(self)))


class MissingExtraError(HarborageError):
    """An optional dependency is not installed. `extra` is the extra of this package that brings it."""

    def __init__(self, extra: str = "", what: str = "") -> None:
        self.extra = extra
        super().__init__(f"{what or extra} needs an optional part: pip install 'harborage[{extra}]'")


def first_sentence(cls: type) -> str:
    """The first line of a class's docstring: the message an error carries when it is given none."""
    return (inspect.getdoc(cls) or cls.__name__).splitlines()[0].rstrip(".")
