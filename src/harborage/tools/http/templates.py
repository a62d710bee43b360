"""Templates of declared endpoints: `{{.Args.city}}`, and `{{.Args.city | urlquery}}`, in addresses, headers and bodies.

Pure. A value cannot leave its place: it is quoted in an address, and is JSON in a body that is JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from harborage import codec
from harborage.errors import InvalidOptionError
from harborage.tools.errors import ToolInvalidArgsError
from harborage.tools.http.errors import TemplateSecretLeakError

_ACTION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH: Final = r"\.Args((?:\.[A-Za-z_][A-Za-z0-9_-]*)+)"
_FORM: Final = re.compile(rf"\s*(?:{_PATH}(\s*\|\s*urlquery)?|urlquery\s+{_PATH})\s*")


def check_template(text: str, where: str) -> None:
    """Accept a template.

    Raises:
        TemplateSecretLeakError: it names `.Auth`.
        InvalidOptionError: it is written in a way that means nothing here.
    """
    for action in _ACTION.findall(text):
        if ".Auth" in action:
            fix = "name the secret in auth=, which puts it where it belongs"
            raise TemplateSecretLeakError(where, "", message=f"{where}: a template has no .Auth; {fix}")
        if not _FORM.fullmatch(action):
            fix = "write {{.Args.name}} or {{.Args.name | urlquery}}"
            raise InvalidOptionError(where, action, message=f"{where}: {{{{{action}}}}} is no template; {fix}")


def names_in(text: str) -> Iterator[str]:
    """Yield the arguments that a template names."""
    for action in _ACTION.findall(text):
        if found := _FORM.fullmatch(action):
            yield (found[1] or found[3]).split(".")[1]


def fill(text: str, args: Mapping[str, Any], *, quoted: bool = False) -> str:
    """Return a template with its arguments; each `quoted` for an address where its template does not say so itself.

    Raises:
        ToolInvalidArgsError: an argument is missing.
    """
    return _filled(text, args, lambda value, _: quote(value, safe="") if quoted else value)


def fill_json(text: str, args: Mapping[str, Any]) -> str:
    """Return a template of a body. In one that is JSON, a value stands as JSON, and within a text as a part of it.

    Raises:
        ToolInvalidArgsError: an argument is missing.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return fill(text, args)
    return _filled(text, args, lambda value, _: codec.encode(value).decode()[1:-1], is_json=True)


def _filled(text: str, args: Mapping[str, Any], write: Callable[[str, bool], str], *, is_json: bool = False) -> str:
    def one(found: re.Match[str]) -> str:
        form = _FORM.fullmatch(found[1])
        if form is None:
            return found[0]
        value = _lookup(args, (form[1] or form[3])[1:])
        if form[2] or form[3]:
            return quote(_shown(value), safe="")
        is_within = is_json and text[: found.start()].count('"') % 2 == 1
        if is_json and not is_within:
            return codec.encode(value).decode()
        return write(_shown(value), is_within)

    return _ACTION.sub(one, text)


def _lookup(args: Mapping[str, Any], path: str) -> Any:
    found: Any = args
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise ToolInvalidArgsError(f'"{name}" is a required property', f"$.{path}")
        found = found[name]
    return found


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode(value).decode()
