"""Opens a client: completes and checks its settings, makes the driver, and puts the layers around it.

The order of the layers is the contract: each retry runs a whole downgrade ladder, each attempt is corrected and
checked anew, and every call of a driver goes through the layer of safety, which has no switch.
"""

from __future__ import annotations

from harborage.drivers import DriverTable, DriverUnknownError
from harborage.errors import HarborageError
from harborage.llm.account import PriceUnknownError
from harborage.llm.chain.accounting import Accounted, Counted, Governed, Metered
from harborage.llm.chain.corrections import Correcting, Naming
from harborage.llm.chain.fallback import Fallback
from harborage.llm.chain.layer import Layer
from harborage.llm.chain.retry import Downgrading, Resilient, Retrying
from harborage.llm.chain.safety import Safe
from harborage.llm.client import Cost, LLMClient, Usage
from harborage.llm.config import LLM_DRIVERS, UNMETERED, ConfigSnapshot, Deps, DriverFactory
from harborage.llm.configure import check_settings, complete_settings
from harborage.llm.errors import LLMConfigError, UnknownDriverError


async def open_llm(cfg: ConfigSnapshot, deps: Deps, *, drivers: DriverTable[DriverFactory] = LLM_DRIVERS) -> LLMClient:
    """Return a client for the configured provider, with every layer around it; `cfg` stays unchanged.

    Raises:
        LLMConfigError: a part or a setting is missing or makes no sense, or the driver cannot be made; in the
            order artifacts, bus, settings, driver. The errors of a driver itself (`MissingAPIKeyError`,
            `MissingExtraError`, …) are passed on.
        UnknownDriverError: no driver has the configured name; the text lists those there are.
    """
    for part in ("artifacts", "bus"):
        if getattr(deps, part) is None:
            raise LLMConfigError(f"llm: Deps.{part} is missing; give the runtime's own")
    full = complete_settings(cfg)
    check_settings(full)
    driver = _driver(full, deps, drivers)
    client: LLMClient
    if full.driver in UNMETERED:
        counted = Counted(driver, full, deps, price_of=_no_cost, is_announced=False)
        client = Accounted(counted, full, deps, price_of=_no_cost)
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


def count_calls(client: LLMClient, deps: Deps) -> LLMClient:
    """Return `client` with its calls counted on the ambient account, and in the totals of the runs that make them.

    Those of a client of `open_llm` are on the account already, and in the totals where it was opened with the bus of
    `deps`. The cost of another client's calls is known where it reports one, or has a method `price_of(model, usage)`.
    """
    if isinstance(client, Layer):
        counting = _counting(client)
        if deps.bus is None or (counting and all(layer.is_counting_on(deps.bus) for layer in counting)):
            return client
        is_announced = not counting or any(isinstance(layer, Metered) or layer.is_announced for layer in counting)
        return Counted(client, ConfigSnapshot(), deps, price_of=_unknown_price, is_announced=is_announced)
    price_of = getattr(client, "price_of", _unknown_price)
    name = getattr(client, "name", "")
    named = ConfigSnapshot(model=name if isinstance(name, str) else "")
    counted = Counted(client, named, deps, price_of=price_of, is_announced=True)
    return Accounted(counted, ConfigSnapshot(), deps, price_of=price_of)


def _counting(client: LLMClient) -> list[Metered | Counted]:
    """Return the layers of `client` that count what its calls take: one for each model, none of an unlayered one."""
    if isinstance(client, Fallback):
        return [layer for one in client.clients for layer in _counting(one)]
    while isinstance(client, Layer):
        if isinstance(client, Metered | Counted):
            return [client]
        client = client.inner
    return []


async def check_price(client: LLMClient) -> None:
    """Accept a client whose calls have a known price; zero is one.

    Raises:
        PriceUnknownError: none is known.
    """
    if isinstance(client, Fallback):
        for one in client.clients:
            await check_price(one)
        return None
    while isinstance(client, Layer):
        if isinstance(client, Accounted):
            return await client.check_price()
        client = client.inner
    raise PriceUnknownError()


def _unknown_price(_model: str, _usage: Usage) -> Cost | None:
    return None


def _no_cost(_model: str, _usage: Usage) -> Cost | None:
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
        raise LLMConfigError(f"llm: the driver {cfg.driver!r} cannot be opened: {error}") from error
