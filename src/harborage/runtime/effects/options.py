"""How a runtime is set: one frozen value instead of many parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.callables import require_async
from harborage.errors import InvalidOptionError, at_least, one_of
from harborage.planner.config import DEFAULT_SKILLS_CONTEXT_MAX
from harborage.runtime.loop.controls import Scope
from harborage.runtime.loop.limits import Limits
from harborage.sessions import SessionPolicy
from harborage.tasks import DEFAULT_MAX_CHILDREN, DEFAULT_MAX_TREE

if TYPE_CHECKING:
    from harborage.planner import OperatorPlannerConfig

_MONTH = timedelta(days=30)
_NONE: Final = timedelta()
_PLAIN: Final = (str, bytes, int, float)
_LEAST: Final = {
    "max_steps": 1,
    "heavy_threshold": 0,
    "max_skills": 0,
    "max_spawn_depth": 0,
    "max_children": 1,
    "max_tree": 1,
    "max_running": 1,
    "token_budget": 0,
    "keep_finished": 0,
    "max_unread_controls": 1,
}
_MAY_BE_ZERO: Final = {"linger", "provider_patience"}


class RuntimeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and habits of a runtime; every number has the meaning that its name says.

    `max_steps`: planner steps a run may take; it fails with more. `limits`: what a run and all that it starts may take
    together, unless `start` says otherwise; a run that reaches one finishes with `constraints_conflict`, or with
    `deadline_exceeded` when it is its time. `heavy_threshold`: bytes of JSON from which a tool result goes to the
    artifact store. `max_skills`: how many skills a run's planner is shown, of those that its context providers and its
    caller give; the first ones count, and a warning says how many were left out. `max_spawn_depth`: how deep tasks may
    spawn tasks; `max_children` and `max_tree`: how many one run may spawn in its life, and how many may be spawned
    below the run that a person started; `max_running`: how many runs of a tenant may be under way when a run spawns
    another. A spawn beyond a limit is refused, and its planner told which. `granted_scopes`: what the runs of this
    runtime may use. `pause_ttl` and `approval_ttl`: how long a pause, or a call that waits for approval, may stay
    unanswered; then a pause ends its run and a call is refused. `token_budget`: the estimated size of a history, in
    tokens, above which it is summarised; 0 switches that off, None leaves it to the model's window. With 0, or where
    that window is unknown, no model is asked for summaries: a history that the model finds too long is shortened by
    arithmetic. `built_in`: the built-in tools that runs may use, by name. `is_parallel_atomic`: one invalid branch
    keeps all branches from running. `keep_finished`: ended runs that stay readable in memory. `max_unread_controls`:
    how many controls may wait for a run that takes none; more are refused, except for a CANCEL. `linger`: how long a
    run that only waits stays in memory, where there is a storage to fold it from again. The `…_driver` names say which
    part is opened where none is given; a blank `artifact_driver` means where the storage is: in a folder beside its
    file, or in the database itself, and in memory without one. `artifact_root` is the folder of the `fs` artifact
    driver. `records_model`: a run's record holds what its model was asked and answered, so that it can be replayed
    offline; without, only its loop can. `session_policy`: how long a session may be left alone, or live at all, before
    it is closed. `provider_patience`: how long a run waits in all for a provider that is down, asking it again at
    growing intervals, before it fails; 0 lets it fail at once, None means a day over a storage and two minutes without.
    `upkeep`: how often what waits is looked over.

    Raises:
        InvalidOptionError: a value is of another type than the field, or smaller than makes sense.
    """

    max_steps: int = 64
    limits: Limits = Limits()
    heavy_threshold: int = 32 * 1024
    max_skills: int = DEFAULT_SKILLS_CONTEXT_MAX
    max_spawn_depth: int = 4
    max_children: int = DEFAULT_MAX_CHILDREN
    max_tree: int = DEFAULT_MAX_TREE
    max_running: int = 2048
    granted_scopes: frozenset[str] = frozenset()
    pause_ttl: timedelta = _MONTH
    approval_ttl: timedelta = _MONTH
    token_budget: int | None = None
    built_in: tuple[str, ...] = ()
    is_parallel_atomic: bool = False
    keep_finished: int = 10_000
    max_unread_controls: int = 10_000
    linger: timedelta = timedelta(seconds=1)
    artifact_driver: str = ""
    artifact_root: str = ""
    event_driver: str = "inmem"
    redactor: str = "patterns"
    records_model: bool = True
    session_policy: SessionPolicy = SessionPolicy()
    provider_patience: timedelta | None = None
    upkeep: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        # Everything is judged by the type that the field declares, so that a new field cannot be forgotten.
        for field in msgspec.structs.fields(self):
            given = getattr(self, field.name)
            wanted = _complaint(field.name, given)
            try:
                # What stands for a value in JSON, such as seconds for a duration, is not one.
                if not isinstance(given, type(msgspec.convert(given, field.type, strict=True))):
                    wanted = f"a value of type {getattr(field.type, '__name__', field.type)}"
            except msgspec.ValidationError as error:
                wanted = f"another value: {error}"
            if wanted:
                raise InvalidOptionError(field.name, given, wanted)


def _complaint(name: str, given: Any) -> str:
    """What the option may be, if it is not that; "" if it is."""
    if isinstance(given, timedelta):
        if name in _MAY_BE_ZERO:
            return "a duration that is not negative" if given < _NONE else ""
        return "a duration above 0" if given <= _NONE else ""
    if name in _LEAST and isinstance(given, int) and given < _LEAST[name]:
        return f"a whole number of at least {_LEAST[name]}"
    return ""


def with_operator(options: RuntimeOptions, section: OperatorPlannerConfig) -> RuntimeOptions:
    """The options with what an operator's planner section says about the runtime; what it leaves at 0 stays."""
    return msgspec.structs.replace(
        options,
        max_skills=section.skills_context_max or options.max_skills,
        max_spawn_depth=section.absolute_max_spawn_depth or options.max_spawn_depth,
        token_budget=section.token_budget or options.token_budget,
    )


_POLICY: Final = "a policy, such as AlwaysDeny() or BySideEffect(['write', 'external'])"
_OBJECTS: Final = {
    "bus": "an open EventBus (RuntimeOptions.event_driver takes a name)",
    "artifacts": "an open ArtifactStore (RuntimeOptions.artifact_driver takes a name)",
    "handles": "a HandleRegistry",
    "clock": "a clock with timers, such as SYSTEM_CLOCK",
    "logger": "a logging.Logger",
}


def check_parts(
    options: object, tools: object, *, agent: object, summariser: object, approvals: object, storage: object
) -> None:
    """Accept what a runtime is made of, as far as a mistake would show only later, or as an error of Python's own.

    Raises:
        InvalidOptionError: the options are no `RuntimeOptions`, the tools a single one, the agent no name, the storage
            none, or a policy for approvals no callable.
        CallbackKindError: the summariser is not async.
    """
    if not isinstance(options, RuntimeOptions):
        raise InvalidOptionError("options", options, "RuntimeOptions(…)")
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidOptionError("tools", tools, "several tools, such as [tool]")
    if not isinstance(agent, str):
        raise InvalidOptionError("agent", agent, "a name")
    if summariser is not None:
        require_async(getattr(summariser, "summarise", summariser), "summariser.summarise")
    policies: Mapping[str, object] = approvals if isinstance(approvals, Mapping) else {"": approvals}
    for name, policy in policies.items():
        if policy is not None and not callable(policy):
            raise InvalidOptionError(f"approvals[{name!r}]" if name else "approvals", policy, _POLICY)
    if storage is not None and isinstance(storage, _PLAIN) and not isinstance(storage, str):
        raise InvalidOptionError("storage", storage, "a text such as 'sqlite:runs.db', or an open Storage")


def check_objects(**parts: object) -> None:
    """Accept parts of a runtime that are given as they are, and have no name.

    Raises:
        InvalidOptionError: one is a text or a number.
    """
    for name, part in parts.items():
        if isinstance(part, _PLAIN):
            raise InvalidOptionError(name, part, _OBJECTS[name])


def check_start(goal: object, deadline: object, *, priority: object, max_steps: object, scope: object) -> None:
    """Accept what a run can be started with.

    Raises:
        InvalidOptionError: the goal is no text, the priority no whole number, or as for `check_wishes`.
        ValueError: the goal is empty, or the deadline has no time zone.
    """
    if not isinstance(goal, str):
        raise InvalidOptionError("start: goal", goal, "a text")
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise InvalidOptionError("start: priority", priority, "a whole number")
    if not goal:
        raise ValueError("start needs a goal")
    check_wishes("start", deadline, max_steps=max_steps, scope=scope)


def check_wishes(method: str, deadline: object, *, max_steps: object, scope: object) -> None:
    """Accept what `method` may be asked for besides the goal.

    Raises:
        InvalidOptionError: the deadline is no time, the steps no number of them, or there is no such scope.
        ValueError: the deadline has no time zone.
    """
    if deadline is not None and not isinstance(deadline, datetime):
        raise InvalidOptionError(f"{method}: deadline", deadline, "a datetime with a time zone, or None")
    at_least(0, max_steps, f"{method}: max_steps", is_whole=True)
    one_of(Scope, scope, f"{method}: scope")
    if deadline is not None and deadline.tzinfo is None:
        raise ValueError(f"{method}: the deadline needs a time zone")
