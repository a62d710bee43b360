"""What went wrong on the way to a server, as errors of the LLM edge that name the setting and the fix."""

from __future__ import annotations

import httpx2

from harborage.events import safe_excerpt
from harborage.llm.errors import ConnectionFailedError, InvalidConfigError, MalformedAnswerError, ProviderTimeoutError
from harborage.llm.openai_compat.habits import habits_of
from harborage.llm.providers import PROVIDERS

__all__ = ["fault_of"]


def fault_of(error: Exception, *, provider: str, model: str, address: str) -> Exception:
    """The error for what the transport raised while it called `address`."""
    what = _clean(error)
    match error:
        case httpx2.ConnectTimeout():
            text = f"{provider}: no connection to {address} in time; {_check(provider, address)}"
            return ConnectionFailedError(text, provider=provider, model=model)
        case httpx2.ConnectError():
            text = f"{provider}: no connection to {address} ({what}); {_check(provider, address)}"
            return ConnectionFailedError(text, provider=provider, model=model)
        case httpx2.TimeoutException():
            return ProviderTimeoutError(f"{provider}: {address} was too slow ({what})", provider=provider, model=model)
        case httpx2.DecodingError():
            text = f"{provider}: the answer is compressed in a way that cannot be read ({what})"
            return MalformedAnswerError(text, provider=provider, model=model)
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError():
            return InvalidConfigError(f"{provider}: {address} cannot be called ({what}); check llm.base_url")
        case _:
            text = f"{provider}: the connection to {address} broke ({what})"
            return ConnectionFailedError(text, provider=provider, model=model)


def _check(provider: str, address: str) -> str:
    started_by = habits_of(provider).start_hint
    if started_by:
        return f"is `{started_by}` running at {address}?"
    known = PROVIDERS.get(provider)
    variable = f" ({known.base_url_variable})" if known is not None and known.base_url_variable else ""
    return f"check llm.base_url{variable}, and the network"


def _clean(error: Exception) -> str:
    """What the transport said, or the name of its error where it said nothing."""
    text = " ".join(str(error).split())
    return safe_excerpt(text, 200) if text else type(error).__name__
