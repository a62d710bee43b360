"""The hooks of an agent's capabilities: which there are, and what they are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harborage import codec
from harborage.planner import Finish, extract_answer
from harborage.runtime.loop.capabilities import (
    HOOKS,
    INSTRUCTIONS,
    OFFERED,
    Capability,
    InstructionsFunction,
    has_hook,
    hooks_of,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple

Condition: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
"""Says of the context of a run whether a tool is offered in it."""

_HOOKED_SINCE: Final = (
    "the capabilities of the agent look at every call now and did not when the run started, so {0!r} was not called; "
    "start another run"
)


class Hooks:
    """The hooks of one agent's capabilities, the function that gives its instructions, and when its tools are offered.

    `decode` makes the agent's output of the payload of a finish.
    """

    def __init__(
        self,
        capabilities: Iterable[Capability],
        *,
        deps: Callable[[Quadruple], Awaitable[Any]] | None,
        decode: Callable[[Any], Any] | None,
        instructions: InstructionsFunction | None = None,
        conditions: Mapping[str, Condition] = {},
    ) -> None:
        given = tuple(capabilities)
        asked = {INSTRUCTIONS: instructions is not None, OFFERED: bool(conditions)}
        self.names = (*hooks_of(given), *(name for name, is_asked in asked.items() if is_asked))
        self.conditions = conditions
        self.instructions = instructions
        self._with = {hook: tuple(one for one in given if has_hook(one, hook)) for hook in HOOKS}
        self._deps = deps
        self._decode = decode

    def refusal(self, tool: str, recorded: tuple[str, ...]) -> str:
        """Why a call may not be made of a run that asks other hooks than there are now; empty when it may."""
        is_new = any(hook in self.names and hook not in recorded for hook in ("before_tool", "after_tool"))
        return _HOOKED_SINCE.format(tool) if is_new else ""

    def having(self, hook: str) -> tuple[Capability, ...]:
        """The capabilities with this hook, in the order of the agent's list."""
        return self._with[hook]

    async def deps(self, who: Quadruple) -> Any:
        """The dependencies of a run; None of an agent without any.

        Raises:
            HarborageError: they cannot be made, or are not here.
        """
        return None if self._deps is None else await self._deps(who)

    def output(self, finish: Finish) -> Any:
        """The output that a finish carries, as its agent declares it."""
        return extract_answer(finish) if self._decode is None else self._decode(finish.payload)

    def payload(self, finish: Finish, output: Any) -> Any:
        """The payload of the finish with another output.

        Raises:
            Exception: it is no output of the agent.
        """
        if self._decode is not None:
            plain = codec.to_plain(output)
            self._decode(plain)
            return plain
        if not isinstance(output, str):
            raise TypeError(f"the output is a text, not {type(output).__name__}")
        return {**finish.payload, "answer": output} if _has_answer(finish.payload) else output


def _has_answer(payload: Any) -> bool:
    return isinstance(payload, dict) and isinstance(payload.get("answer"), str)
