"""The ambient account of a piece of work, on which every call of a client draws: what it may still spend on models.

A run binds its account around its work. Each call that reaches a provider reserves its estimate before it is sent, and
settles what it took afterwards. Without an account nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

import msgspec

from harborage.llm.errors import LLMError


class LimitReachedError(LLMError):
    """A call of a model was not made: a limit of its run is reached. `limit` names it."""

    def __init__(self, limit: str = "", text: str = "") -> None:
        self.limit = limit
        super().__init__(text or f"llm: the run's limit of {limit} is reached")


class PriceUnknownError(LLMError):
    """A cost limit cannot be held, because the model has no known price; the text says what to set instead."""

    def __init__(self, model: str = "") -> None:
        self.model = model
        super().__init__(
            f"llm: a cost limit needs a price in US dollars, and none is known for {model or 'this client'}: set "
            f"llm.profiles[{model!r}].cost_overrides, install 'harborage[prices]', or limit tokens instead of cost"
        )


class CallEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of one call: its prompt and the longest answer. `cost` is in US dollars, None without a price."""

    model: str = ""
    tokens: int = 0
    cost: float | None = None


class Account(Protocol):
    """The account that the calls of one piece of work draw on. Many calls may be open at once.

    `needs_price` says that the price of a call must be known before it is made.
    """

    @property
    def needs_price(self) -> bool: ...

    async def reserve(self, estimate: Callable[[], CallEstimate]) -> str:
        """Reserve what `estimate` returns for a call; return the key of the reservation.

        Raises:
            LimitReachedError, PriceUnknownError: the call must not be made.
        """
        ...

    async def settle(self, key: str, *, tokens: int, cost: float) -> None:
        """Replace a reservation by what the call took; both are 0 for a call that took nothing."""
        ...

    def keep(self, key: str) -> None:
        """Count a reservation as spent: the call was cut short, and its provider may charge for it. Never: waits."""
        ...


class _Work(NamedTuple):
    """A piece of work that calls models: its account, and the run and the step of it, from 1, that it belongs to."""

    account: Account | None = None
    run_id: str = ""
    step: int = 0


_NO_WORK: Final = _Work()
_CURRENT: Final[ContextVar[_Work]] = ContextVar("harborage_llm_account", default=_NO_WORK)


def current_account() -> Account | None:
    """Return the account that calls made here draw on; None when nothing is counted."""
    return _CURRENT.get().account


def step_of(run_id: str) -> int:
    """Return the step of this run, from 1, for which calls are made here; 0 where that is not known."""
    work = _CURRENT.get()
    return work.step if work.run_id == run_id else 0


class accounting:  # noqa: N801 - a context manager, written like a function; every step enters two
    """Let the calls of models that are made inside the block, and by tasks started in it, draw on `account`.

    `step` is the run and its step, from 1, that they belong to; without one it stays as it is.
    """

    __slots__ = ("_account", "_step", "_token")

    def __init__(self, account: Account | None, step: tuple[str, int] | None = None) -> None:
        self._account = account
        self._step = step

    def __enter__(self) -> None:
        run_id, step = _CURRENT.get()[1:] if self._step is None else self._step
        self._token = _CURRENT.set(_Work(self._account, run_id, step))

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
