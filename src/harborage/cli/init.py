"""`harborage init` and `harborage scaffold`: write new projects."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from harborage.cli.pinned import Json, Quiet, fail

if TYPE_CHECKING:
    from harborage.app.new_project import NewProject, NewProjectError

_SHOWN: Final = 4
_FOLDER: Final = "The folder of the project, and its name."
_NAME: Final = "The name of the project."
_CONFIG: Final = "The configuration to copy, and to make tools from."
_PATCH: Final = "Write what is missing in a folder that is there; its files stay as they are."


def init(
    folder: Annotated[str, Parameter(help=_FOLDER, show_default="the current folder")] = "",
    /,
    *,
    name: Annotated[str, Parameter(help=_NAME, show_default="that of the folder, else agent")] = "",
    template: Annotated[str, Parameter(help="The template.")] = "default",
    target: Annotated[str, Parameter(help="The folder, if it is not called like the project.", show_default=".")] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Make a project with an agent, a tool, a test and a configuration.

    It works at once: without a key the agent gives canned answers, and says so.
    Nothing is written if one of its files is there already.

    To make one, test it and talk with it:

      harborage init shop && cd shop && make test && harborage chat

    Exit codes:
      0  the project was written
      1  nothing was written; the line says why
    """
    from harborage.app.new_project import NewProjectError, init_project

    try:
        made = init_project(name or folder, Path(target or folder or "."), template=template)
    except NewProjectError as error:
        return _refuse("init", error, is_json=json)
    root = made.folder.absolute()
    _report(made, {"name": made.name, "target_dir": str(root), "files": [str(root / file) for file in made.files]},
            is_json=json, is_quiet=quiet, then=_next(made.folder, "make test && harborage chat"))  # fmt: skip
    return 0


def scaffold(
    *,
    name: Annotated[str, Parameter(help=_NAME)],
    template: Annotated[str, Parameter(help="The template.")] = "minimal-react",
    output: Annotated[str, Parameter(help="The folder.", show_default="./NAME")] = "",
    from_config: Annotated[
        str, Parameter(help=_CONFIG, show_default="harborage.yaml of this folder, if it is there")
    ] = "",
    patch: Annotated[bool, Parameter(help=_PATCH, negative="", show_default=False)] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Make a project around a configuration.

    The configuration is checked, and copied as it is. Each entry of tools.custom
    becomes a typed function with a test, which returns empty values until you
    write it.

    To make one beside the configuration of this folder:

      harborage scaffold --name shop --from-config harborage.yaml

    Exit codes:
      0  the project was written
      1  nothing was written; the line says why
    """
    from harborage.app.new_project import NewProjectError, scaffold_project

    try:
        made = scaffold_project(
            name,
            Path(output or name),
            template=template,
            config=Path(from_config) if from_config else None,
            patches=patch,
            environ=os.environ,
        )
    except NewProjectError as error:
        return _refuse("scaffold", error, is_json=json)
    body: dict[str, Any] = {"name": made.name, "output_dir": str(made.folder), "files": [*made.files]}
    if made.skipped:
        body["skipped"] = [*made.skipped]
    _report(made, body, is_json=json, is_quiet=quiet, then=_next(made.folder, "make test"))
    return 0


def _refuse(command: str, error: NewProjectError, *, is_json: bool) -> int:
    return fail(command, str(error), error.code, hint=error.hint, is_json=is_json)


def _next(folder: Path, commands: str) -> str:
    is_here = folder.absolute() == Path.cwd()
    place = "" if is_here else f"cd {shlex.quote(str(folder))} && "
    tail = "     (works now, without a key)" if "chat" in commands else ""
    return f"  {place}{commands}{tail}"


def _report(made: NewProject, body: dict[str, Any], *, is_json: bool, is_quiet: bool, then: str) -> None:
    if is_json:
        from json import dumps

        sys.stdout.write(dumps(body, ensure_ascii=False) + "\n")
        return
    if is_quiet:
        return
    from harborage.cli.terminal import look_of
    from harborage.cli.text import printable

    shown = ", ".join(made.files[:_SHOWN]) or "nothing"
    more = f" and {len(made.files) - _SHOWN} more" if len(made.files) > _SHOWN else ""
    lines = [f"✓ {made.name}: {shown}{more}", then]
    if made.skipped:
        lines.insert(1, f"  {len(made.skipped)} {'file was' if len(made.skipped) == 1 else 'files were'} there already")
    look = look_of(sys.stdout, os.environ)
    sys.stdout.write("".join(f"{look.plain(printable(line))}\n" for line in lines))
