"""The OpenAPI 3.1 document of a server: made from the table of methods and the shapes of their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from harborage.protocol.errors import STATUS, Code, ErrorBody
from harborage.protocol.methods import CONTROLS, METHODS, PROTOCOL_VERSION, IdentityRule, Method

OPENAPI_VERSION: Final = "3.1.0"

_EVERYWHERE: Final = (
    Code.INVALID_REQUEST,
    Code.IDENTITY_REQUIRED,
    Code.AUTH_REJECTED,
    Code.SCOPE_MISMATCH,
    Code.UNKNOWN_METHOD,
    Code.NOT_FOUND,
    Code.RUNTIME_ERROR,
)
_BESIDES: Final[Mapping[str, tuple[Code, ...]]] = {
    **dict.fromkeys(CONTROLS, (Code.PAYLOAD_INVALID,)),
    "artifacts.put": (Code.REQUEST_TOO_LARGE,),
    "artifacts.get_ref": (Code.PRESIGN_UNSUPPORTED,),
}


class Shapes(NamedTuple):
    """The shapes of one method's messages."""

    request: type[msgspec.Struct]
    answer: type[msgspec.Struct]


def document(
    shapes: Mapping[str, Shapes],
    methods: Iterable[Method],
    *,
    title: str,
    version: str,
    others: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return the document for those of `methods` that have shapes, for the stream of events, and for `others`: the
    items of paths that are no methods."""
    offered = [method for method in methods if method.name in shapes]
    types: list[Any] = [ErrorBody]
    for method in offered:
        types += shapes[method.name]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    error, of_messages = schemas[0], iter(schemas[1:])
    paths = {
        method.path: {"post": _operation(method, next(of_messages), next(of_messages), error)} for method in offered
    }
    paths[METHODS["events.subscribe"].path] = {"get": _stream(error)}
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": title, "version": version, "x-harbor-protocol-version": PROTOCOL_VERSION},
        "security": [{"token": []}],
        "paths": {**paths, **others},
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _operation(
    method: Method, request: dict[str, Any], answer: dict[str, Any], error: dict[str, Any]
) -> dict[str, Any]:
    body = {"required": method.needs_body, "content": {"application/json": {"schema": request}}}
    return {
        "operationId": method.name,
        "tags": [method.name.partition(".")[0]],
        "parameters": [_SESSION],
        "requestBody": body,
        "responses": {
            "200": _response("What was asked for.", answer),
            **_refusals(method, error),
        },
        **({"x-harbor-capability": str(method.capability)} if method.capability else {}),
        **({"x-harbor-identity": "all or none"} if method.identity is IdentityRule.EXACT else {}),
    }


def _refusals(method: Method, error: dict[str, Any]) -> dict[str, Any]:
    codes = (*_EVERYWHERE, *_BESIDES.get(method.name, ()))
    if method.identity in (IdentityRule.MATCHING, IdentityRule.NOT_READ):
        codes = (*codes, Code.IDENTITY_SCOPE_REQUIRED)
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(STATUS[code], []).append(f"`{code}`")
    return {str(status): _response(" or ".join(named), error) for status, named in sorted(by_status.items())}


def _response(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _stream(error: dict[str, Any]) -> dict[str, Any]:
    query = [
        _parameter("type", "query", "Only events of these types.", {"type": "array", "items": {"type": "string"}}),
        _parameter("run", "query", "Only events of this run."),
        _parameter("children", "query", "`1`: those of the runs below it, too.", {"type": "string", "enum": ["1"]}),
        _parameter("after", "query", "Begin behind this sequence.", {"type": "integer", "minimum": 0}),
        _parameter("admin", "query", "`1`: every session; needs a scope.", {"type": "string", "enum": ["1"]}),
    ]
    headers = [
        _SESSION,
        _parameter("Last-Event-ID", "header", "Begin behind this sequence; wins over `after`."),
        _parameter("X-Harbor-Run", "header", "As `run`."),
        _parameter("X-Harbor-Event-Type", "header", "As `type`."),
    ]
    statuses = {401: "not known who asks", 403: "a scope is missing", 429: "too many streams", 500: "no stream"}
    return {
        "operationId": "events.subscribe",
        "tags": ["events"],
        "parameters": [*headers, *query],
        "responses": {
            "200": {
                "description": "Events as they happen.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **{str(status): _response(text, error) for status, text in statuses.items()},
            "503": _response("the server is stopping", error),
        },
    }


def _parameter(name: str, place: str, text: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": False,
        "description": text,
        "schema": _TEXT if schema is None else schema,
    }


_TEXT: Final = {"type": "string"}
_SESSION: Final = _parameter("X-Harbor-Session", "header", "The session; that of the token by default.")
