"""New projects: the files of `harborage init` and `harborage scaffold`, planned first and written all or none."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from harborage.app import project_templates as texts
from harborage.config import ConfigError, read_config
from harborage.config.loader import FILE_NAME, default_file, read_file
from harborage.config.tool_values import CustomTool
from harborage.errors import HarborageError

INIT_TEMPLATES: Final = ("default",)
SCAFFOLD_TEMPLATES: Final = ("minimal-react",)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPES: Final = {
    "string": ("str", '""'),
    "integer": ("int", "0"),
    "number": ("float", "0.0"),
    "boolean": ("bool", "False"),
    "[]string": ("list[str]", "[]"),
}


class NewProjectError(HarborageError):
    """A project cannot be made, and nothing was written. `code` says which rule, `hint` the way out."""

    def __init__(self, code: str = "", message: str = "", *, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(message)


class NewProject(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: the folder, the files in it as relative paths, and those that were there already."""

    name: str
    folder: Path
    files: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def is_name(text: str) -> bool:
    """Whether a project may be called that: up to 64 small letters, digits, - and _."""
    return _NAME.fullmatch(text) is not None


def init_project(name: str, folder: Path, *, template: str = "default") -> NewProject:
    """Write a project that works at once: agent, test, configuration and texts.

    Raises:
        NewProjectError: `init_invalid_project_name`, `init_unknown_template`, `init_file_exists`, `init_failed`.
    """
    name = name or (folder.resolve().name if is_name(folder.resolve().name) else "agent")
    _check_name(name, "init_invalid_project_name")
    _check_template(template, INIT_TEMPLATES, "init_unknown_template")
    plan = {
        "agent.py": texts.AGENT,
        "tests/test_agent.py": texts.AGENT_TEST,
        "Makefile": texts.MAKEFILE,
        "README.md": texts.README,
        FILE_NAME: texts.CONFIG,
        "AGENTS.md": texts.ASSISTANTS,
        "CLAUDE.md": texts.ASSISTANTS,
    }
    there = [file for file in plan if os.path.lexists(folder / file)]
    if there:
        hint = "choose another folder: harborage init NAME"
        raise NewProjectError("init_file_exists", f"{', '.join(there)} is there already in {folder}", hint=hint)
    _write(folder, {file: _filled(text, NAME=name).encode() for file, text in plan.items()}, "init_failed")
    return NewProject(name=name, folder=folder, files=tuple(plan))


def scaffold_project(
    name: str,
    folder: Path,
    *,
    template: str = "minimal-react",
    config: Path | None = None,
    patches: bool = False,
    environ: Mapping[str, str] = {},
) -> NewProject:
    """Write a project around a configuration: an agent, and for each declared tool a stub and a test.

    The configuration is `config`, else that of the current folder, copied as it is; without one a new one is written.
    With `patches` the folder may be there, and files in it stay as they are.

    Raises:
        NewProjectError: `invalid_project_name`, `unknown_template`, `output_dir_exists`, `upstream_config_invalid`,
            `scaffold_failed`.
    """
    _check_name(name, "invalid_project_name")
    _check_template(template, SCAFFOLD_TEMPLATES, "unknown_template")
    if os.path.lexists(folder) and not patches:
        hint = "--patch writes what is missing in it, --output names another folder"
        raise NewProjectError("output_dir_exists", f"{folder} is there already", hint=hint)
    data, tools = _upstream(name, config, environ)
    plan = _scaffold(name, data, _stubs(tools))
    there = {file for file in plan if os.path.lexists(folder / file)}
    _write(folder, {file: text for file, text in plan.items() if file not in there}, "scaffold_failed")
    return NewProject(name=name, folder=folder, files=tuple(sorted({*plan} - there)), skipped=tuple(sorted(there)))


def template_files(name: str, *, template: str = "minimal-react") -> dict[str, bytes]:
    """Return the files of a new project around the configuration of a template, by their relative paths.

    Raises:
        NewProjectError: `invalid_project_name`, `unknown_template`.
    """
    _check_name(name, "invalid_project_name")
    _check_template(template, SCAFFOLD_TEMPLATES, "unknown_template")
    return _scaffold(name, _filled(texts.CONFIG, NAME=name).encode(), [])


def _scaffold(name: str, config: bytes, stubs: list[Stub]) -> dict[str, bytes]:
    plan = {
        FILE_NAME: config,
        "agent.py": _agent_file(name, stubs).encode(),
        "conftest.py": texts.SCAFFOLD_CONFTEST.encode(),
        "tests/test_agent.py": texts.SCAFFOLD_AGENT_TEST.encode(),
        "Makefile": _filled(texts.MAKEFILE, NAME=name).encode(),
        "README.md": _filled(texts.SCAFFOLD_README, NAME=name, STUBS=texts.SCAFFOLD_STUBS if stubs else "").encode(),
    }
    for stub in stubs:
        plan[f"tools/{stub.module}.py"] = stub.code().encode()
        plan[f"tests/test_{stub.module}.py"] = stub.test().encode()
    return plan


def _check_name(name: str, code: str) -> None:
    if not is_name(name):
        hint = "small letters, digits, - and _, such as shop-agent"
        raise NewProjectError(code, f"{name!r} is no name of a project", hint=hint)


def _check_template(template: str, known: tuple[str, ...], code: str) -> None:
    if template not in known:
        raise NewProjectError(code, f"there is no template {template!r}", hint=f"use {', '.join(known)}")


def _upstream(name: str, config: Path | None, environ: Mapping[str, str]) -> tuple[bytes, tuple[CustomTool, ...]]:
    """The text of the configuration, and the tools that it declares."""
    own = default_file()
    file = config if config is not None else own if own.is_file() else None
    try:
        data = _filled(texts.CONFIG, NAME=name).encode() if file is None else read_file(file)
        return data, read_config(data, file=str(file or FILE_NAME), environ=environ).config.tools.custom
    except ConfigError as error:
        hint = f"harborage validate {file}"
        raise NewProjectError("upstream_config_invalid", str(error.findings[0].message), hint=hint) from error


def _filled(text: str, **values: str) -> str:
    for name, value in sorted(values.items(), key=lambda one: -len(one[0])):
        text = text.replace(f"${name}", value)
    return text


# ── Stubs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Stub(msgspec.Struct, frozen=True):
    """The code of one declared tool; `module` is the name of its file and of its function."""

    tool: CustomTool
    module: str

    @property
    def _empty(self) -> str:
        pairs = ", ".join(f'"{name}": {_TYPES[kind][1]}' for name, kind in self.tool.output.items())
        return f"{{{pairs}}}"

    def code(self) -> str:
        """The text of the file."""
        kind = "".join(word.capitalize() for word in self.module.split("_")) + "Result"
        fields = "".join(f"    {name}: {_TYPES[kind_][0]}\n" for name, kind_ in self.tool.output.items())
        result = f'\n\nclass {kind}(TypedDict):\n    """What it returns."""\n\n{fields}\n' if fields else "\n"
        parameters = ", ".join(f"{name}: {_TYPES[kind_][0]}" for name, kind_ in self.tool.input.items())
        return _filled(
            texts.TOOL,
            TOOL=_one_line(self.tool.name),
            TYPING="\nfrom typing import TypedDict\n" if fields else "",
            RESULT=result,
            QUOTED=_quoted(self.tool.name),
            FUNCTION=self.module,
            PARAMETERS=parameters,
            TYPE=kind if fields else "dict[str, str]",
            DOCSTRING=_quoted(self.tool.description),
            EMPTY=self._empty,
        )

    def test(self) -> str:
        """The text of its test."""
        arguments = ", ".join(f"{name}={_TYPES[kind][1]}" for name, kind in self.tool.input.items())
        return _filled(
            texts.TOOL_TEST,
            TOOL=_one_line(self.tool.name),
            MODULE=self.module,
            FUNCTION=self.module,
            ARGUMENTS=arguments,
            EMPTY=self._empty,
        )


def _stubs(tools: Iterable[CustomTool]) -> list[Stub]:
    made: dict[str, Stub] = {}
    for tool in tools:
        if not _TOOL_NAME.fullmatch(tool.name):
            text = f"no agent can have a tool called {tool.name!r}"
            raise NewProjectError("scaffold_failed", text, hint="up to 64 letters, digits, _ and -")
        for name in (*tool.input, *tool.output):
            if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
                text = f"the tool {tool.name} has a field {name!r}, which is no name in Python"
                raise NewProjectError("scaffold_failed", text, hint="rename it in the configuration")
        module = _identifier(tool.name)
        while module in made or module == "agent":
            module += "_"
        made[module] = Stub(tool, module)
    return [*made.values()]


def _identifier(name: str) -> str:
    text = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "tool"
    text = text if text[0].isalpha() else f"tool_{text}"
    return f"{text}_" if keyword.iskeyword(text) or text == "tool" else text


def _quoted(text: str) -> str:
    """A text as a Python literal in double quotes."""
    return msgspec.json.encode(text).decode() if text.isprintable() and text.isascii() else repr(text)


def _one_line(text: str) -> str:
    return "".join(one if one.isprintable() and one not in '"\\' else " " for one in text)


def _agent_file(name: str, stubs: list[Stub]) -> str:
    imports = "".join(f"from tools.{stub.module} import {stub.module}\n" for stub in stubs)
    return _filled(
        texts.SCAFFOLD_AGENT,
        NAME=name,
        IMPORTS=f"\n{imports}" if imports else "",
        TOOLS=", ".join(stub.module for stub in stubs),
    )


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(folder: Path, files: Mapping[str, bytes], code: str) -> None:
    """Write new files; if one cannot be written, remove those that were, and the folders that were made for them."""
    written: list[Path] = []
    folders: list[Path] = []
    try:
        for name, data in files.items():
            path = folder / name
            _make_folder(path.parent, folders)
            with path.open("xb") as file:
                written.append(path)
                file.write(data)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        for path in reversed(folders):
            _remove_if_empty(path)
        text = f"{error.filename or folder} cannot be written: {error.strerror or type(error).__name__}"
        raise NewProjectError(code, text, hint="nothing was kept") from error


def _make_folder(path: Path, made: list[Path]) -> None:
    missing = [one for one in (path, *path.parents) if not os.path.lexists(one)]
    for one in reversed(missing):
        one.mkdir()
        made.append(one)
    if not missing and not path.is_dir():
        raise NotADirectoryError(20, "it is no folder", str(path))


def _remove_if_empty(path: Path) -> None:
    if not any(path.iterdir()):
        path.rmdir()
