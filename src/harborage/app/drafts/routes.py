"""`/v1/dev/drafts`: a page makes, edits, checks and saves projects. Only a development server has it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harborage.app.drafts.workspace import DraftError, Problem, Workspace
from harborage.app.new_project import is_name
from harborage.events import (
    DevDraftCreatedPayload,
    DevDraftDiscardedPayload,
    DevDraftPreviewedPayload,
    DevDraftSavedPayload,
    DevDraftUpdatedPayload,
    Event,
    EventType,
)
from harborage.protocol.decoding import parse_body
from harborage.protocol.errors import ProtocolError
from harborage.server.http import CLOSE, PeerTooSlowError, json_response, read_body

if TYPE_CHECKING:
    from pathlib import Path

    from harborage.events import Payload
    from harborage.identity import Identity
    from harborage.server.auth.gate import Gate
    from harborage.server.services import Services

PATH: Final = "/v1/dev/drafts"
MAX_BODY: Final = 2 * 1024 * 1024
TEMPLATE: Final = "minimal-react"

_VERBS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_STATUSES: Final = {
    "identity_required": 401,
    "not_found": 404,
    "output_dir_exists": 409,
    "internal_error": 500,
}
_INVALID: Final = "invalid_request"
T = TypeVar("T")


class Refused(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refusal, in the words of this API."""

    error: str
    code: str
    hint: str = ""


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a request."""


class CreateDraft(_Body, frozen=True, kw_only=True):
    """Make a draft of this name."""

    name: str
    template: str = ""


class WriteFile(_Body, frozen=True, kw_only=True):
    """Write a file: its text, or its bytes; neither makes it empty."""

    content: str | None = None
    content_base64: str | None = None


class SaveDraft(_Body, frozen=True, kw_only=True):
    """Copy a draft into a new folder of the project, by default one of its name."""

    name: str = ""
    output_dir: str = ""


class DraftCreated(msgspec.Struct, frozen=True):
    """A draft that was made."""

    draft_id: str
    template: str
    files: tuple[str, ...]
    file_count: int


class FileShown(msgspec.Struct, frozen=True):
    """A file with its bytes, as base64."""

    path: str
    size: int
    content: bytes


class DraftShown(msgspec.Struct, frozen=True):
    """A draft with its files."""

    id: str
    created_at: str
    updated_at: str
    files: list[FileShown]


class FileWritten(msgspec.Struct, frozen=True):
    """A file that was written."""

    draft_id: str
    path: str
    size: int


class DraftChecked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the configuration of a draft is right, and what is wrong with it."""

    draft_id: str
    ok: bool
    errors: list[Problem] = []


class DraftSaved(msgspec.Struct, frozen=True):
    """A draft that was copied into the project."""

    draft_id: str
    output_dir: str
    files: tuple[str, ...]
    file_count: int


class DraftDiscarded(msgspec.Struct, frozen=True):
    """A draft that is not there any more."""

    draft_id: str
    discarded: bool = True


class _Asked(NamedTuple):
    """A request of a caller; `id` and `path` are those of its address."""

    who: Identity
    body: bytes
    id: str
    path: str


class Drafts:
    """Serves the drafts of a project: `Server(extensions=[Drafts(folder).routes])`."""

    def __init__(self, root: Path) -> None:
        self._workspace = Workspace(root)

    def routes(self, services: Services, gate: Gate) -> list[Route]:
        """The routes, for a server."""
        serving = _Serving(self._workspace, services, gate)
        # Without `methods` a route is for any: which one an address takes is said in this API's own words.
        return [Route(f"{PATH}{{rest:path}}", serving.answer, methods=_VERBS)]


class _Serving:
    """Answers the requests to one server."""

    def __init__(self, workspace: Workspace, services: Services, gate: Gate) -> None:
        self._workspace = workspace
        self._services = services
        self._gate = gate

    async def answer(self, request: Request) -> Response:
        """Answer a request; a refusal and a failure are answers, too."""
        try:
            return await self._answer(request)
        except ClientDisconnect:
            return Response(status_code=400)  # its peer is gone
        except DraftError as error:
            return _refusal(error.code, str(error), error.hint)
        except PeerTooSlowError:
            return _refusal(_INVALID, "the body did not arrive in time", headers=CLOSE)
        except ProtocolError as error:
            is_identity = error.status in (401, 403)
            return _refusal("identity_required" if is_identity else _INVALID, error.body.message)
        except Exception as error:
            self._services.logger.error("%s failed: %s", PATH, type(error).__name__, exc_info=error)
            return _refusal("internal_error", "the server failed; its log says why")

    async def _answer(self, request: Request) -> Response:
        rest: str = request.path_params["rest"]
        found = self._find(rest.removesuffix("/"))
        if found is None:
            raise DraftError("not_found", f"there is nothing here; calls are below {PATH}")
        verbs, draft_id, path = found
        does = verbs.get(request.method)
        if does is None:
            allowed = ", ".join(sorted(verbs))
            return json_response(Refused(f"use {allowed}", _INVALID), 405, {"allow": allowed})
        caller = await self._gate.verify(request)
        body = await read_body(request, MAX_BODY, self._services)
        return await does(_Asked(caller.who, body, draft_id, path))

    def _find(self, rest: str) -> tuple[dict[str, Callable[[_Asked], Awaitable[Response]]], str, str] | None:
        """Return what an address takes, with the draft and the file that it names."""
        if not rest:
            return {"POST": self._create}, "", ""
        if not rest.startswith("/"):
            return None
        draft_id, _, then = rest[1:].partition("/")
        if not then:
            return {"GET": self._read, "DELETE": self._discard}, draft_id, ""
        if then == "preview":
            return {"POST": self._check}, draft_id, ""
        if then == "save":
            return {"POST": self._save}, draft_id, ""
        what, _, path = then.partition("/")
        return ({"PATCH": self._write}, draft_id, path) if what == "files" and path else None

    async def _create(self, asked: _Asked) -> Response:
        given = _read(asked.body, CreateDraft)
        template = given.template or TEMPLATE
        draft_id, files = await asyncio.to_thread(self._workspace.create, asked.who, given.name, template)
        await self._publish(EventType.DEV_DRAFT_CREATED, asked, DevDraftCreatedPayload(draft_id, template, len(files)))
        return json_response(DraftCreated(draft_id, template, files, len(files)), 201)

    async def _read(self, asked: _Asked) -> Response:
        draft = await asyncio.to_thread(self._workspace.read, asked.who, asked.id)
        shown = DraftShown(
            draft.id,
            draft.created_at.isoformat().replace("+00:00", "Z"),
            draft.updated_at.isoformat().replace("+00:00", "Z"),
            [FileShown(one.path, one.size, one.content) for one in draft.files],
        )
        return json_response(shown)

    async def _write(self, asked: _Asked) -> Response:
        data = _bytes_of(_read(asked.body, WriteFile))
        await asyncio.to_thread(self._workspace.write, asked.who, asked.id, asked.path, data)
        payload = DevDraftUpdatedPayload(asked.id, asked.path, len(data))
        await self._publish(EventType.DEV_DRAFT_UPDATED, asked, payload)
        return json_response(FileWritten(asked.id, asked.path, len(data)))

    async def _check(self, asked: _Asked) -> Response:
        problems = await asyncio.to_thread(self._workspace.check, asked.who, asked.id)
        payload = DevDraftPreviewedPayload(asked.id, not problems)
        await self._publish(EventType.DEV_DRAFT_PREVIEWED, asked, payload)
        return json_response(DraftChecked(asked.id, not problems, problems))

    async def _save(self, asked: _Asked) -> Response:
        given = _read(asked.body, SaveDraft)
        if given.name and not is_name(given.name):
            raise DraftError(_INVALID, "name: small letters, digits, - and _, such as shop-agent")
        place = (given.output_dir or given.name).removesuffix("/")
        if not place:
            raise DraftError(_INVALID, "output_dir: a new folder below that of the project")
        files = await asyncio.to_thread(self._workspace.save, asked.who, asked.id, place)
        payload = DevDraftSavedPayload(asked.id, place, len(files))
        await self._publish(EventType.DEV_DRAFT_SAVED, asked, payload)
        return json_response(DraftSaved(asked.id, place, files, len(files)))

    async def _discard(self, asked: _Asked) -> Response:
        if await asyncio.to_thread(self._workspace.discard, asked.who, asked.id):
            await self._publish(EventType.DEV_DRAFT_DISCARDED, asked, DevDraftDiscardedPayload(asked.id))
        return json_response(DraftDiscarded(asked.id))

    async def _publish(self, type: EventType, asked: _Asked, payload: Payload) -> None:
        await self._services.parts.bus.publish(Event(type, asked.who.with_run(""), payload))


def _refusal(code: str, message: str, hint: str = "", *, headers: Any = None) -> Response:
    return json_response(Refused(message, code, hint), _STATUSES.get(code, 400), dict(headers or {}))


def _read(body: bytes, kind: type[T]) -> T:
    """Return the body of a request.

    Raises:
        DraftError: `invalid_request`: it is empty, no JSON, or has other fields.
    """
    try:
        return msgspec.convert(parse_body(body), kind)
    except ProtocolError as error:
        raise DraftError(_INVALID, error.body.message) from error
    except msgspec.ValidationError as error:
        raise DraftError(_INVALID, f"invalid request: {error}") from error


def _bytes_of(given: WriteFile) -> bytes:
    if given.content is not None and given.content_base64 is not None:
        raise DraftError(_INVALID, "send content or content_base64, not both")
    if given.content_base64 is None:
        return (given.content or "").encode()
    try:
        return base64.b64decode(given.content_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DraftError(_INVALID, "content_base64 is no standard base64") from error
