"""The errors of commands whose codes and exit codes the protocol pins: one line, or one JSON object, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from cyclopts import Parameter

INVOCATION_ERROR: Final = "invocation_error"

Json: TypeAlias = Annotated[bool, Parameter(help="Print one JSON object, errors too.", negative="", show_default=False)]
Quiet: TypeAlias = Annotated[bool, Parameter(help="Print nothing but errors.", negative="", show_default=False)]


def fail(
    command: str,
    message: str,
    code: str,
    *,
    hint: str = "",
    is_json: bool = False,
    more: Mapping[str, Any] = {},
    lines: Sequence[str] = (),
    exit_code: int = 1,
) -> int:
    """Write why a command failed; returns its exit code. `more` goes into the JSON object, `lines` below the line."""
    if is_json:
        import json  # loaded for those who ask for it

        body = {"error": message, "code": code} | ({"hint": hint} if hint else {}) | dict(more)
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
        return exit_code
    from harborage.cli.text import printable

    tail = f" ({hint})" if hint else ""
    shown = [f"Error: harborage {command}: {message}{tail}", *(f"  {line}" for line in lines)]
    sys.stderr.write("".join(f"{printable(line)}\n" for line in shown))
    return exit_code
