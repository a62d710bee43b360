"""Manifests: several endpoints of one peer, declared in a YAML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import InvalidOptionError
from harborage.secrets import Secret, secret
from harborage.tools.auth import ApiKey, Bearer, CookieAuth
from harborage.tools.enums import Loading, SideEffect
from harborage.tools.http.endpoint import Endpoint, make_endpoint, split_address
from harborage.tools.http.open import OpenHTTP, Peer
from harborage.tools.http.openapi.document import parse
from harborage.tools.http.operation import KEY_HEADER, Paging
from harborage.tools.http.values import Auth, check_base, check_headers
from harborage.tools.naming import to_identifier
from harborage.tools.policy import ToolPolicy

if TYPE_CHECKING:
    from harborage.tools.model import ToolDescriptor
    from harborage.tools.sources import SourceServices

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOST_BYTES: Final = 4 * 1024 * 1024


class _Key(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    value: str
    header: str = ""
    query: str = ""


class _Cookie(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    value: str


class _Auth(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    bearer: str = ""
    api_key: _Key | None = None
    cookie: _Cookie | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    description: str = ""
    method: str = "GET"
    path: str = ""
    url: str = ""
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: str | None = None
    args: dict[str, Any] | None = None
    effects: SideEffect = SideEffect.EXTERNAL
    idempotent: bool = False
    approve: bool = False
    tags: tuple[str, ...] = ()
    auth_scopes: tuple[str, ...] = ()
    loading: Loading = Loading.ALWAYS
    timeout_ms: float | None = None
    key_header: str = KEY_HEADER
    paging: Paging | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    tools: tuple[_Tool, ...]
    name: str = ""
    base_url: str = ""
    headers: dict[str, str] = {}
    auth: _Auth | None = None
    allow_hosts: tuple[str, ...] = ()


class HTTPManifest:
    """The endpoints of a file as tools: `HTTPManifest("crm.yaml")`. Secrets in it are references.

    Raises:
        InvalidOptionError: the file is none, has a key that there is not, or declares what means nothing.
        HeaderConflictError: a header belongs to the connection or the auth.
    """

    def __init__(self, path: str | PathLike[str], *, name: str = "") -> None:
        file = Path(path).absolute()
        read = _read(file)
        self.name = name or read.name or to_identifier(file.stem)
        auth = _auth_of(read.auth, file.name)
        headers = {key: _value_of(text) for key, text in read.headers.items()}
        check_base(f"{file.name}: base_url", read.base_url)
        check_headers(headers, auth, self.name)
        declared = [_declared(one, read, file.name, self.name) for one in read.tools]
        self._tools = [make_endpoint(one, auth) for one in declared]
        self._peer = Peer(
            auth=auth,
            headers=headers,
            trusted=tuple(dict.fromkeys(one.base for one in declared)),
            allow_hosts=read.allow_hosts,
            folder=file.parent,
        )

    @property
    def known(self) -> Sequence[ToolDescriptor[Any]]:
        """The tools."""
        return [one.descriptor for one in self._tools]

    def open(self, services: SourceServices) -> OpenHTTP:
        """Return the open source."""
        return OpenHTTP(self._tools, self._peer, services)


def _read(file: Path) -> _File:
    name = file.name
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InvalidOptionError("manifest", name, message=f"{name}: it is larger than a manifest")
        found = parse(file.read_bytes(), name)
    except OSError as error:
        raise InvalidOptionError("manifest", name, message=f"{name}: it cannot be read: {error.strerror}") from error
    try:
        return msgspec.convert(found, _File)
    except msgspec.ValidationError as error:
        raise InvalidOptionError("manifest", name, message=f"{name}: {error}") from error


def _declared(one: _Tool, read: _File, file: str, source: str) -> Endpoint:
    where = f"{file}: {one.name}"
    if bool(one.url) == bool(one.path):
        raise InvalidOptionError("url", one.name, message=f"{where}: give url, or path below base_url")
    if one.path and not read.base_url:
        raise InvalidOptionError("base_url", one.name, message=f"{where}: its path needs the base_url of the file")
    base, path = split_address(one.url) if one.url else split_address(read.base_url.rstrip("/") + one.path)
    check_base(f"{where}: url", base)
    return Endpoint(
        name=one.name,
        method=one.method.upper(),
        base=base,
        path=path,
        description=one.description,
        args=one.args,
        query=one.query,
        headers=one.headers,
        template=one.body,
        effect=one.effects,
        idempotent=one.idempotent,
        approve=one.approve,
        tags=one.tags,
        auth_scopes=one.auth_scopes,
        loading=one.loading,
        key_header=one.key_header,
        paging=one.paging,
        policy=ToolPolicy(timeout_ms=one.timeout_ms),
        source=f"manifest:{source}",
    )


def _auth_of(given: _Auth | None, file: str) -> Auth | None:
    if given is None:
        return None
    ways = [one for one in (given.bearer, given.api_key, given.cookie) if one]
    if len(ways) != 1:
        raise InvalidOptionError("auth", "", message=f"{file}: auth: give one of bearer, api_key and cookie")
    if given.bearer:
        return Bearer(_reference(given.bearer))
    if given.cookie is not None:
        return CookieAuth(given.cookie.name, _reference(given.cookie.value))
    assert given.api_key is not None
    key = ApiKey(_reference(given.api_key.value), given.api_key.header, given.api_key.query)
    if not key.header and not key.query:
        raise InvalidOptionError("auth", "", message=f"{file}: auth: api_key needs a header or a query")
    return key


def _reference(text: str) -> Secret:
    found = _VARIABLE.fullmatch(text)
    return secret(f"env:{found[1]}" if found else text)


def _value_of(text: str) -> str | Secret:
    """A header of the file: a text, or a secret where it is a reference."""
    is_reference = _VARIABLE.fullmatch(text) or text.startswith(("env:", "file:"))
    return _reference(text) if is_reference else text
