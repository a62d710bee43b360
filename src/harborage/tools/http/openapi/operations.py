"""The operations of a document: what each takes and sends, and why one cannot be offered. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from harborage.tools.http.errors import DocumentError, HeaderConflictError
from harborage.tools.http.openapi.document import METHODS, Document, Node
from harborage.tools.http.openapi.schemas import Schemas
from harborage.tools.http.operation import KEY_HEADER, Argument, Body, BodyKind, Place, Style
from harborage.tools.http.values import Auth, check_name
from harborage.tools.naming import marked, to_identifier
from harborage.tools.text import clean_text

if TYPE_CHECKING:
    from harborage.tools.sources import ToolLimits

_IGNORED: Final = frozenset({"accept", "content-type", "user-agent", KEY_HEADER.lower()})
_MOST_NAME: Final = 64
_STYLES: Final = {"spaceDelimited": Style.SPACE, "pipeDelimited": Style.PIPE, "deepObject": Style.DEEP}


class Found(NamedTuple):
    """An operation where it stands in the document."""

    method: str
    path: str
    node: Node
    item: Node

    @property
    def id(self) -> str:
        """The id that the document gives it; empty for none."""
        return self.node.text("operationId")

    @property
    def short(self) -> str:
        """Its name without that of the source."""
        return clean_text(self.id, 200, one_line=True) or to_identifier(f"{self.method} {self.path}")

    @property
    def line(self) -> str:
        """Its method and path, as `GET /v1/me`."""
        return f"{self.method.upper()} {self.path}"

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        return tuple(clean_text(one.value, 64, one_line=True) for one in self.node.get("tags").each() if one.value)

    @property
    def description(self) -> str:
        """What it does, in the words of the document."""
        parts = (self.node.text("summary").strip(), self.node.text("description").strip())
        return "\n\n".join(dict.fromkeys(part for part in parts if part)) or self.line


class Described(NamedTuple):
    """What the tool of an operation takes, and what is sent."""

    arguments: tuple[Argument, ...]
    body: Body | None
    schema: dict[str, Any]

    def check_own(self, query: str, header: str, name: str) -> None:
        """Accept arguments none of which goes where the auth goes.

        Raises:
            HeaderConflictError: one does.
        """
        for one in self.arguments:
            is_own = (one.place is Place.QUERY and one.key == query) or (
                one.place is Place.HEADER and one.key.lower() == header.lower()
            )
            if is_own:
                raise HeaderConflictError(name, one.key, "is the key of auth=; leave the operation out of select=")


def list_operations(document: Document) -> list[Found]:
    """Return every operation of the document, in its order."""
    found: list[Found] = []
    for path, node in document.root.get("paths").items():
        try:
            item = document.resolve(node)
        except DocumentError:
            continue  # a path that leads nowhere has no operations
        found += [
            Found(method, path, item.get(method), item)
            for method in METHODS
            if isinstance(item.get(method).value, Mapping)
        ]
    return found


def server_of(document: Document, found: Found) -> str:
    """Return the address of an operation's server; empty where the document names none, or only a relative one."""
    for holder in (found.node, found.item, document.root):
        for server in holder.get("servers").each():
            url = server.text("url")
            for name, variable in server.get("variables").items():
                url = url.replace(f"{{{name}}}", variable.text("default"))
            return url.rstrip("/") if url.startswith(("http://", "https://")) else ""
    return ""


def describe(
    document: Document, found: Found, *, fixed: frozenset[str], auth: Auth | None, name: str, limits: ToolLimits
) -> Described:
    """Return what an operation takes. `fixed` are the headers that the operator sends, in lower case.

    Raises:
        DocumentError: what it uses of the document is not sound.
        HeaderConflictError: a parameter of it belongs to the connection or the auth.
    """
    schemas = Schemas(document, limits)
    drafts = [*_parameters(document, found, schemas, fixed, auth, name)]
    body, of_body = _body(document, found, schemas)
    arguments = _named([*drafts, *of_body])
    properties = {one.name: one.schema for one in arguments}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [one.name for one in arguments if one.required]:
        schema["required"] = required
    return Described(tuple(arguments), body, schemas.checked(schema))


def _parameters(
    document: Document, found: Found, schemas: Schemas, fixed: frozenset[str], auth: Auth | None, name: str
) -> Iterator[Argument]:
    merged: dict[tuple[str, str], Node] = {}
    for holder in (found.item, found.node):
        for node in holder.get("parameters").each():
            one = document.resolve(node)
            merged[(one.text("in"), one.text("name"))] = one
    for (where, key), one in merged.items():
        if not key or where not in ("path", "query", "header", "cookie"):
            raise DocumentError("document", key, message="a parameter of it has no name or no place")
        is_required = one.get("required").value is True or where == "path"
        if where == "cookie":
            if is_required and key.lower() not in fixed:
                raise DocumentError(
                    "document", key, message=f"it needs the cookie {key}; give it in auth=CookieAuth(…)"
                )
            continue
        if where == "header" and (key.lower() in fixed or key.lower() in _IGNORED):
            continue
        if where != "path":
            check_name(key, auth, name, is_query=where == "query")
        schema, style = _schema_of(document, one, schemas)
        text = one.text("description")
        if text and "description" not in schema:
            schema = {**schema, "description": clean_text(text, 1024)}
        yield Argument(key, Place(where), key, schema, is_required, style)


def _schema_of(document: Document, parameter: Node, schemas: Schemas) -> tuple[dict[str, Any], Style]:
    media = next((content for _, content in parameter.get("content").items()), None)
    if media is not None:
        return schemas.convert(media.get("schema")), Style.JSON
    schema = schemas.convert(parameter.get("schema"))
    style, explode = parameter.text("style"), parameter.get("explode").value
    if style in _STYLES:
        return schema, _STYLES[style]
    is_exploded = explode if isinstance(explode, bool) else parameter.text("in") == "query"
    return schema, Style.EXPLODED if is_exploded else Style.COMMA


def _body(document: Document, found: Found, schemas: Schemas) -> tuple[Body | None, list[Argument]]:
    if not isinstance(found.node.get("requestBody").value, Mapping):
        return None, []
    node = document.resolve(found.node.get("requestBody"))
    chosen = _choose_media(node)
    if chosen is None:
        return None, []
    media, kind, content = chosen
    is_required = node.get("required").value is True
    if kind is BodyKind.BYTES:
        what = {"type": "string", "format": "artifact-id", "description": "The id of the artifact that is sent."}
        return Body(kind, media, spread=False), [Argument("body", Place.BODY, "body", what, is_required)]
    if kind is BodyKind.TEXT:
        return Body(kind, media, spread=False), [Argument("body", Place.BODY, "body", {"type": "string"}, is_required)]
    fields = _fields_of(document, content.get("schema"))
    if fields is None:
        if kind is not BodyKind.JSON:
            raise DocumentError("document", media, message=f"its body is a form ({media}) without fields")
        schema = schemas.convert(content.get("schema"))
        return Body(kind, media, spread=False), [Argument("body", Place.BODY, "body", schema, is_required)]
    arguments, files = [], set[str]()
    for key, (one, needed) in fields.items():
        schema = schemas.convert(one)
        if kind is BodyKind.MULTIPART and _is_file(document, one):
            files.add(key)
            schema = _file_schema(schema)
        arguments.append(Argument(key, Place.BODY, key, schema, needed and is_required))
    return Body(kind, media, files=frozenset(files)), arguments


def _choose_media(node: Node) -> tuple[str, BodyKind, Node] | None:
    """The type in which a body is sent, of those that the operation takes: JSON before forms before anything else."""
    ranked: list[tuple[int, str, BodyKind, Node]] = []
    for media, content in node.get("content").items():
        bare = media.partition(";")[0].strip().lower()
        if bare.endswith(("/json", "+json")):
            ranked.append((0, media, BodyKind.JSON, content))
        elif bare == "application/x-www-form-urlencoded":
            ranked.append((1, media, BodyKind.FORM, content))
        elif bare == "multipart/form-data":
            ranked.append((2, media, BodyKind.MULTIPART, content))
        elif bare.startswith("text/"):
            ranked.append((3, media, BodyKind.TEXT, content))
        elif bare == "*/*":
            ranked.append((4, "application/json", BodyKind.JSON, content))
        else:
            ranked.append((5, media, BodyKind.BYTES, content))
    if not ranked:
        return None
    _, media, kind, content = min(ranked, key=lambda one: one[0])
    return media, kind, content


def _fields_of(document: Document, schema: Node) -> dict[str, tuple[Node, bool]] | None:
    """The fields of an object, each with whether it is required; None for what is no plain object of named fields."""
    node = document.resolve(schema)
    if not isinstance(node.value, Mapping) or any(name in node.value for name in ("oneOf", "anyOf", "not")):
        return None
    if node.get("additionalProperties").value not in (None, False, True) or node.get("nullable").value is True:
        return None
    if node.value.get("additionalProperties") is True and not node.get("properties").value:
        return None
    fields: dict[str, tuple[Node, bool]] = {}
    for part in node.get("allOf").each():
        inner = _fields_of(document, part)
        if inner is None:
            return None
        fields |= inner
    required = node.get("required").value
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    for key, one in node.get("properties").items():
        if not (isinstance(one.value, Mapping) and one.value.get("readOnly") is True):
            fields[key] = (one, key in needed)
    fields = {key: (one, is_needed or key in needed) for key, (one, is_needed) in fields.items()}
    return fields or None


def _is_file(document: Document, node: Node) -> bool:
    found = document.resolve(node)
    if found.text("type") == "array":
        return _is_file(document, found.get("items"))
    is_binary = found.text("format") in ("binary", "byte") or bool(found.text("contentMediaType"))
    return found.text("type") == "file" or (found.text("type") == "string" and is_binary)


def _file_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    text = str(schema.get("description", "")) or "A file."
    one = {"type": "string", "format": "artifact-id", "description": f"{text} Give the id of an artifact."}
    return {"type": "array", "items": one} if schema.get("type") == "array" else one


def _named(drafts: list[Argument]) -> list[Argument]:
    """The arguments with names that differ: equal ones begin with their place."""
    keys = [one.key for one in drafts]
    named: list[Argument] = []
    taken: set[str] = set()
    for one in drafts:
        name = f"{one.place}_{one.key}" if keys.count(one.key) > 1 else one.key
        if not (name.isascii() and to_identifier(name) == name.strip("_") and len(name) <= _MOST_NAME):
            name = to_identifier(name)[:_MOST_NAME] or str(one.place)
        if name in taken:
            name = marked(name, str(one.place), one.key)
        taken.add(name)
        named.append(msgspec.structs.replace(one, name=name))
    return named
