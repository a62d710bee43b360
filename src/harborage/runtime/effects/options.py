"""How a runtime is set: one frozen value instead of many parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.callables import require_async
from harborage.errors import InvalidOptionError, at_least, one_of
from harborage.planner.config import DEFAULT_SKILLS_CONTEXT_MAX, check_operator_config, registered_drivers
from harborage.runtime.loop.controls import Scope
from harborage.runtime.loop.limits import Limits
from harborage.sessions import SessionPolicy
from harborage.tasks import DEFAULT_MAX_CHILDREN, DEFAULT_MAX_TREE
from harborage.tasks.rules import check_priority
from harborage.tools.sources import ToolLimits

if TYPE_CHECKING:
    from harborage.planner import OperatorPlannerConfig

_MONTH = timedelta(days=30)
_NONE: Final = timedelta()
_MOST_TAGS: Final = 32
_MOST_CHARS: Final = 200
_PLAIN: Final = (str, bytes, int, float)
_LEAST: Final = {
    "max_steps": 1,
    "heavy_threshold": 1,
    "max_skills": 0,
    "max_spawn_depth": 1,
    "max_children": 1,
    "max_tree": 1,
    "max_running": 1,
    "token_budget": 0,
    "keep_finished": 0,
    "max_unread_controls": 1,
}
_MAY_BE_ZERO: Final = {"linger", "provider_patience"}


class RuntimeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and settings of a runtime.

    Limits of a run; `Runtime.start` may set other `max_steps` and `limits`.

    - `max_steps`: planner steps; a run that needs more fails.
    - `limits`: what a run and all tasks below it may use together. A run that reaches one finishes with
      `constraints_conflict`, or with `deadline_exceeded` if it is the time limit.
    - `max_spawn_depth`: how deep tasks may spawn tasks; `max_children`: tasks that one run may spawn; `max_tree`: tasks
      below the run that a caller started; `max_running`: live runs of a tenant at which none may spawn another. A spawn
      beyond a limit is refused, and the planner gets the limit's name.
    - `pause_ttl`, `approval_ttl`: how long a pause, or a call that waits for approval, may stay unanswered; then the
      pause ends its run, and the call is refused.
    - `planner_timeout`: how long a planner may take for one decision, the calls of its model included; then the run
      fails.
    - `provider_patience`: how long a run waits in all for a provider that is down, with growing intervals between
      retries. 0 fails it at once; None is a day over a storage and two minutes without.
    - `granted_scopes`: the scopes that the runs of this runtime hold.

    What a planner sees.

    - `max_skills`: skills of context providers and of the caller; the first ones count, and a warning has the number
      of the others.
    - `token_budget`: the estimated tokens of a history above which it is summarised; 0 switches summaries off, None
      takes the model's window. With 0 or an unknown window, a history that the model finds too long is shortened
      without a model.
    - `heavy_threshold`: bytes of JSON from which a tool result goes to the artifact store; with 1 each one does.
    - `built_in`: the names of the built-in tools that runs may use.
    - `tool_limits`: how much tools of documents, servers and peers may take. `allow_hosts`: hosts of this machine or of
      a private network, as `host:port`, that addresses from outside may name.
    - `is_parallel_atomic`: one invalid branch keeps all branches of a parallel call from running.

    What is stored, and for how long.

    - `keep_finished`: ended runs that stay readable in memory.
    - `max_unread_controls`: controls that may wait for a run that consumes none; more are refused, except a CANCEL.
    - `linger`: how long a run that only waits stays in memory, if there is a storage to rebuild it from.
    - `…_driver`: the name of a part that is opened if none is passed in. A blank `artifact_driver` takes the storage's
      place: a folder beside its file, the database itself, or memory. `artifact_root` is the folder of the `fs` driver.
    - `records_model`: a run's record holds the requests and answers of its model, so that it can be replayed offline.
    - `session_policy`: how long a session may be idle, or open at all, before it is closed.
    - `upkeep`: the time between two searches for overdue and orphaned work.

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
    tool_limits: ToolLimits = ToolLimits()
    allow_hosts: tuple[str, ...] = ()
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
    planner_timeout: timedelta = timedelta(hours=1)
    provider_patience: timedelta | None = None
    upkeep: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        # Everything is judged by the type that the field declares, so that a new field cannot be forgotten.
        for field in msgspec.structs.fields(self):
            given = getattr(self, field.name)
            wanted = _expectation(field.name, given)
            try:
                # The JSON form of a value, such as seconds for a duration, is refused.
                if not isinstance(given, type(msgspec.convert(given, field.type, strict=True))):
                    wanted = f"a value of type {getattr(field.type, '__name__', field.type)}"
            except msgspec.ValidationError as error:
                wanted = f"another value: {error}"
            if wanted:
                raise InvalidOptionError(field.name, given, wanted)


def _expectation(name: str, given: Any) -> str:
    """What the option may be, if it is not that; "" if it is."""
    if isinstance(given, timedelta):
        if name in _MAY_BE_ZERO:
            return "a duration that is not negative" if given < _NONE else ""
        return "a duration above 0" if given <= _NONE else ""
    if name in _LEAST and isinstance(given, int) and given < _LEAST[name]:
        return f"a whole number of at least {_LEAST[name]}"
    return ""


def with_operator(options: RuntimeOptions, section: OperatorPlannerConfig) -> RuntimeOptions:
    """Return the options with the values of an operator's planner section; a value of 0 there changes nothing.

    Raises:
        InvalidConfigError: the section holds a value that means nothing.
    """
    check_operator_config(section, drivers=registered_drivers())
    return msgspec.structs.replace(
        options,
        max_skills=section.skills_context_max or options.max_skills,
        max_spawn_depth=section.absolute_max_spawn_depth or options.max_spawn_depth,
        token_budget=section.token_budget or options.token_budget,
    )


_POLICY: Final = "a policy, such as AlwaysDeny() or BySideEffect(['write', 'external'])"
_SUMMARISER: Final = "an object with the method async def summarise(run, trajectory)"
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
            none, the summariser has no method `summarise`, or a policy for approvals is no callable.
        CallbackKindError: the method `summarise` is not async.
    """
    if not isinstance(options, RuntimeOptions):
        raise InvalidOptionError("options", options, "RuntimeOptions(…)")
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidOptionError("tools", tools, "several tools, such as [tool]")
    if not isinstance(agent, str):
        raise InvalidOptionError("agent", agent, "a name")
    if summariser is not None:
        if not hasattr(summariser, "summarise"):
            raise InvalidOptionError("summariser", summariser, _SUMMARISER)
        require_async(summariser.summarise, "summariser.summarise")
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


def check_start(
    goal: object, deadline: object, *, priority: object, max_steps: object, scope: object, needs_goal: bool = True
) -> None:
    """Accept what a run can be started with; unless it `needs_goal`, the goal may be empty.

    Raises:
        InvalidOptionError: the goal is no text, the priority no whole number from -1000 to 1000, or as for
            `check_start_options`.
        ValueError: the goal is empty, or the deadline has no time zone.
    """
    if not isinstance(goal, str):
        raise InvalidOptionError("start: goal", goal, "a text")
    check_priority(priority, "start: priority")
    if not goal and needs_goal:
        raise ValueError("start needs a goal")
    check_start_options("start", deadline, max_steps=max_steps, scope=scope)


def checked_tags(tags: Any, option: str) -> Mapping[str, str]:
    """Accept what a run is marked with.

    Raises:
        InvalidOptionError: it is no mapping of names to texts, a name is empty, or they are too many or too long.
    """
    example = 'names and texts, such as {"shop": "porto"}'
    if not isinstance(tags, Mapping):
        raise InvalidOptionError(option, tags, example)
    if len(tags) > _MOST_TAGS:
        raise InvalidOptionError(option, len(tags), f"up to {_MOST_TAGS} tags")
    for name, value in tags.items():
        if not isinstance(name, str) or not name or not isinstance(value, str):
            raise InvalidOptionError(option, {name: value}, example)
        if len(name) > _MOST_CHARS or len(value) > _MOST_CHARS or not (name + value).isprintable():
            raise InvalidOptionError(option, {name: value}, f"texts of up to {_MOST_CHARS} printable characters")
    return tags


def check_key(key: object) -> None:
    """Accept what makes a start repeatable.

    Raises:
        InvalidOptionError: it is no text, or too long.
    """
    if not isinstance(key, str) or len(key) > _MOST_CHARS or not key.isprintable():
        raise InvalidOptionError("key", key, f"a text of up to {_MOST_CHARS} printable characters")


def check_description(description: object) -> None:
    """Accept what a run is described by in lists.

    Raises:
        InvalidOptionError: it is no text.
    """
    if not isinstance(description, str):
        raise InvalidOptionError("start: description", description, "a text")


def check_start_options(method: str, deadline: object, *, max_steps: object, scope: object) -> None:
    """Accept the options of `method` besides the goal.

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
