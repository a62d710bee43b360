"""One operation of an HTTP peer as data: where each argument goes, what is sent, and how its lists go on."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from harborage.tools.enums import SideEffect

KEY_HEADER = "Idempotency-Key"
"""The header that carries the key of a call, unless an operation names another one."""


class Place(StrEnum):
    """Where an argument goes."""

    PATH = "path"
    QUERY = "query"
    HEADER = "header"
    BODY = "body"


class Style(StrEnum):
    """How a list or an object is written into a path, a query or a header."""

    EXPLODED = "exploded"  # a=1&a=2; fields of an object one by one
    COMMA = "comma"
    SPACE = "space"
    PIPE = "pipe"
    DEEP = "deep"  # filter[status]=open
    JSON = "json"


class Argument(msgspec.Struct, frozen=True):
    """An argument of the tool: its `name` there, the `key` under which the peer gets it, and the `schema` of both."""

    name: str
    place: Place
    key: str
    schema: dict[str, Any] = {}
    required: bool = False
    style: Style = Style.EXPLODED


class BodyKind(StrEnum):
    """What a body is."""

    JSON = "json"
    FORM = "form"
    MULTIPART = "multipart"
    TEXT = "text"
    BYTES = "bytes"


class Body(msgspec.Struct, frozen=True):
    """The body of an operation. One that is `spread` is an object of the arguments whose place is the body.

    `media` is its type. `files` are the fields of a form that are files, each given as the id of an artifact.
    """

    kind: BodyKind
    media: str
    spread: bool = True
    files: frozenset[str] = frozenset()


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """How a list goes on, one of:

    - `link`: the header `Link` names the next page, as `rel="next"`;
    - `cursor`: the argument of the query or the body that takes the cursor, which the answer has at `next`;
    - `page`: the argument that takes the number of the page; `size` is the one for how many items a page has. A page
      with fewer items, or none, is the last one.

    `items` is where the answer has its list, as names with dots between them; empty where the answer is the list.
    """

    link: bool = False
    cursor: str = ""
    next: str = ""
    page: str = ""
    size: str = ""
    items: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation. `path` has `{key}` where arguments go; `base` is the address before it.

    `headers` and `query` are templates of what is sent besides, `template` is one of the body. `needs_auth` says
    whether the operator's auth is sent; `auth_header` and `auth_query` are where its key goes. `key_header` carries the
    idempotency key; empty for none. `is_foreign` says that the base was not written by the operator.
    """

    name: str
    method: str
    base: str
    path: str = ""
    arguments: tuple[Argument, ...] = ()
    body: Body | None = None
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    template: str | None = None
    needs_auth: bool = True
    auth_header: str = ""
    auth_query: str = ""
    auth_cookie: str = ""
    key_header: str = KEY_HEADER
    paging: Paging | None = None
    is_foreign: bool = False
    effect: SideEffect = SideEffect.EXTERNAL
    is_keyed: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether a call that was not answered may be sent again."""
        return self.is_keyed or self.effect in (SideEffect.PURE, SideEffect.READ)
