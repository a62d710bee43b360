"""The errors of tools. Messages name the tool and the place, never an argument's value.

    ToolError
    ├── ToolNotFoundError            no such tool, or none that this caller may see
    ├── ToolDuplicateNameError       a registration without a usable name
    ├── ToolInvalidError             a name, MIME pattern or policy that no catalog takes
    ├── ToolExampleInvalidError      an example that does not fit the tool's own schema
    ├── UnsupportedTypeError         a signature that has no JSON Schema (also a builtin TypeError)
    ├── ToolInvalidArgsError         arguments or a result that do not fit; names the path
    ├── ToolTimeoutError             an attempt ran past its deadline (also a builtin TimeoutError)
    ├── ToolUnansweredError          a call was sent to a peer, and no answer came
    ├── AddressRefusedError          a URL whose scheme, host or address is refused; it was not visited
    ├── AuthMissingError             the secret for a call is missing; it was not made
    ├── ToolChangedError             a tool has changed since its call was approved; it was not made
    ├── ToolCrashedError             the tool tried to end the process or the thread
    ├── ToolPolicyExhaustedError     every attempt failed; chained to the last failure
    └── ToolRejectedError            a person or a policy rejected the call

What code that calls tools and agents, or asks people, may catch: ToolFailedError (no result after all retries),
QuestionExpiredError (nobody answered in time), QuestionRejectedError (a person refused to answer).

An error of any package, or of a tool itself, may have an `error_class` (an `ErrorClass`) that decides about another
attempt, and `had_no_effect = True` to promise that the call changed nothing, so that repeating it is safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from harborage.errors import HarborageError, NotFoundError, error_reason, error_summary, error_text
from harborage.tools.enums import ErrorClass

if TYPE_CHECKING:
    from harborage.identity import Quadruple


class ToolError(HarborageError):
    """A tool could not be described, found or called.

    A tool raises it to answer the model: exactly its text goes to the model, and the call is not repeated.
    """

    error_class: ClassVar[ErrorClass | None] = None


class ToolNotFoundError(ToolError, NotFoundError):
    """No tool has this name, or none that the caller may see. `id` is the wanted name."""

    error_class = ErrorClass.PERMANENT
    what = "tool"
    fix = "list the catalog for the names you may use"


class HandleUnknownError(ToolError, NotFoundError):
    """A tool asked for a live object that its run's context does not name, or that is in another process."""

    error_class = ErrorClass.PERMANENT
    what = "handle"
    fix = "a context provider puts it into the run's context with handles={…}"


class ToolDuplicateNameError(ToolError):
    """A tool was registered without a name, without a body, or under a name that is taken. `name` is that name."""

    def __init__(self, name: str = "", message: str = "") -> None:
        self.name = name
        taken = f"a tool named {name!r} is registered already; use replace() to swap it"
        super().__init__(message or (taken if name else "a tool needs a name"))


class ToolInvalidError(ToolError):
    """No catalog takes a tool like this. `name` is the tool's, `field` the part of it that is wrong."""

    def __init__(self, name: str = "", field: str = "", reason: str = "") -> None:
        self.name = name
        self.field = field
        super().__init__(f"tool {name!r}: {reason}" if name else reason)


class ToolExampleInvalidError(ToolError):
    """An example uses arguments that the tool does not have. `unknown` lists them."""

    def __init__(self, name: str = "", unknown: tuple[str, ...] = ()) -> None:
        self.name = name
        self.unknown = unknown
        super().__init__(f"tool {name!r}: an example uses arguments that its schema lacks: {', '.join(unknown)}")


class UnsupportedTypeError(ToolError, TypeError):
    """A function's signature has no JSON Schema (also a builtin TypeError). `path` says where: `orders.on_done`."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


class ToolInvalidArgsError(ToolError):
    """Arguments or a result do not fit the schema. `path` says where, from `$`; a result's text begins `output:`."""

    error_class = ErrorClass.PERMANENT

    def __init__(self, reason: str = "", path: str = "$") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{reason} - at `{path}`" if reason else "")


def json_path(steps: Iterable[object]) -> str:
    """Return the path of keys and indexes to a place in JSON, such as `$.items[0].name`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


class ToolTimeoutError(ToolError, TimeoutError):
    """An attempt ran past its deadline. `timeout_ms` is the deadline."""

    error_class = ErrorClass.TIMEOUT

    def __init__(self, timeout_ms: float = 0) -> None:
        self.timeout_ms = timeout_ms
        super().__init__(f"the attempt ran past its deadline of {timeout_ms:g} ms")


class ToolUnansweredError(ToolError):
    """A call was sent to a peer and not answered: it was cut, or took too long. The peer may or may not have acted.

    A call that may be repeated is sent again; the outcome of any other is `unknown`.
    """

    def __init__(self, message: str = "", *, error_class: ErrorClass = ErrorClass.TRANSIENT) -> None:
        self.error_class = error_class  # type: ignore[misc] # of one failure, not of all
        super().__init__(message)


class AddressRefusedError(ToolError):
    """A URL is refused, and was not visited. `url` is the URL, or its host, without what could be a secret in it."""

    error_class = ErrorClass.PERMANENT
    had_no_effect = True

    def __init__(self, url: str = "", reason: str = "") -> None:
        self.url = url
        super().__init__(f"{url}: {reason}" if reason else "")


class AuthMissingError(ToolError):
    """The secret that a call needs is missing; the call was not made. `reference` leads to it, and holds no secret."""

    error_class = ErrorClass.PERMANENT
    had_no_effect = True

    def __init__(self, reference: str = "", why: str = "") -> None:
        self.reference = reference
        super().__init__(f"the secret {reference} is missing: {why}" if reference else "")


TOOL_CHANGED_CODE: Final = "tool_changed"
"""The code of the outcome of a call that was not made, for its tool has changed since a person approved it."""


class ToolChangedError(ToolError):
    """A tool has changed since its call was approved, so the call was not made. The text says what has changed."""

    error_class = ErrorClass.PERMANENT
    had_no_effect = True


class ToolCrashedError(ToolError):
    """A tool tried to end the process or the thread it ran in; chained to what it raised."""

    error_class = ErrorClass.PERMANENT


class ToolPolicyExhaustedError(ToolError):
    """Every attempt failed. Chained to the last failure; `attempts` and `last_class` describe the series."""

    # An outer policy must not multiply an inner one's attempts.
    error_class = ErrorClass.PERMANENT

    def __init__(self, attempts: int = 0, last_class: ErrorClass = ErrorClass.TRANSIENT, last: object = "") -> None:
        self.attempts = attempts
        self.last_class = last_class
        super().__init__(f"gave up after {attempts} attempts ({last_class}): {last}")


class ToolRejectedError(ToolError):
    """A call was refused at its approval gate. `tool`, `reason` and `identity` say which, why and whose."""

    error_class = ErrorClass.PERMANENT

    def __init__(self, tool: str = "", reason: str = "", identity: Quadruple | None = None) -> None:
        self.tool = tool
        self.reason = reason
        self.identity = identity
        super().__init__(f"the call of {tool!r} was rejected" + (f": {reason}" if reason else ""))


def is_unanswered(error: BaseException | None) -> bool:
    """Whether a call that failed with this was sent to its peer and not answered, or its last attempt was."""
    if isinstance(error, ToolPolicyExhaustedError):
        return is_unanswered(error.__cause__)
    return isinstance(error, ToolUnansweredError | ToolTimeoutError) and not getattr(error, "had_no_effect", False)


def is_said_by_tool(error: BaseException) -> bool:
    """Whether an error is a tool's own message to the model, which gets exactly its text."""
    return type(error) is ToolError


def failure_reason(error: BaseException) -> str:
    """Return what a model sees of a failed call: the class and the text; our own errors say all in their text."""
    if is_said_by_tool(error):
        return error_text(error)
    return error_reason(error) if isinstance(error, HarborageError) else error_summary(error)


class ToolFailedError(HarborageError):
    """A call gave no result after its retries. `tool` names it, `reason` says why.

    `is_unknown`: its worker died in the call, so it may or may not have acted; it is not called again by itself.
    """

    def __init__(self, tool: str = "", reason: str = "", *, is_unknown: bool = False) -> None:
        self.tool = tool
        self.reason = reason
        self.is_unknown = is_unknown
        super().__init__(f"{tool} failed: {reason}" if tool else "")


class QuestionExpiredError(HarborageError):
    """Nobody answered a question of a workflow or a tool in time. `question` is what was asked."""

    def __init__(self, question: str = "") -> None:
        self.question = question
        super().__init__(f"nobody answered in time: {question}" if question else "")


class QuestionRejectedError(HarborageError):
    """A person refused to answer a question of a workflow or a tool. `question` is what was asked, `reason` what the
    person said."""

    def __init__(self, question: str = "", reason: str = "") -> None:
        self.question = question
        self.reason = reason
        super().__init__(f"rejected: {question}{f' ({reason})' if reason else ''}" if question else "")
