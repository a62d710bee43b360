"""The hooks around each call of an agent's model.

They stand below the recorder: the record has the request as the planner made it and the answer as the planner got it,
so that a replay needs neither the model nor the hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.errors import HarborageError
from harborage.identity import effective_quadruple
from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, Content, Role
from harborage.runtime.effects.hook_effects import HookFailedError, ask_hook
from harborage.runtime.loop.capabilities import Confirm, Deny, Guide, Proceed, Transform

if TYPE_CHECKING:
    from harborage.llm import LLMClient
    from harborage.runtime.effects.hooks import Hooks
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices

_MOST_GUIDES: Final = 3
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "total_tokens", "latency_ms")
_AMOUNTS: Final = ("input_cost", "output_cost", "reasoning_cost", "total_cost")


class ModelCallRefusedError(HarborageError):
    """A hook refused a call of the model, or its answer; the run fails, and the text says which hook and why."""


class ModelHooks:
    """The hooks of one agent around its model. They are asked once `attach` has been called, when the agent is open."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._services: AgentServices | None = None
        self._find: Callable[[str], LiveRun | None] = _nobody

    def attach(self, services: AgentServices, find: Callable[[str], LiveRun | None]) -> None:
        """Give it what hooks are asked with: `find` returns the live side of a run that is executed here."""
        self._services, self._find = services, find

    def wrap(self, client: LLMClient) -> LLMClient:
        """Return a client that asks the hooks before and after each call of `client`."""
        return _HookedClient(client, self)

    async def before(self, request: CompleteRequest) -> CompleteRequest:
        """The request as the hooks let it pass.

        Raises:
            ModelCallRefusedError: one of them does not.
        """
        for capability in self._hooks.having("before_model"):
            match await self._ask(capability, "before_model", request):
                case Transform(CompleteRequest() as other):
                    request = other
                case Guide(advice):
                    request = _with(request, ChatMessage(Role.USER, Content(text=advice)))
                case Proceed():
                    pass
                case other:
                    raise _refused(capability, "before_model", other, "a CompleteRequest")
        return request

    async def after(self, response: CompleteResponse) -> CompleteResponse | Guide:
        """The answer as the hooks let it pass, or the advice to ask for another one.

        Raises:
            ModelCallRefusedError: one of them refuses it.
        """
        for capability in self._hooks.having("after_model"):
            match await self._ask(capability, "after_model", response):
                case Transform(CompleteResponse() as other):
                    response = other
                case Guide() as guide:
                    return guide
                case Proceed():
                    pass
                case other:
                    raise _refused(capability, "after_model", other, "a CompleteResponse")
        return response

    async def _ask(self, capability: Any, hook: str, given: Any) -> Any:
        who = effective_quadruple()
        live = None if who is None else self._find(who.run_id)
        if live is None or self._services is None:
            raise ModelCallRefusedError(f"{hook}: the model was called outside a run, where no hook can be asked")
        try:
            return await ask_hook(self._services, self._hooks, live, capability, hook, given)
        except HookFailedError as error:
            raise ModelCallRefusedError(str(error)) from error


def _nobody(_: str) -> None:
    return None


def _refused(capability: Any, hook: str, verdict: Any, wanted: str) -> ModelCallRefusedError:
    where = f"{hook} of {type(capability).__name__}"
    match verdict:
        case Deny(reason):
            return ModelCallRefusedError(f"{where} denied it: {reason}")
        case Confirm():
            return ModelCallRefusedError(f"{where} failed: only before_tool may return Confirm")
        case _:
            return ModelCallRefusedError(f"{where} failed: Transform takes {wanted}")


def _with(request: CompleteRequest, *messages: ChatMessage) -> CompleteRequest:
    return replace(request, messages=(*request.messages, *messages))


class _HookedClient:
    """A client between a planner and its model, with the hooks around each call."""

    def __init__(self, inner: LLMClient, hooks: ModelHooks) -> None:
        self._inner = inner
        self._hooks = hooks

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        request = await self._hooks.before(request)
        answers: list[CompleteResponse] = []
        while True:
            answers.append(await self._inner.complete(request))
            said = await self._hooks.after(answers[-1])
            if isinstance(said, CompleteResponse):
                return said if len(answers) == 1 else _with_all_spent(said, answers[:-1])
            if len(answers) > _MOST_GUIDES:
                text = f"after_model sent the answer back {_MOST_GUIDES} times, and still does: {said.advice}"
                raise ModelCallRefusedError(text)
            if request.on_reset is not None:
                request.on_reset()
            request = _asked_again(request, answers[-1], said.advice)

    async def close(self) -> None:
        await self._inner.close()


def _with_all_spent(response: CompleteResponse, earlier: Sequence[CompleteResponse]) -> CompleteResponse:
    """The answer with what those before it took, too: the run has spent it all."""
    usage, cost = response.usage, response.cost
    for one in earlier:
        usage = replace(usage, **{count: getattr(usage, count) + getattr(one.usage, count) for count in _COUNTS})
        amounts: dict[str, Any] = {name: getattr(cost, name) + getattr(one.cost, name) for name in _AMOUNTS}
        cost = replace(cost, **amounts, currency=cost.currency or one.cost.currency)
    return replace(response, usage=usage, cost=cost)


def _asked_again(request: CompleteRequest, answer: CompleteResponse, advice: str) -> CompleteRequest:
    """The request for another answer. The calls of this one are left out: they were not made."""
    own = [ChatMessage(Role.ASSISTANT, Content(text=answer.content))] if answer.content else []
    return _with(request, *own, ChatMessage(Role.USER, Content(text=advice)))
