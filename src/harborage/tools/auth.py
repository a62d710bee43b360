"""How tools from elsewhere show who calls: values with references to secrets, which are read when a call is made."""

from __future__ import annotations

from typing import Any

import msgspec

from harborage.errors import InvalidOptionError
from harborage.secrets import Secret


class Bearer(msgspec.Struct, frozen=True):
    """A token that is sent as it is: `Bearer(secret("env:CRM_TOKEN"))`.

    Raises:
        InvalidOptionError: the token is no reference.
    """

    token: Secret

    def __post_init__(self) -> None:
        check_secret(self.token, "Bearer")


class ApiKey(msgspec.Struct, frozen=True):
    """A key in a header or in the query: `ApiKey(secret("env:KEY"), header="X-API-Key")`.

    With neither, an OpenAPI document says where it goes.

    Raises:
        InvalidOptionError: the key is no reference, or it has two places.
    """

    key: Secret
    header: str = msgspec.field(default="")
    query: str = msgspec.field(default="")

    def __post_init__(self) -> None:
        check_secret(self.key, "ApiKey")
        if self.header and self.query:
            text = "ApiKey: header and query are two places for one key; name one of them"
            raise InvalidOptionError("ApiKey", self.header, message=text)


class CookieAuth(msgspec.Struct, frozen=True):
    """A cookie: `CookieAuth("session", secret("env:SESSION"))`.

    Raises:
        InvalidOptionError: the value is no reference, or there is no name.
    """

    name: str
    value: Secret

    def __post_init__(self) -> None:
        check_secret(self.value, "CookieAuth")
        if not self.name:
            raise InvalidOptionError("CookieAuth", self.name, "the cookie's name, first")


def check_secret(given: Any, where: str) -> None:
    """Accept a reference to a secret.

    Raises:
        InvalidOptionError: it is a plain text, which would be in every copy of the program; it is not repeated.
    """
    if isinstance(given, Secret) and given:
        return
    what = "a plain text" if isinstance(given, str) else "no secret"
    text = f'{where}: {what} is given; write secret("env:NAME"), secret("file:PATH") or another reference'
    raise InvalidOptionError(where, "", message=text)
