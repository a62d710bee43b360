"""`OpenAPI`: a document as a source of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import InvalidOptionError
from harborage.tools.auth import ApiKey, Bearer, CookieAuth
from harborage.tools.enums import Loading, SideEffect, Transport
from harborage.tools.http.choosing import Names, any_match, check_patterns, effects_in, first_match, names_in
from harborage.tools.http.errors import DocumentError
from harborage.tools.http.open import HTTPTool, OpenHTTP, Peer, make_tool, unavailable_tool
from harborage.tools.http.openapi.document import Document, Node
from harborage.tools.http.openapi.operations import Found, describe, list_operations, server_of
from harborage.tools.http.operation import KEY_HEADER, Operation, Paging
from harborage.tools.http.values import Auth, check_auth, check_base, check_headers
from harborage.tools.model import Tool, ToolDescriptor
from harborage.tools.naming import marked, to_identifier
from harborage.tools.policy import ToolPolicy
from harborage.tools.sources import SourceServices, ToolLimits
from harborage.tools.text import clean_text

if TYPE_CHECKING:
    from harborage.secrets import Secret

MOST_AT_ONCE: Final = 30
"""Operations that every prompt may have without being selected; the tools of more are found by search."""

_SAFE: Final = frozenset({"get", "head", "put", "delete"})
_SOURCE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class OpenAPI:
    """The operations of an OpenAPI document as tools: `OpenAPI("figma.yaml", select=["getFile"], auth=Bearer(…))`.

    `document` is a path, or the document itself as bytes or a dict; it is read here, and nothing is fetched. `select`
    names operations by id, as `GET /v1/me`, as `tag:NAME`, or by globs of these; without it all become tools, and more
    than 30 are found by search. `rename` gives tools other names. `base_url` takes the place of the document's server.
    `effects` says what calls do, by operation (GET and HEAD `read`, the rest `external`); calls of those that are
    `idempotent` may be sent again with the same key, and with `safe_methods` those of GET, HEAD, PUT and DELETE.
    `approve` are those that a person must approve. `pagination` says how lists go on, by operation. `key_header` is
    where the key of a call is sent; empty for nowhere. `allow_hosts` are private hosts that the document may name.

    Raises:
        DocumentError: it is no such document.
        InvalidOptionError: an option does not fit it; the text has the nearest names.
        HeaderConflictError: a header, or a parameter of a selected operation, belongs to the connection or the auth.
    """

    def __init__(
        self,
        document: str | PathLike[str] | bytes | Mapping[str, Any],
        *,
        name: str = "",
        select: Iterable[str] = (),
        rename: Mapping[str, str] = {},
        base_url: str = "",
        headers: Mapping[str, str | Secret] = {},
        auth: Auth | None = None,
        effects: Mapping[str, SideEffect | str] = {},
        idempotent: Iterable[str] = (),
        safe_methods: bool = False,
        approve: Iterable[str] = (),
        pagination: Mapping[str, Paging | Mapping[str, Any]] = {},
        key_header: str = KEY_HEADER,
        allow_hosts: Iterable[str] = (),
        policy: ToolPolicy = ToolPolicy(),  # noqa: B008 - a frozen value
        limits: ToolLimits = ToolLimits(),  # noqa: B008 - a frozen value
        folder: str | PathLike[str] = "",
    ) -> None:
        self.name = name or _name_of(document)
        if not _SOURCE_NAME.fullmatch(self.name):
            raise InvalidOptionError("name", self.name, "letters, digits, _ and -: the tools begin with it")
        check_auth(auth)
        check_headers(headers, auth, self.name)
        check_base("base_url", base_url)
        found = Document(document)
        options = _Options(
            source=self.name,
            rename=dict(rename),
            base_url=base_url.rstrip("/"),
            fixed=frozenset(one.lower() for one in headers),
            auth=auth,
            effects=effects_in(effects),
            idempotent=names_in("idempotent", idempotent),
            safe_methods=safe_methods,
            approve=names_in("approve", approve),
            pagination=_pagings(pagination),
            key_header=key_header,
            policy=policy,
            limits=limits,
        )
        self._tools = _tools_of(found, options, names_in("select", select))
        self._peer = Peer(
            auth=auth,
            headers=dict(headers),
            trusted=(base_url,) if base_url else (),
            allow_hosts=names_in("allow_hosts", allow_hosts),
            folder=Path(folder),
        )

    def __repr__(self) -> str:
        return f"OpenAPI({self.name!r}, {len(self._tools)} operations)"

    @property
    def known(self) -> Sequence[ToolDescriptor[Any]]:
        """The tools, as far as they are known before the source is open: all."""
        return [one.descriptor for one in self._tools]

    def open(self, services: SourceServices) -> OpenHTTP:
        """Return the open source."""
        return OpenHTTP(self._tools, self._peer, services)


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    rename: dict[str, str]
    base_url: str
    fixed: frozenset[str]
    auth: Auth | None
    effects: dict[str, SideEffect]
    idempotent: tuple[str, ...]
    safe_methods: bool
    approve: tuple[str, ...]
    pagination: dict[str, Paging]
    key_header: str
    policy: ToolPolicy
    limits: ToolLimits


class _Sending(msgspec.Struct, frozen=True, kw_only=True):
    """How the auth of the operator is sent with an operation; `refusal` says why it cannot be called."""

    needs_auth: bool = False
    header: str = ""
    query: str = ""
    cookie: str = ""
    refusal: str = ""


def _tools_of(document: Document, options: _Options, select: tuple[str, ...]) -> list[HTTPTool]:
    listed = _with_names(list_operations(document), options)
    known = [names for _, names in listed]
    check_patterns("select", select, known)
    for option in ("rename", "effects", "idempotent", "approve", "pagination"):
        check_patterns(option, getattr(options, option), known)
    chosen = [(found, names) for found, names in listed if not select or any_match(select, names)]
    if len(chosen) > options.limits.tools_per_server:
        most = options.limits.tools_per_server
        text = f"select: the document has {len(chosen):,} operations, a source at most {most:,}; select some"
        raise InvalidOptionError("select", len(chosen), message=text)
    is_deferred = not select and len(chosen) > MOST_AT_ONCE
    loading = Loading.DEFERRED if is_deferred else Loading.ALWAYS
    return [_tool(document, found, names, options, loading) for found, names in chosen]


def _with_names(listed: list[Found], options: _Options) -> list[tuple[Found, Names]]:
    """The operations with the names of their tools, each of which only one has."""
    given: list[tuple[Found, Names]] = []
    taken: set[str] = set()
    for found in listed:
        tool = f"{options.source}_{found.short}"
        names = Names(found.short, found.line, tool, found.tags, tool)
        renamed = first_match(options.rename, names)
        tool = tool if renamed is None else renamed
        if tool in taken:
            tool = marked(tool, options.source, found.line)
        taken.add(tool)
        given.append((found, names._replace(tool=tool)))
    return given


def _tool(document: Document, found: Found, names: Names, options: _Options, loading: Loading) -> HTTPTool:
    effect = first_match(options.effects, names)
    if effect is None:
        effect = SideEffect.READ if found.method in ("get", "head") else SideEffect.EXTERNAL
    is_keyed = any_match(options.idempotent, names) or (options.safe_methods and found.method in _SAFE)
    shown = Tool(
        name=names.tool,
        description=clean_text(found.description, options.limits.description_bytes),
        side_effects=effect,
        idempotent=is_keyed,
        tags=tuple(dict.fromkeys(tag for tag in found.tags if tag)),
        loading=loading,
        source=f"openapi:{options.source}",
        transport=Transport.HTTP,
        policy=options.policy,
    )
    approval = "always" if any_match(options.approve, names) else None
    try:
        operation, schema = _operation(document, found, names, options, effect=effect, is_keyed=is_keyed)
    except DocumentError as error:
        return unavailable_tool(shown, str(error))
    return make_tool(msgspec.structs.replace(shown, args_schema=schema), operation, approval)


def _operation(
    document: Document, found: Found, names: Names, options: _Options, *, effect: SideEffect, is_keyed: bool
) -> tuple[Operation, dict[str, Any]]:
    sending = _sending_of(document, found, options.auth)
    if sending.refusal:
        raise DocumentError("auth", names.tool, message=sending.refusal)
    what = describe(document, found, fixed=options.fixed, auth=options.auth, name=names.tool, limits=options.limits)
    what.check_own(sending.query, sending.header, names.tool)
    base = options.base_url or server_of(document, found)
    if not base:
        text = 'base_url: the document names no server with a whole address; give base_url="https://…"'
        raise InvalidOptionError("base_url", "", message=text)
    operation = Operation(
        name=names.tool,
        method=found.method.upper(),
        base=base,
        path=found.path,
        arguments=what.arguments,
        body=what.body,
        needs_auth=sending.needs_auth,
        auth_header=sending.header,
        auth_query=sending.query,
        auth_cookie=sending.cookie,
        key_header=options.key_header,
        paging=first_match(options.pagination, names),
        is_foreign=not options.base_url,
        effect=effect,
        is_keyed=is_keyed,
    )
    return operation, what.schema


def _sending_of(document: Document, found: Found, auth: Auth | None) -> _Sending:
    """How the operator's auth fits what an operation wants."""
    wanted = found.node.get("security")
    wanted = wanted if wanted.value is not None else document.root.get("security")
    alternatives = [[name for name, _ in one.items()] for one in wanted.each()]
    own = auth if isinstance(auth, ApiKey) else None
    plain = _Sending(
        needs_auth=auth is not None, header="" if own is None else own.header, query="" if own is None else own.query
    )
    if not alternatives:
        if isinstance(wanted.value, list):
            return _Sending()  # it says that it wants none
        if own is not None and not own.header and not own.query:
            text = "auth: the document does not say where its key goes; ApiKey(…, header=…) or query=… says it"
            raise InvalidOptionError("ApiKey", "", message=text)
        return plain
    schemes = document.root.get("components").get("securitySchemes")
    for names in alternatives:
        if len(names) == 1 and auth is not None:
            scheme = document.resolve(schemes.get(names[0]))
            if (fitting := _fit(scheme, auth)) is not None:
                return fitting
    if any(not names for names in alternatives):
        return _Sending()
    ways = " or ".join(" and ".join(_scheme_text(schemes.get(name), name) for name in one) for one in alternatives)
    return _Sending(refusal=f"it wants {clean_text(ways, 256, one_line=True)}, which auth= does not give")


def _fit(scheme: Node, auth: Auth) -> _Sending | None:
    """How the auth is sent where the document wants this scheme; None where it is another."""
    kind, where, key = scheme.text("type"), scheme.text("in"), scheme.text("name")
    match auth:
        case Bearer():
            is_bearer = kind in ("oauth2", "openIdConnect") or (
                kind == "http" and scheme.text("scheme").lower() == "bearer"
            )
            is_by_hand = kind == "apiKey" and where == "header" and key.lower() == "authorization"
            return _Sending(needs_auth=True) if is_bearer or is_by_hand else None
        case ApiKey(_, header, query):
            if kind != "apiKey" or (header and (where, key.lower()) != ("header", header.lower())):
                return None
            if query and (where, key) != ("query", query):
                return None
            places = {"header": where == "header", "query": where == "query", "cookie": where == "cookie"}
            found = {place: key if is_there else "" for place, is_there in places.items()}
            return _Sending(needs_auth=True, **found)
        case CookieAuth(name, _):
            return _Sending(needs_auth=True) if kind == "apiKey" and (where, key) == ("cookie", name) else None


def _scheme_text(scheme: Node, name: str) -> str:
    kind, where, key = scheme.text("type"), scheme.text("in"), scheme.text("name")
    match kind:
        case "apiKey":
            return f"a key ({name}: {where} {key})"
        case "http":
            return f"{scheme.text('scheme') or 'http'} ({name})"
        case _:
            return f"{kind or 'auth'} ({name})"


def _pagings(given: Mapping[str, Any]) -> dict[str, Paging]:
    found: dict[str, Paging] = {}
    for pattern, one in given.items():
        where = f"pagination[{pattern!r}]"
        try:
            paging = one if isinstance(one, Paging) else msgspec.convert(one, Paging)
        except msgspec.ValidationError as error:
            raise InvalidOptionError(where, "", message=f"{where}: {error}") from error
        unknown = set(one) - set(Paging.__struct_fields__) if isinstance(one, Mapping) else set()
        ways = [bool(paging.link), bool(paging.cursor and paging.next), bool(paging.page)]
        if unknown or sum(ways) != 1:
            what = f"there is no {min(unknown)!r}; " if unknown else ""
            text = f"{where}: {what}give one of link: true, cursor: and next:, or page:"
            raise InvalidOptionError(where, "", message=text)
        found[pattern] = paging
    return found


def _name_of(document: Any) -> str:
    if isinstance(document, bytes | Mapping):
        raise InvalidOptionError(
            "name", "", message='name: a document without a path needs one: OpenAPI(…, name="crm")'
        )
    return to_identifier(Path(document).stem) or "openapi"
