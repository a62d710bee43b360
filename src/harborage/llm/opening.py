"""From a configuration to a client: settings are completed and checked, the driver is made, the layers put around it.

The order of the layers is the contract: each retry runs a whole downgrade ladder, each rung of it is corrected and
checked anew, and nothing reaches a driver but through the layer of safety, which has no switch.
"""

from __future__ import annotations

from harborage.drivers import DriverTable, DriverUnknownError
from harborage.errors import HarborageError
from harborage.llm.account import PriceUnknownError
from harborage.llm.chain.accounting import Accounted, Governed
from harborage.llm.chain.corrections import Correcting
from harborage.llm.chain.downgrade import Downgrading
from harborage.llm.chain.layer import Layer
from harborage.llm.chain.metering import Metered
from harborage.llm.chain.naming import Naming
from harborage.llm.chain.retry import Resilient, Retrying
from harborage.llm.chain.safety import Safe
from harborage.llm.client import Cost, LLMClient, Usage
from harborage.llm.config import ConfigSnapshot, Deps, DriverFactory
from harborage.llm.drivers import LLM_DRIVERS, UNMETERED
from harborage.llm.errors import InvalidConfigError, UnknownDriverError
from harborage.llm.settings import check_settings, complete_settings

__all__ = ["check_price", "counted", "open_llm"]


async def open_llm(cfg: ConfigSnapshot, deps: Deps, *, drivers: DriverTable[DriverFactory] = LLM_DRIVERS) -> LLMClient:
    """A client for the configured provider, with every layer around it; `cfg` itself stays as it is.

    Raises:
        InvalidConfigError: a part or a setting is missing or makes no sense, or the driver cannot be made; in the
            order artifacts, bus, settings, driver. What a driver says itself (`MissingAPIKeyError`,
            `MissingExtraError`, …) is passed on as it is.
        UnknownDriverError: no driver has the configured name; the text lists those there are.
    """
    for part in ("artifacts", "bus"):
        if getattr(deps, part) is None:
            raise InvalidConfigError(f"llm: Deps.{part} is missing; give the runtime's own")
    full = complete_settings(cfg)
    check_settings(full)
    driver = _driver(full, deps, drivers)
    client: LLMClient
    if full.driver in UNMETERED:
        client = Accounted(driver, full, deps, price_of=_free)
    else:
        metered = Metered(driver, full, deps)
        client = Accounted(metered, full, deps, price_of=metered.price_of, load_prices=metered.load_prices)
    client = Safe(Naming(Resilient(client, full, deps), full, deps), full, deps)
    if not full.disable_corrections:
        client = Correcting(client, full, deps)
    if not full.disable_downgrade:
        client = Downgrading(client, full, deps)
    if not full.disable_retry:
        client = Retrying(client, full, deps)
    if not full.disable_governance and deps.governance is not None:
        client = Governed(client, full, deps)
    return client


def counted(client: LLMClient, deps: Deps) -> LLMClient:
    """`client` with its calls on the account of the work that makes them; one of `open_llm` has them so already.

    What calls of another client cost is known where it has a method `price_of(model, usage)`.
    """
    if isinstance(client, Layer):
        return client
    return Accounted(client, ConfigSnapshot(), deps, price_of=getattr(client, "price_of", _unknown))


async def check_price(client: LLMClient) -> None:
    """Accept a client whose calls have a known price, be it nothing.

    Raises:
        PriceUnknownError: none is known.
    """
    while isinstance(client, Layer):
        if isinstance(client, Accounted):
            return await client.check_price()
        client = client.inner
    raise PriceUnknownError()


def _unknown(_model: str, _usage: Usage) -> Cost | None:
    return None


def _free(_model: str, _usage: Usage) -> Cost | None:
    return Cost()


def _driver(cfg: ConfigSnapshot, deps: Deps, drivers: DriverTable[DriverFactory]) -> LLMClient:
    try:
        factory = drivers.factory(cfg.driver)
    except DriverUnknownError as error:
        raise UnknownDriverError(error.name, error.known) from None
    try:
        return factory(cfg, deps)
    except HarborageError as error:
        error.add_note(f"while the LLM driver {cfg.driver!r} was opened")
        raise
    except Exception as error:
        raise InvalidConfigError(f"llm: the driver {cfg.driver!r} cannot be opened: {error}") from error
