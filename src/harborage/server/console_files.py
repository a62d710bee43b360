"""A console's static files beside the protocol: any other path is its page, except those that begin with `/v1/`."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from harborage.errors import InvalidOptionError

if TYPE_CHECKING:
    from starlette.requests import Request

_INDEX: Final = "index.html"
_PAGE_HEADERS: Final = {"Referrer-Policy": "no-referrer"}
_OF_THE_SERVER: Final = ("/v1", "/healthz", "/readyz", "/artifacts")
_TYPES: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json"}
PLACEHOLDER: Final = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Harborage</title>
<p>This server has no console. Name the folder of one: <code>--console-dir DIR</code></p></html>
"""


class ConsoleFiles:
    """Answers every path that is not the server's own with a file of `folder`, or with its page.

    Raises:
        InvalidOptionError: `folder` has no index.html.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.resolve()
        if self._folder is not None and not (self._folder / _INDEX).is_file():
            raise InvalidOptionError("console_dir", str(folder), "a folder with an index.html: the build of a console")

    async def answer(self, request: Request) -> Response:
        """Return the file of the request's path, or the page."""
        path = request.url.path
        if any(path == own or path.startswith(f"{own}/") for own in _OF_THE_SERVER):
            return PlainTextResponse("Not Found", 404)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Method Not Allowed", 405, {"Allow": "GET, HEAD"})
        if self._folder is None:
            return HTMLResponse(PLACEHOLDER, headers=_PAGE_HEADERS)
        found = self._file(path) or self._folder / _INDEX
        kind = _TYPES.get(found.suffix) or mimetypes.guess_type(found.name)[0]
        return FileResponse(found, media_type=kind or "application/octet-stream", headers=_PAGE_HEADERS)

    def _file(self, path: str) -> Path | None:
        """The file below the folder that a path names; None if there is none, or it leads out of the folder."""
        assert self._folder is not None
        if "\0" in path:
            return None
        try:
            found = (self._folder / path.lstrip("/")).resolve()
            return found if found.is_relative_to(self._folder) and found.is_file() else None
        except OSError:
            return None  # a name that no file can have
