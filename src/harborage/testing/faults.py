"""Tools that fail when a test says so: `injector = FaultInjector([divide])`, then `Agent(…, tools=injector.tools)`."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from harborage.errors import InvalidOptionError
from harborage.tools.catalog import ToolCatalog
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolError, ToolInvalidArgsError, ToolTimeoutError

if TYPE_CHECKING:
    from harborage.tools.model import CallContext, ToolDescriptor, ToolResult


class SimulatedFailureError(ToolError):
    """A call failed because the test says so; it is not tried again."""

    error_class = ErrorClass.PERMANENT


class SimulatedTimeoutError(ToolTimeoutError):
    """A call ran past its deadline because the test says so; it is not tried again."""

    error_class = ErrorClass.PERMANENT


class FaultInjector:
    """Makes the next calls of tools fail: `injector.simulate_failure("divide", "timeout", 2)`.

    `tools` are tools, or a catalog, whose tools are replaced by those that can fail. A call that fails so is not made,
    and its tool's policy does not repeat it.
    """

    def __init__(self, tools: Iterable[ToolDescriptor[Any]] | ToolCatalog) -> None:
        self._failures: defaultdict[str, deque[ErrorClass]] = defaultdict(deque)
        self.tools = [self._wrapped(one) for one in _descriptors(tools)]
        """The tools that can fail, in the order in which they came."""
        self._names = {one.tool.name for one in self.tools}
        if isinstance(tools, ToolCatalog):
            tools.replace({one.tool.name: one for one in self.tools})

    def simulate_failure(self, tool: str, error_class: ErrorClass | str, times: int = 1) -> None:
        """Let the next `times` calls of a tool fail, behind the failures that were asked for before.

        A failure that is `permanent` is one of its arguments, `timeout` one of its deadline; of the others the text
        names the class. A tool that is not here, and fewer than one time, are ignored.

        Raises:
            InvalidOptionError: there is no such class.
        """
        if error_class not in [*ErrorClass]:
            raise InvalidOptionError("error_class", error_class, f"one of {', '.join(ErrorClass)}")
        if tool in self._names and times > 0:
            self._failures[tool].extend([ErrorClass(error_class)] * times)

    def _wrapped(self, descriptor: ToolDescriptor[Any]) -> ToolDescriptor[Any]:
        return replace(descriptor, body=partial(self._call, descriptor))

    async def _call(self, descriptor: ToolDescriptor[Any], args: bytes, context: CallContext[Any]) -> ToolResult:
        waiting = self._failures[descriptor.tool.name]
        if waiting:
            raise _error(descriptor.tool.name, waiting.popleft())
        return await descriptor.body(args, context)


def _descriptors(tools: Iterable[ToolDescriptor[Any]] | ToolCatalog) -> list[ToolDescriptor[Any]]:
    if not isinstance(tools, ToolCatalog):
        return list(tools)
    found = (tools.resolve(tool.name) for tool in tools.tools)
    return [one for one in found if one is not None]


def _error(tool: str, error_class: ErrorClass) -> ToolError:
    match error_class:
        case ErrorClass.PERMANENT:
            return ToolInvalidArgsError(f"simulated failure of {tool}")
        case ErrorClass.TIMEOUT:
            return SimulatedTimeoutError()
        case ErrorClass.TRANSIENT | ErrorClass.SERVER:
            return SimulatedFailureError(f"simulated failure of {tool} ({error_class})")
