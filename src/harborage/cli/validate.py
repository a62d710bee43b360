"""`harborage validate`: checks a configuration file and says everything that is wrong with it, or prints its schema."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from harborage.cli.pinned import Json, Quiet, fail

if TYPE_CHECKING:
    from harborage.config import ConfigError, Finding, Loaded

_PATH: Final = "The file."
_SCHEMA: Final = "Print the JSON Schema of the file, for editors, and check nothing."
_FAILED: Final = "validation_failed"
_INTERNAL: Final = "validation_internal_error"


def validate(
    path: Annotated[str, Parameter(help=_PATH, show_default="harborage.yaml")] = "",
    /,
    *,
    schema: Annotated[bool, Parameter(help=_SCHEMA, negative="", show_default=False)] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Check a configuration file, and list everything that is wrong with it.

    Environment variables count as they do for a server: HARBORAGE_STATE_DSN sets
    state.dsn. No secret is read, and none is shown. Without harborage.yaml the
    file harbor.yaml is checked.

    Keys that have no effect in this version are listed as warnings.

    For an editor with a YAML language server:

      harborage validate --schema > .harborage/schema.json

    Exit codes:
      0  the file is right
      1  something in it is wrong
      2  it cannot be read
    """
    if schema:
        return _print_schema()
    from harborage.config import ConfigError, default_file, read_config
    from harborage.config.loader import read_file

    file = path or str(default_file())
    try:
        loaded = read_config(read_file(file), file=file, environ=os.environ)
        _check_tools(loaded)
    except ConfigError as error:
        return _refuse(file, error, is_json=json)
    except Exception as error:  # noqa: BLE001 - a fault of ours has an exit code of its own
        text = f"{file} cannot be checked: {type(error).__name__}"
        return fail("validate", text, _INTERNAL, is_json=json, exit_code=2, hint="report this, with the file")
    _accept(loaded, is_json=json, is_quiet=quiet)
    return 0


def _check_tools(loaded: Loaded) -> None:
    """Read the documents of tools that a configuration names; nothing is connected to.

    Raises:
        InvalidConfigurationError: one cannot be read, or an option does not fit it.
    """
    if not (loaded.config.tools.openapi or loaded.config.tools.http_manifests):
        return
    from harborage.app.configured_tools import tool_sources
    from harborage.config import InvalidConfigurationError

    _, findings = tool_sources(loaded)
    if findings:
        raise InvalidConfigurationError(findings)


def _print_schema() -> int:
    import json

    from harborage.config import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
    return 0


def _accept(loaded: Loaded, *, is_json: bool, is_quiet: bool) -> None:
    if is_json:
        import json

        notices = [_notice(one.path, one.message, one.line, one.column) for one in loaded.notices]
        body = {"ok": True, "file": loaded.file} | ({"notices": notices} if notices else {})
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if is_quiet:
        return
    from harborage.cli.text import printable

    sys.stdout.write(f"{printable(loaded.file)}: ok\n")
    sys.stdout.flush()
    for one in loaded.notices:
        place = f"{loaded.file}:{one.line}:{one.column}" if one.line else loaded.file
        sys.stderr.write(f"Warning: {printable(place)}: {printable(one.message)}\n")


def _notice(path: str, message: str, line: int, column: int) -> dict[str, Any]:
    return {"path": path, "message": message, "line": line, "column": column}


def _refuse(file: str, error: ConfigError, *, is_json: bool) -> int:
    findings = error.findings
    is_io = all(one.category.is_io for one in findings)
    count = len(findings)
    message = findings[0].message if is_io else f"{file} has {count} {'problem' if count == 1 else 'problems'}"
    return fail(
        "validate",
        message,
        _INTERNAL if is_io else _FAILED,
        hint=findings[0].hint if is_io else "nothing was started or changed",
        is_json=is_json,
        more={"errors": [_plain(one) for one in findings]},
        lines=() if is_io else [_line(one) for one in findings],
        exit_code=2 if is_io else 1,
    )


def _line(finding: Finding) -> str:
    hint = f" ({finding.hint})" if finding.hint else ""
    return f"{finding.place}: {finding.message}{hint}"


def _plain(finding: Finding) -> dict[str, Any]:
    made: dict[str, Any] = {
        "category": finding.category.value,
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
    }
    return made | ({"hint": finding.hint} if finding.hint else {})
