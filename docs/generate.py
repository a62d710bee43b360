"""Writes the generated pages of `docs/reference/`: `python docs/generate.py`. A test fails when one is stale.

Everything on them is read from classes, signatures and docstrings; to change a page, change those.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import msgspec

import harborage
from harborage import HarborageError, Run
from harborage.app import Agent
from harborage.config import Config, masked
from harborage.config.environment import settings_of
from harborage.config.keys import Effect, Form, Shape, dotted, form_of, leaves
from harborage.config.keys import Path as KeyPath
from harborage.config.keys import keys_of as config_keys_of
from harborage.events import PAYLOADS, EventType, Payload, PlainPayload
from harborage.llm import PROVIDERS, ConfigSnapshot, ModelProfile, TransportPolicy
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.loop import controls as scopes
from harborage.runtime.loop import payload
from harborage.runtime.loop.controls import ControlType, Scope
from harborage.tools import ToolPolicy

PLACE = Path(__file__).resolve().parent / "reference"
SOURCE = Path(harborage.__file__).resolve().parent
GENERATED = "<!-- Written by docs/generate.py from the code; a change by hand is lost. -->\n"
# Packages that use the library instead of being part of it.
FRONT = frozenset({"cli", "testing"})
FACES = tuple(f"harborage.runtime.{face}" for face in ("steering", "dispatch", "approval", "pauses"))


def pages() -> dict[str, str]:
    """The text of every page by its file name."""
    made = {
        "events": events(),
        "controls": steering(),
        "errors": errors(),
        "models": models(),
        "options": options(),
        "configuration": configuration(),
        "api": api(),
        "packages": packages(),
    }
    return {f"{name}.md": f"{GENERATED}\n{text.rstrip()}\n" for name, text in made.items()}


def write() -> None:
    """Bring the pages up to date."""
    PLACE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PLACE / name).write_text(text, "utf-8")


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────

EVENTS = """\
# Events

Every event has a `type`, an `identity` (tenant, user, session, run), a `payload`, the time it `occurred_at`, and a
`sequence` number that grows by one within its session. A type with several payloads has a row for each. Keys are
spelled as they travel; in Python `TaskID` is `payload.task_id`. Payloads marked *redacted* may quote anything and reach
subscribers as a `RedactedMap`. Types marked *reserved* have their name and their shape here, but nothing in this
version tells them.
"""


def events() -> str:
    """Every event type with the keys of its payload, by the first word of its name."""
    told = emitted_types()
    text = EVENTS
    for family in dict.fromkeys(event.partition(".")[0] for event in EventType):
        rows = [
            (f"`{event}`", summary(kind), keys_of(kind), marks(kind, is_told=event.name in told))
            for event in EventType
            if event.partition(".")[0] == family
            for kind in PAYLOADS[event]
        ]
        text += f"\n## {family}\n\n{table(('Type', 'Tells', 'Payload keys', ''), rows)}"
    return text


def keys_of(kind: type[Payload]) -> str:
    """The wire keys of a payload."""
    return ", ".join(f"`{key}`" for key in kind.__struct_encode_fields__) or "none"


def marks(kind: type[Payload], *, is_told: bool) -> str:
    """What else there is to know of a payload."""
    words = {"redacted": issubclass(kind, PlainPayload), "reserved": not is_told}
    return ", ".join(f"*{word}*" for word, applies in words.items() if applies)


def emitted_types() -> set[str]:
    """The members of `EventType` that the library names anywhere but in the tables that declare them."""
    declared = ("events/types.py", "events/payloads/", "events/__init__.py")
    found: set[str] = set()
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE).as_posix()
        if place.partition("/")[0] not in FRONT and not place.startswith(declared):
            found |= set(re.findall(r"\bEventType\.([A-Z_]+)", file.read_text("utf-8")))
    return found


# ── Controls ────────────────────────────────────────────────────────────────────────────────────────────────────────

CONTROLS = """\
# Controls

Each run has one inbox, in the order of arrival. A control that may not be sent is refused with an error and told as
`control.rejected`. One that is queued is applied at the run's next step boundary and told as `control.applied`, with
the outcome `applied` or `failed`; a hard cancel and an approval reach a step in flight. The calls are methods of
`harborage.Run`.
"""


def steering() -> str:
    """The nine controls with who may send them and how, the scopes, and the bounds of a payload."""
    said, calls = member_docs(ControlType), control_calls()
    ruled = [
        (f"`{one}`", said[one.name], f"`{calls[one.name]}`", f"`{scopes.required_scope(one)}`") for one in ControlType
    ]
    ranks = [(f"`{one}`", member_docs(Scope)[one.name]) for one in Scope]
    return (
        f"{CONTROLS}\n{table(('Control', 'Does', 'Call', 'Least scope'), ruled)}\n"
        f"## Scopes\n\nWeakest first. Another tenant's run takes `admin`.\n\n{table(('Scope', 'Who'), ranks)}\n"
        f"## Bounds of a payload\n\nA payload that breaks a bound is refused whole.\n\n"
        f"{table(('Bound', 'At most', 'What is counted'), bounds())}"
    )


def control_calls() -> dict[str, str]:
    """The method of `Run` that sends each control, as it is called."""
    calls: dict[str, str] = {}
    for name, method in inspect.getmembers(Run, inspect.isfunction):
        for member in re.findall(r"_(?:send|answer)\(ControlType\.([A-Z_]+)", inspect.getsource(method)):
            parameters = list(inspect.signature(method).parameters.values())[1:]
            plain = inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters])
            calls[member] = f"{name}{plain}"
    return calls


def bounds() -> Iterator[tuple[str, str, str]]:
    """The constants of the payload check, with what is said of each."""
    for name, said in constant_docs(payload).items():
        yield f"`{name}`", f"{getattr(payload, name):,}", said


def member_docs(kind: type) -> dict[str, str]:
    """What stands below each member of an enumeration."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    return documented(tree.body)


def constant_docs(module: ModuleType) -> dict[str, str]:
    """What stands below each constant of a module."""
    return documented(ast.parse(inspect.getsource(module)).body)


def documented(body: list[ast.stmt]) -> dict[str, str]:
    """The assignments of a body that a string follows, with that string."""
    found: dict[str, str] = {}
    for statement, below in pairwise(body):
        match statement, below:
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                found[name] = one_line(text)
            case _:
                pass
    return found


# ── Errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ERRORS = """\
# Errors

Everything that Harborage raises on purpose is a `HarborageError`. What identifies the case, such as a tool, a token or
a path, is an attribute. In brackets: where to import it from.
"""


def errors() -> str:
    """The whole error tree: each class, where to import it from, and its docstring."""
    below: dict[type, list[type]] = {}
    for kind in error_classes():
        below.setdefault(next(base for base in kind.__bases__ if issubclass(base, HarborageError)), []).append(kind)
    root = f"- `HarborageError` (`harborage`): {summary(HarborageError)}"
    return "\n".join([ERRORS, root, *branch(HarborageError, below, 1)])


def branch(parent: type, below: dict[type, list[type]], depth: int) -> Iterator[str]:
    """The lines of everything below a class."""
    for kind in sorted(below.get(parent, ()), key=lambda one: (home(one), one.__name__)):
        yield f"{'  ' * depth}- `{kind.__name__}` (`{home(kind)}`): {summary(kind)}"
        yield from branch(kind, below, depth + 1)


def error_classes() -> list[type]:
    """Every error class of the library."""
    found = {
        value
        for module in modules()
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, HarborageError) and value.__module__ == module.__name__
    }
    return sorted(found - {HarborageError}, key=lambda one: (one.__module__, one.__name__))


def modules() -> Iterator[ModuleType]:
    """Every module of the library."""
    for found in pkgutil.walk_packages([str(SOURCE)], "harborage."):
        if found.name.split(".")[1] not in FRONT:
            yield importlib.import_module(found.name)


def home(kind: type) -> str:
    """The outermost package that offers the class, else a face of the runtime, else its own module."""
    parts = kind.__module__.split(".")
    packages = [".".join(parts[:count]) for count in range(1, len(parts))]
    offering = (one for one in [*packages, *FACES] if offers(importlib.import_module(one), kind))
    return next(offering, kind.__module__)


def offers(package: ModuleType, kind: type) -> bool:
    """Whether a class is one of the package's public names."""
    return kind.__name__ in getattr(package, "__all__", ()) and getattr(package, kind.__name__) is kind


# ── Models ──────────────────────────────────────────────────────────────────────────────────────────────────────────

MODELS = """\
# Models

A model is named by one string, `provider:model`: for `--model`, for `Runtime(model=…)` and for an `Agent`. What follows
the first colon is the provider's own name for it. A key is read from the environment when the model is opened; of
several variables the first that is set counts. The address variable names another server that speaks the same API.
"""
# What a driver needs besides the core.
EXTRAS = {"openai": "openai", "anthropic": "anthropic", "google": "google", "any": "any", "local": "local"}


def models() -> str:
    """Every provider with what it needs."""
    rows = [
        (
            f"`{one.name}:{'' if one.default_model else '…'}`",
            f"`harborage[{EXTRAS[one.driver]}]`" if one.driver in EXTRAS else "",
            ", ".join(f"`{variable}`" for variable in one.key_variables),
            f"`{one.base_url}`" if one.base_url else "",
            f"`{one.base_url_variable}`" if one.base_url_variable else "",
        )
        for one in PROVIDERS.values()
    ]
    heads = ("Model", "Extra", "Key", "Address", "Address variable")
    kinds = (ConfigSnapshot, TransportPolicy, ModelProfile)
    settings = "\n".join(f"## {kind.__name__}\n\n{described(kind)}" for kind in kinds)
    return f"{MODELS}\n{table(heads, rows)}\n{settings}"


# ── Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def options() -> str:
    """The fields of the values that a program is set up with."""
    described_by = {RuntimeOptions: described, Agent: described_by_parameters, ToolPolicy: described}
    return "# Options\n\n" + "\n".join(f"## {kind.__name__}\n\n{make(kind)}" for kind, make in described_by.items())


def described_by_parameters(kind: type) -> str:
    """A class: its docstring, and each parameter with its type and default."""
    parameters = inspect.signature(kind).parameters.values()
    rows = [(f"`{one.name}`", f"`{one.annotation}`", default_of_parameter(one)) for one in parameters]
    return f"`{home(kind)}.{kind.__name__}`: {inspect.getdoc(kind)}\n\n{table(('Option', 'Type', 'Default'), rows)}"


def default_of_parameter(parameter: inspect.Parameter) -> str:
    """What a parameter is when it is not given."""
    match parameter.default:
        case inspect.Parameter.empty:
            return "must be given"
        case msgspec.Struct() as value:
            return f"`{type(value).__name__}()`"
        case type() as value:
            return f"`{value.__name__}`"
        case value:
            return f"`{value!r}`"


def described(kind: type[msgspec.Struct]) -> str:
    """A struct: what its docstring says of its fields, and each with its type and default."""
    written = inspect.get_annotations(kind)
    fields = msgspec.structs.fields(kind)
    rows = [(f"`{field.name}`", f"`{written[field.name]}`", default_of(field)) for field in fields]
    return f"`{home(kind)}.{kind.__name__}`: {inspect.getdoc(kind)}\n\n{table(('Field', 'Type', 'Default'), rows)}"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """What a field is when it is not given."""
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    match field.default:
        case msgspec.NODEFAULT:
            return "must be given"
        case timedelta() as span:
            return f"{span.days} days" if span.days else f"{span.seconds} s"
        case StrEnum() as value:
            return f"`{str(value)!r}`"
        case msgspec.Struct() as value:
            return f"`{type(value).__name__}()`"
        case value:
            return f"`{value!r}`"


# ── Configuration ───────────────────────────────────────────────────────────────────────────────────────────────────

CONFIGURATION = """\
# Configuration

A server reads `harborage.yaml`, or the file that `--config` names; without one `harbor.yaml`. `harborage validate`
checks it and lists everything that is wrong, with line and column; `harborage validate --schema` prints a JSON Schema
for editors.

- A variable wins over the file: `HARBORAGE_` and the key in capitals, joined with `_`, such as `HARBORAGE_STATE_DSN`.
  Lists of texts have commas. Where it is not set, the prefix `HARBOR_` counts.
- Durations have units: `500ms`, `30s`, `5m`, `24h`, `1h30m`.
- A secret is a text or a reference that is read when it is needed: `env:NAME`, `file:PATH`, or `PROVIDER:PATH` of a
  package with the entry point `harborage.secrets`. No output shows a secret.
- Files and folders are relative to the folder of the configuration.
- A running server takes new values of keys that are marked *reloads*; a file that is wrong changes nothing.
- A key that is marked *no effect yet* is valid and does nothing in this version; `validate` and the server say so. With
  one that is marked *refused yet* a server does not start.
"""


def configuration() -> str:
    """Every key of the file: what it is, its form, its default and its variable."""
    variables = {one.path: f"HARBORAGE_{name}" for name, one in settings_of(Config).items() if one.is_settable}
    effects = effects_of(Config)
    text, block = CONFIGURATION, ""
    for path, info in leaves(Config):
        if path[0] != block:
            block = str(path[0])
            text += f"\n## {block}\n"
        form = form_of(info.type)
        marks = [FORMS.get(form.shape, form.shape.value)]
        if form.choices:
            marks = [" or ".join(f"`{one}`" if one else '`""`' for one in form.choices)]
        if info.default not in (None, "", (), {}) and form.shape is not Shape.SECRET:
            marks.append(f"default `{spelled(info.default)}`")
        if info.key.reloads:
            marks.append("*reloads*")
        marks += {Effect.NOTED: ["*no effect yet*"], Effect.REFUSED: ["*refused yet*"]}.get(effects[path], [])
        if path in variables:
            marks.append(f"`{variables[path]}`")
        text += f"\n### {dotted(path)}\n\n{info.key.text} {'; '.join(marks)}.\n"
    return text


FORMS = {Shape.LIST: "list of texts", Shape.MAP: "keys and values", Shape.INT: "whole number", Shape.FLOAT: "number"}


def effects_of(struct: type[msgspec.Struct]) -> dict[KeyPath, Effect]:
    """The effect of every key: its own, or that of the block it stands in."""
    found: dict[KeyPath, Effect] = {}
    for path, _ in leaves(struct):
        block, effects = struct, []
        for name in (step for step in path if isinstance(step, str)):
            info = config_keys_of(block)[name]
            effects.append(info.key.effect)
            block = inner_struct(form_of(info.type))
        found[path] = next((one for one in effects if one is not Effect.APPLIED), Effect.APPLIED)
    return found


def inner_struct(form: Form) -> type[msgspec.Struct]:
    """The struct in a block, a list of blocks or a map of them; any struct for what holds none."""
    while form.shape in (Shape.LIST, Shape.MAP) and form.item is not None:
        form = form_of(form.item)
    return form.item if form.shape is Shape.STRUCT else Config


def spelled(value: object) -> str:
    """A default as the file has it."""
    plain = masked(value)
    return str(plain).lower() if isinstance(plain, bool) else str(plain).replace("'", "")


# ── Names ───────────────────────────────────────────────────────────────────────────────────────────────────────────

API = """\
# Names

What a program imports from `harborage`. The descriptions are the docstrings, so `help(harborage.Agent)` says the same.
What planners, drivers and tests are written with is in [the packages](packages.md).
"""
PACKAGES = """\
# Names of the packages

What planners, drivers, hosts and tests are written with, by the package or module that it is imported from. What most
programs need is in `harborage` itself: [names](api.md).
"""
# The title of a group of names, by where they are defined: the first that fits.
GROUPS = {
    "harborage.app": "Agents and runs",
    "harborage.runtime.loop.context": "Context and memory",
    "harborage.runtime.approval": "Approvals, pauses and controls",
    "harborage.runtime.pauses": "Approvals, pauses and controls",
    "harborage.runtime.steering": "Approvals, pauses and controls",
    "harborage.runtime": "Agents and runs",
    "harborage.tools": "Tools",
    "harborage.memory": "Context and memory",
    "harborage.planner": "Planners and decisions",
    "harborage.events": "Events",
    "harborage": "Everything else",
}
# The packages and modules whose names are listed with their first line.
OFFERING = (
    "harborage.app",
    "harborage.tools",
    "harborage.planner",
    "harborage.events",
    "harborage.llm",
    "harborage.artifacts",
    "harborage.memory",
    "harborage.store",
    "harborage.runtime.approval",
    "harborage.runtime.dispatch",
    "harborage.runtime.pauses",
    "harborage.runtime.steering",
)
KIT = ("cassettes", "clock", "events", "frozen", "llm", "planners")


def api() -> str:
    """The names of `harborage` and of `harborage.sync`, with what they hold."""
    groups: dict[str, list[str]] = {title: [] for title in dict.fromkeys(GROUPS.values())}
    for name, module in sorted(exports(harborage).items()):
        groups[next(title for place, title in GROUPS.items() if f"{module}.".startswith(f"{place}."))].append(name)
    text = API
    for title, names in groups.items():
        text += f"\n## {title}\n\n{directives([f'.. {kind_of(name)}:: harborage.{name}' for name in names])}"
    return f"{text}\n## Without an event loop\n\n{directives(['.. automodule:: harborage.sync', '   :members:'])}"


def packages() -> str:
    """The names of the packages, a line each."""
    text = PACKAGES
    for place in OFFERING:
        text += f"\n## {place}\n\n{summary_table(place, sorted(importlib.import_module(place).__all__))}"
    for kit in KIT:
        module = importlib.import_module(f"harborage.testing.{kit}")
        text += f"\n## {module.__name__}\n\n{summary_table(module.__name__, own_names(module))}"
    return text


def exports(package: ModuleType) -> dict[str, str]:
    """The module of each public name of a package, as the package says where it imports them from."""
    found: dict[str, str] = {}
    for statement in ast.walk(ast.parse(inspect.getsource(package))):
        match statement:
            case ast.ImportFrom(module=str(module), names=names):
                found |= {one.asname: module for one in names if one.asname}
            case _:
                pass
    return found


def kind_of(name: str) -> str:
    """The directive that describes a name."""
    value = getattr(harborage, name)
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, Exception) else "autoclass"
    return "autofunction" if inspect.isfunction(value) else "autodata"


def own_names(module: ModuleType) -> list[str]:
    """The public names that a module without a list of them defines."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    )


def directives(lines: list[str]) -> str:
    """A block that Sphinx fills in from the code."""
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def summary_table(place: str, names: list[str]) -> str:
    """The names of a module, each with the first line of its docstring."""
    return directives([f".. currentmodule:: {place}", ".. autosummary::", "", *(f"   {name}" for name in names)])


# ── Markdown ────────────────────────────────────────────────────────────────────────────────────────────────────────


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def summary(kind: type) -> str:
    """What a class's docstring says first."""
    return one_line((inspect.getdoc(kind) or "").partition("\n\n")[0])


def one_line(text: str) -> str:
    """A text without its line ends."""
    return " ".join(text.split())


if __name__ == "__main__":
    write()
