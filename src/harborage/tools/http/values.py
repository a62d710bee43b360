"""What the values of HTTP tools have in common: who calls, headers of the operator, and names that are reserved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from harborage.errors import InvalidOptionError
from harborage.secrets import Secret
from harborage.tools.auth import ApiKey, Bearer, CookieAuth
from harborage.tools.http.errors import HeaderConflictError

Auth: TypeAlias = Bearer | ApiKey | CookieAuth

_OF_THE_CONNECTION: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OF_THE_AUTH: Final = frozenset({"authorization", "cookie"})


def check_auth(auth: Any) -> None:
    """Accept how a caller is known.

    Raises:
        InvalidOptionError: it is none of the ways that there are.
    """
    if auth is not None and not isinstance(auth, Bearer | ApiKey | CookieAuth):
        raise InvalidOptionError(
            "auth", "", message='auth: give Bearer(secret("env:NAME")), ApiKey(…) or CookieAuth(…)'
        )


def check_headers(headers: Mapping[str, Any], auth: Auth | None, operation: str) -> None:
    """Accept headers that the operator adds to every request.

    Raises:
        HeaderConflictError: one belongs to the connection or the auth.
        InvalidOptionError: one is no text and no secret.
    """
    for name, value in headers.items():
        check_name(name, auth, operation)
        if not isinstance(value, str | Secret) or (isinstance(value, str) and not value.isprintable()):
            raise InvalidOptionError(f"headers[{name!r}]", "", message=f"headers[{name!r}]: give a text or a secret")


def check_name(name: str, auth: Auth | None, operation: str, *, is_query: bool = False) -> None:
    """Accept the name of a header, or of a parameter of the query.

    Raises:
        HeaderConflictError: it belongs to the connection or the auth.
    """
    own_query = auth.query if isinstance(auth, ApiKey) else ""
    if is_query:
        if own_query and name == own_query:
            raise HeaderConflictError(operation, name, "is the key of auth=, which is sent by itself; leave it out")
        return
    lower = name.lower()
    if lower in _OF_THE_CONNECTION:
        raise HeaderConflictError(operation, name, "belongs to the connection; leave it out")
    own = auth.header.lower() if isinstance(auth, ApiKey) else ""
    if lower in _OF_THE_AUTH or lower == own:
        raise HeaderConflictError(operation, name, "shows who calls; say it in auth=, and leave it out here")


def check_base(option: str, url: str) -> None:
    """Accept the address of a peer, or none.

    Raises:
        InvalidOptionError: it is no address of http or https, or holds what does not belong into one.
    """
    if not url:
        return
    parts = urlsplit(str(url))
    if parts.scheme not in ("http", "https") or not parts.hostname or "{" in parts.netloc:
        raise InvalidOptionError(option, url, "an address such as https://api.example")
    if parts.username or parts.password or parts.query or parts.fragment:
        text = f"{option}: an address without a user, a password, a query and a fragment; secrets go into auth="
        raise InvalidOptionError(option, "", message=text)
