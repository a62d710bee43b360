"""Tests of agents: a model that follows a script, and a runtime whose agents all follow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from harborage import codec
from harborage.errors import InvalidOptionError
from harborage.llm import CompleteResponse
from harborage.runtime.effects.model import ReasonerConfig
from harborage.runtime.host import Runtime
from harborage.testing.llm import LLMLine, ScriptedLLM, calls_tools

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_setup import AgentLike, AgentSetup
    from harborage.runtime.effects.model import ModelChoice


class Call(msgspec.Struct, frozen=True):
    """A call of a tool, or of another agent, that a scripted model makes."""

    tool: str
    args: Mapping[str, Any]


ScriptLine: TypeAlias = Any
"""What a scripted model answers: a text, a call, several calls in a list, a value of the agent's output, an error to
raise, or a function of the request."""


def call(tool: str, /, **args: Any) -> Call:
    """A call of a tool, for `script`: `call("refund", order="7", euros=12)`."""
    return Call(tool, args)


def script(*lines: ScriptLine, by_text: Mapping[str, Iterable[ScriptLine]] | None = None) -> ScriptedLLM:
    """A model that answers a run's first request with the first line, the second with the second, and so on.

    A run whose first request has a key of `by_text` in a user's message follows those lines instead, which gives each
    message of a conversation, and each sub-agent, its own. `requests` are what the model was asked.

    Raises:
        InvalidOptionError: a line has no JSON form.
    """
    others = {} if by_text is None else by_text
    return ScriptedLLM(map(_line, lines), by_text={text: [*map(_line, its)] for text, its in others.items()})


def _line(said: Any) -> LLMLine:
    match said:
        case str() | Exception() | CompleteResponse():
            return said
        case Call():
            return calls_tools((said.tool, said.args))
        case [Call(), *_] if all(isinstance(one, Call) for one in said):
            return calls_tools(*((one.tool, one.args) for one in said))
        case _ if callable(said):
            return said  # type: ignore[no-any-return] # a function of the request
        case _:
            try:
                return codec.encode_text(codec.to_plain(said, "line"))
            except codec.UnserializableError as error:
                example = 'a text, call("tool", …), several calls in a list, or a value of the agent\'s output'
                raise InvalidOptionError("script", said, example) from error


class _OnScript:
    """An agent whose every model is the script's, those of the agents that it calls included."""

    def __init__(self, agent: AgentLike[Any], model: ModelChoice) -> None:
        self._agent = agent
        self._model = model

    @property
    def output(self) -> Any:
        return self._agent.output

    def setup(self) -> AgentSetup:
        agent: Any = self._agent
        needs_model = getattr(agent, "model", agent) is None and getattr(agent, "planner", agent) is None
        setup = (agent.replace(model=self._model) if needs_model else agent).setup()
        return msgspec.structs.replace(self._followed(setup), value=agent)

    def _followed(self, setup: AgentSetup) -> AgentSetup:
        reasoner = setup.reasoner
        if isinstance(reasoner, ReasonerConfig):
            reasoner = msgspec.structs.replace(reasoner, model=self._model)
        below = tuple(msgspec.structs.replace(one, setup=self._followed(one.setup)) for one in setup.agents)
        return msgspec.structs.replace(setup, reasoner=reasoner, agents=below)


def runtime(agents: Iterable[AgentLike[Any]], *, model: ModelChoice, **parts: Any) -> Runtime:
    """A runtime in memory of these agents, all over one model: `async with runtime([support], model=model) as rt: …`.

    The runs of sub-agents have the model, too, whatever they name themselves. `parts` are as of `Runtime`.

    Raises:
        InvalidOptionError: as of `Runtime`.
    """
    given: Any = agents
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOptionError("agents", agents, "several agents, such as [support]")
    return Runtime([_OnScript(agent, model) for agent in given], **parts)
