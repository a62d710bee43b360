"""The ambient account of a piece of work, on which every call of a client draws: what it may still spend on models.

A run binds its account around its work. Each call that reaches a provider reserves its estimate before it is sent, and
settles what it took afterwards. Without an account nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol

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


_CURRENT: Final[ContextVar[Account | None]] = ContextVar("harborage_llm_account", default=None)


def current_account() -> Account | None:
    """Return the account that calls made here draw on; None when nothing is counted."""
    return _CURRENT.get()


class accounting:  # noqa: N801 - a context manager, written like a function; every step enters two
    """Let the calls of models that are made inside the block, and by tasks started in it, draw on `account`."""

    __slots__ = ("_account", "_token")

    def __init__(self, account: Account | None) -> None:
        self._account = account

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._account)

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
