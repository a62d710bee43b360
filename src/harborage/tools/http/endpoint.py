"""`HTTP`: one declared endpoint as a tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import InvalidOptionError, one_of
from harborage.tools.auth import ApiKey
from harborage.tools.enums import Loading, SideEffect, Transport
from harborage.tools.http.choosing import names_in
from harborage.tools.http.open import HTTPTool, OpenHTTP, Peer, make_tool
from harborage.tools.http.operation import KEY_HEADER, Argument, Body, BodyKind, Operation, Paging, Place
from harborage.tools.http.templates import check_template
from harborage.tools.http.templates import names_in as template_names
from harborage.tools.http.values import Auth, check_auth, check_base, check_headers, check_name
from harborage.tools.model import Tool, ToolDescriptor
from harborage.tools.policy import ToolPolicy
from harborage.tools.schema import SchemaBuilder, make_object_schema

if TYPE_CHECKING:
    from harborage.secrets import Secret
    from harborage.tools.sources import SourceServices

METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")

_LINE: Final = re.compile(r"([A-Z]+)\s+(https?://\S+)")
_PLACEHOLDER: Final = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_-]*)\}(?!\})")
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint as it is declared. `args` are types or JSON Schemas by name, or a whole schema of an object."""

    name: str
    method: str
    base: str
    path: str = ""
    description: str = ""
    args: Mapping[str, Any] | None = None
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    template: str | None = None
    effect: SideEffect = SideEffect.EXTERNAL
    idempotent: bool = False
    approve: bool = False
    tags: tuple[str, ...] = ()
    auth_scopes: tuple[str, ...] = ()
    loading: Loading = Loading.ALWAYS
    key_header: str = KEY_HEADER
    paging: Paging | None = None
    policy: ToolPolicy = ToolPolicy()
    source: str = ""


def make_endpoint(one: Endpoint, auth: Auth | None) -> HTTPTool:
    """Return the tool of an endpoint.

    Raises:
        InvalidOptionError: it is declared in a way that means nothing; the text says where.
        HeaderConflictError: a header or a key of its query belongs to the connection or the auth.
    """
    _check(one, auth)
    placeholders = tuple(dict.fromkeys(_PLACEHOLDER.findall(one.path)))
    of_templates = (name for text in _templates(one).values() for name in template_names(text))
    named = tuple(dict.fromkeys((*placeholders, *of_templates)))
    schema = _schema_of(one, named)
    properties: Mapping[str, Any] = schema.get("properties", {})
    if missing := [name for name in named if properties and name not in properties]:
        text = f"{one.name}: {missing[0]!r} is in its address or a template, and no argument of args="
        raise InvalidOptionError("args", missing[0], message=text)
    arguments, body = _placed(one, schema, placeholders, named)
    for argument in arguments:
        if argument.place is Place.QUERY:
            check_name(argument.key, auth, one.name, is_query=True)
    tool = Tool(
        name=one.name,
        description=one.description or f"Call {one.method} {one.base}{one.path}",
        args_schema=schema,
        side_effects=one.effect,
        idempotent=one.idempotent,
        tags=one.tags,
        auth_scopes=one.auth_scopes,
        loading=one.loading,
        source=one.source or f"inline:{one.name}",
        transport=Transport.HTTP,
        policy=one.policy,
    )
    own = auth if isinstance(auth, ApiKey) else None
    operation = Operation(
        name=one.name,
        method=one.method,
        base=one.base,
        path=one.path,
        arguments=arguments,
        body=body,
        headers=one.headers,
        query=one.query,
        template=one.template,
        needs_auth=auth is not None,
        auth_header="" if own is None else own.header,
        auth_query="" if own is None else own.query,
        key_header=one.key_header,
        paging=one.paging,
        effect=one.effect,
        is_keyed=one.idempotent,
    )
    return make_tool(tool, operation, "always" if one.approve else None)


def _templates(one: Endpoint) -> dict[str, str]:
    """The texts of an endpoint that are templates, by where they stand."""
    return {
        "url": one.base + one.path,
        **{f"headers[{name!r}]": text for name, text in one.headers.items()},
        **{f"query[{name!r}]": text for name, text in one.query.items()},
        **({} if one.template is None else {"body": one.template}),
    }


def _check(one: Endpoint, auth: Auth | None) -> None:
    if one.method not in METHODS:
        raise InvalidOptionError("method", one.method, f"one of {', '.join(METHODS)}")
    for where, text in _templates(one).items():
        check_template(text, f"{one.name}: {where}")
    for name in one.headers:
        check_name(name, auth, one.name)
    for name in one.query:
        check_name(name, auth, one.name, is_query=True)


def _schema_of(one: Endpoint, named: Sequence[str]) -> dict[str, Any]:
    """The schema of the arguments; without args= each is a required text."""
    if one.args is None:
        return make_object_schema({name: {"type": "string"} for name in named}, [*named])
    if one.args.get("type") == "object" or "$ref" in one.args:
        return dict(one.args)
    builder = SchemaBuilder()
    properties = {
        name: dict(given) if isinstance(given, Mapping) else builder.describe(given, f"{one.name}.{name}")
        for name, given in one.args.items()
    }
    schema = make_object_schema(properties, [*properties])
    return {**schema, "$defs": builder.definitions} if builder.definitions else schema


def _placed(
    one: Endpoint, schema: Mapping[str, Any], placeholders: Sequence[str], named: Sequence[str]
) -> tuple[tuple[Argument, ...], Body | None]:
    """Where each argument goes: into the path that names it; others into the body, or the query of one without."""
    required = schema.get("required", ())
    has_body = one.method in _WITH_BODY and one.template is None
    arguments: list[Argument] = []
    for name, own in schema.get("properties", {}).items():
        if name in placeholders:
            place = Place.PATH
        elif name in named:
            continue  # it stands where a template has it
        else:
            place = Place.BODY if has_body else Place.QUERY
        arguments.append(Argument(name, place, name, own, name in required))
    body = Body(BodyKind.JSON, "application/json") if has_body else None
    return tuple(arguments), body


class HTTP:
    """An endpoint as a tool: `HTTP("weather", "GET https://api.example/{city}", effects="read")`.

    `{city}` in the address is an argument, quoted whole. `args` says what the arguments are, as types or JSON Schemas
    by name; without it each in the address is a required text. Other arguments go into the query of a GET or DELETE,
    and into the JSON body of a POST, PUT or PATCH. `headers` and `query` are sent with every call. `effects` says what
    it does (`external`); one that is `idempotent` may be sent again with the same key, which goes in `key_header`,
    empty for nowhere. `approve` has a person approve each call. `paging` says how its list goes on.

    Raises:
        InvalidOptionError: an option has a value that it cannot have, or a secret is not given by reference.
        HeaderConflictError: a header belongs to the connection or the auth.
    """

    def __init__(
        self,
        name: str,
        endpoint: str,
        *,
        description: str = "",
        args: Mapping[str, Any] | None = None,
        query: Mapping[str, str] = {},
        headers: Mapping[str, str | Secret] = {},
        auth: Auth | None = None,
        effects: SideEffect | str = SideEffect.EXTERNAL,
        idempotent: bool = False,
        approve: bool = False,
        tags: Iterable[str] = (),
        auth_scopes: Iterable[str] = (),
        key_header: str = KEY_HEADER,
        paging: Paging | None = None,
        allow_hosts: Iterable[str] = (),
        policy: ToolPolicy = ToolPolicy(),  # noqa: B008 - a frozen value
    ) -> None:
        method, base, path = _read_line(name, endpoint)
        check_base(f"{name}: the address", base)
        check_auth(auth)
        if isinstance(auth, ApiKey) and not auth.header and not auth.query:
            raise InvalidOptionError(
                "auth", "", message=f"{name}: ApiKey(…, header=…) or query= says where the key goes"
            )
        check_headers(headers, auth, name)
        declared = Endpoint(
            name=name,
            method=method,
            base=base,
            path=path,
            description=description,
            args=args,
            query=dict(query),
            effect=one_of(SideEffect, effects, "effects"),
            idempotent=idempotent,
            approve=approve,
            tags=names_in("tags", tags),
            auth_scopes=names_in("auth_scopes", auth_scopes),
            key_header=key_header,
            paging=paging,
            policy=policy,
        )
        self.name = name
        self._tools = [make_endpoint(declared, auth)]
        self._peer = Peer(
            auth=auth,
            headers=dict(headers),
            trusted=(base,),
            allow_hosts=names_in("allow_hosts", allow_hosts),
            folder=Path(),
        )

    def __repr__(self) -> str:
        return f"HTTP({self.name!r})"

    @property
    def known(self) -> Sequence[ToolDescriptor[Any]]:
        """The tool."""
        return [one.descriptor for one in self._tools]

    def open(self, services: SourceServices) -> OpenHTTP:
        """Return the open source."""
        return OpenHTTP(self._tools, self._peer, services)


def _read_line(name: Any, endpoint: Any) -> tuple[str, str, str]:
    """The method of an endpoint, the scheme and place of its address, and the path behind them."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidOptionError("name", name, 'the tool\'s name, first: HTTP("weather", "GET https://…")')
    found = _LINE.fullmatch(endpoint.strip()) if isinstance(endpoint, str) else None
    if found is None:
        raise InvalidOptionError("endpoint", endpoint, 'a method and an address, such as "GET https://api.example/x"')
    return found[1], *split_address(found[2])


def split_address(address: str) -> tuple[str, str]:
    """Return an address as its scheme and place, and the path behind them."""
    scheme, _, rest = address.partition("://")
    place, slash, path = rest.partition("/")
    host, mark, query = place.partition("?")
    return f"{scheme}://{host}", f"{slash}{path}" if not mark else f"/?{query}{slash}{path}"
