"""A console's static files beside the protocol: any other path is its page, except those that begin with `/v1/`."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from harborage.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

_BUILT: Final = Path(__file__).with_name("console")
_INDEX: Final = "index.html"
_OF_THE_SERVER: Final = ("/v1", "/healthz", "/readyz")
_LINKS: Final = "/artifacts/"  # the path without more is a page of the console
_TYPES: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json"}
_PAGE_HEADERS: Final = {"Referrer-Policy": "no-referrer"}

# Our own page says so, and keeps these rules: it runs no script and no style but its own files, whatever text a run
# brings to it. It may ask any runtime, and shows what it fetched there.
_OWN_MARK: Final = b'<meta name="generator" content="harborage-console"'
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
        "img-src 'self' blob: data:",
        "media-src 'self' blob:",
        "frame-src 'self' blob:",
        "connect-src 'self' http: https:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_OWN_HEADERS: Final = {
    **_PAGE_HEADERS,
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# The names of these files change with what is in them.
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASKED_AGAIN: Final = {"Cache-Control": "no-cache"}
_HASHED: Final = "assets"

BUILD_COMMAND: Final = "make console"
PLACEHOLDER: Final = f"""\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Harborage</title>
<p>This server has no console. In a checkout of Harborage <code>{BUILD_COMMAND}</code> builds it;
<code>--console-dir DIR</code> names the folder of another.</p></html>
"""


def console_folder(named: Path | None) -> Path | None:
    """Return the folder that was named, else that of the console which came with this package; None in a checkout
    where it was not built."""
    if named is not None:
        return named
    return _BUILT if (_BUILT / _INDEX).is_file() else None


class ConsoleFiles:
    """Answers every path that is not the server's own with a file of `folder`, or with its page.

    `is_development` tells our own page that this server gives a token to pages on its machine.

    Raises:
        InvalidOptionError: `folder` has no index.html.
    """

    def __init__(self, folder: Path | None, *, is_development: bool = False) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._is_development = is_development
        if self._folder is None:
            self._is_own = False
            return
        if not (self._folder / _INDEX).is_file():
            raise InvalidOptionError("console_dir", str(folder), "a folder with an index.html: the build of a console")
        self._is_own = _OWN_MARK in (self._folder / _INDEX).read_bytes()

    async def answer(self, request: Request) -> Response:
        """Return the file of the request's path, or the page."""
        path = request.url.path
        if path.startswith(_LINKS) or any(path == own or path.startswith(f"{own}/") for own in _OF_THE_SERVER):
            return PlainTextResponse("Not Found", 404)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Method Not Allowed", 405, {"Allow": "GET, HEAD"})
        if self._folder is None:
            return HTMLResponse(PLACEHOLDER, headers=_PAGE_HEADERS)
        index = self._folder / _INDEX
        found = self._file(path) or index
        if self._is_own and self._is_development and found == index:
            page = index.read_bytes().replace(b"<html", b'<html data-attach="dev"', 1)
            return HTMLResponse(page, headers=self._headers(index))
        kind = _TYPES.get(found.suffix) or mimetypes.guess_type(found.name)[0]
        return FileResponse(found, media_type=kind or "application/octet-stream", headers=self._headers(found))

    def _headers(self, found: Path) -> Mapping[str, str]:
        assert self._folder is not None
        if not self._is_own:
            return _PAGE_HEADERS
        is_hashed = found.parent == self._folder / _HASHED
        return {**_OWN_HEADERS, **(_FOR_EVER if is_hashed else _ASKED_AGAIN)}

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
