"""Find and load the agent that a command line names: `path/to/file.py`, `package.module`, either with `:attribute`.

Whether a word names an agent is decided without importing anything: only the named agent is ever executed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from harborage.app.agent import Agent
from harborage.app.project import LOADING, RunWhileLoadingError
from harborage.errors import HarborageError
from harborage.runtime.host import Runtime

_DEFAULT: Final = "agent"
_MOST_FILES: Final = 1000
_RUNS: Final = "runs an agent as it is loaded; put that below `if __name__ == '__main__':`"
_EXITS: Final = "it ends the process; put that below `if __name__ == '__main__':`"


class TargetError(HarborageError):
    """A target names no agent. `target` is what was given."""

    def __init__(self, target: str = "", reason: str = "") -> None:
        self.target = target
        super().__init__(f"cannot run {target!r}: {reason}")


class AgentNotReadyError(HarborageError):
    """An agent cannot work on this machine; the text says what is missing and what to do."""


def is_target(word: str) -> bool:
    """Whether a command line's first word names an agent and does not begin a sentence.

    A file that ends in `.py`, or a module of a package that can be imported, either with `:attribute`. A plain word
    does only with `:attribute`: it may be the first of a question, and a file of its name may lie in the folder. The
    name of a file that is there, such as `README.md`, is never a module, though `README/md.py` lies beside it.
    """
    place, attribute = _parts(word)
    if place.endswith(".py"):
        return Path(place).is_file() or not any(map(str.isspace, place))
    if not _is_module_name(place):
        return False
    if attribute:
        return True
    return "." in place and not Path(place).is_file() and (_is_here(place) or _is_installed(place))


def refuse_mistyped(word: str) -> None:
    """Accept the first word of a goal for the standard assistant, unless it looks like an agent that is not there.

    Raises:
        TargetError: it looks like a file or a module; the text names a similar one, and says how to ask all the same.
    """
    if not word or any(map(str.isspace, word)) or "://" in word:
        return
    place, _ = _parts(word)
    path = Path(place)
    if ":" in place and place.partition(":")[0].endswith(".py"):
        raise TargetError(word, "behind the colon comes the name of an agent in that file, such as agent.py:agent")
    if _is_module_name(place) and "." not in place and _is_here(place):
        file = f"{place}.py" if Path(f"{place}.py").is_file() else f"{place}/__init__.py"
        raise TargetError(
            word, f"for the agent in {file}, write {file}; to ask a question, put quotes around the whole of it"
        )
    looks_like_module = "." in place and _is_module_name(place)
    looks_like_path = "/" in place and (place.startswith((".", "/", "~")) or Path(path.parts[0]).is_dir())
    if not (looks_like_module or looks_like_path):
        return
    if path.is_file():
        reason = f"that file is no agent; to let the run read it, add --attach {place}"
    else:
        reason = f"there is no such agent{_did_you_mean(place)}"
    stop = "" if reason.endswith("?") else "."
    raise TargetError(
        word, f"{reason}{stop} To ask a question that begins with this word, put quotes around the question"
    )


def _parts(target: str) -> tuple[str, str]:
    """The file or module, and the attribute if one is named; a drive letter or a path is no attribute."""
    place, colon, attribute = target.rpartition(":")
    return (place, attribute) if colon and attribute.isidentifier() else (target, "")


def _is_module_name(place: str) -> bool:
    return all(part.isidentifier() for part in place.split("."))


def _is_here(module: str) -> bool:
    path = Path(*module.split("."))
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()


def _is_installed(module: str) -> bool:
    """Whether a module can be imported; unlike `find_spec`, this imports no part of it."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return False
            spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
    except (ImportError, AttributeError, ValueError):
        return False
    return spec is not None


def _did_you_mean(place: str) -> str:
    """Return a hint with the most similar agent file of the current folder, as a path or a module like the target."""
    files = islice((path for depth in ("*.py", "*/*.py", "*/*/*.py") for path in Path().glob(depth)), _MOST_FILES)
    known = [str(path) for path in files]
    if "/" not in place and not place.endswith(".py"):
        known = [path.removesuffix(".py").replace("/", ".") for path in known]
    near = get_close_matches(place, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Make the folder of an agent importable inside the block, after all installed packages.

    Before them, a file called `html.py` would replace the module of the standard library, for Harborage itself, too.
    """
    before = list(sys.path)
    sys.path.append(str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before


def load_agent(target: str) -> Agent:
    """Return the agent that `target` names; without `:attribute` the one called `agent`. A function is called for it.

    Raises:
        TargetError: no such file or module, it fails to import, or it holds no such agent.
    """
    place, attribute = _parts(target)
    with _loading():
        return _agent_in(target, _module(target, place), attribute or _DEFAULT)


def _agent_in(target: str, module: ModuleType, name: str) -> Agent:
    if not hasattr(module, name):
        agents = sorted(key for key, value in vars(module).items() if isinstance(value, Agent))
        hint = f"; it has {', '.join(agents)}" if agents else f"; define `{name} = Agent(…)` in it"
        raise TargetError(target, f"there is no {name!r} in it{hint}")
    return _agent(target, getattr(module, name))


def _agent(target: str, found: Any) -> Agent:
    if callable(found) and not isinstance(found, Agent):
        try:
            found = found()
        except HarborageError:
            raise
        except Exception as error:
            what = f"{_where(error)}{type(error).__name__}: {error}"
            raise TargetError(target, f"making the agent failed: {what}") from error
        except SystemExit as error:
            raise TargetError(target, f"making the agent failed: {_where(error)}{_EXITS}") from error
    if not isinstance(found, Agent):
        raise TargetError(target, f"it is of type {type(found).__name__}, not a harborage.app.Agent")
    return found


def _module(target: str, place: str) -> ModuleType:
    if not place:
        raise TargetError(target, "give a file such as agent.py or a module such as package.module")
    try:
        if place.endswith(".py") or "/" in place:
            return _from_file(target, Path(place))
        return _from_module(target, place)
    except TargetError:
        raise
    except RunWhileLoadingError as error:
        raise TargetError(target, f"{_where(error)}it {_RUNS}") from error
    except ModuleNotFoundError as error:
        raise TargetError(target, f"{_where(error)}{error}; install it or check the spelling") from error
    except Exception as error:
        raise TargetError(target, f"importing it failed: {_where(error)}{type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise TargetError(target, f"importing it failed: {_where(error)}{_EXITS}") from error


def _where(error: BaseException) -> str:
    """Return the file and line that failed, with a colon: the last one outside of Python, installed packages and ours.

    An author looks for the cause of an error inside a library in the line that called it.
    """
    if isinstance(error, SyntaxError):
        return ""  # its own text names both
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_of_a_library(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""


def _is_of_a_library(file: str) -> bool:
    paths = sysconfig.get_paths()
    ours = str(Path(__file__).parents[1])
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], ours}
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in folders)


def _from_module(target: str, place: str) -> ModuleType:
    module = importlib.import_module(place)
    found = getattr(module, "__file__", None)
    if _is_here(place) and found is not None and not Path(found).resolve().is_relative_to(Path.cwd().resolve()):
        path = Path(*place.split("."))
        raise TargetError(target, f"{found}, which is installed, has the same name; give the file: ./{path}.py")
    return module


def _from_file(target: str, path: Path) -> ModuleType:
    if path.is_dir():
        raise TargetError(target, f"{path} is a folder; name a file in it, such as {path / 'agent.py'}")
    if not path.is_file():
        raise TargetError(target, f"there is no file {path}{_did_you_mean(str(path))}")
    name = f"harborage_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(target, f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Values defined in the file name their module, which must be found again when they are read.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _loading() -> Iterator[None]:
    """Refuse runs of agents while a file is loaded: a command that carries on a run must not start another one."""
    token = LOADING.set(True)
    try:
        yield
    finally:
        LOADING.reset(token)


class Service(NamedTuple):
    """What a file offers to a server: its agents, and the runtime that it makes of them, if it makes one."""

    agents: tuple[Agent[Any, Any], ...]
    runtime: Runtime | None


def load_service(target: str) -> Service:
    """Return what the file or module `target` offers: its runtime, else all its agents; with `:attribute` that one.

    An agent that others of the file call is served, too, and the one named `agent` comes first.

    Raises:
        TargetError: no such file or module, it fails to import, it has no agent, or it has several runtimes.
    """
    place, attribute = _parts(target)
    with _loading():
        module = _module(target, place)
    if attribute:
        named = getattr(module, attribute, None)
        if isinstance(named, Runtime):
            return Service((), named)
        return Service((_agent_in(target, module, attribute),), None)
    runtimes = {key: value for key, value in vars(module).items() if isinstance(value, Runtime)}
    if len({id(value) for value in runtimes.values()}) > 1:
        raise TargetError(target, f"it has several runtimes: name one, such as {place}:{next(iter(runtimes))}")
    for runtime in runtimes.values():
        return Service((), runtime)
    agents = [value for value in vars(module).values() if isinstance(value, Agent)]
    first = getattr(module, _DEFAULT, None)
    found = dict.fromkeys([*([first] if isinstance(first, Agent) else []), *agents])
    if not found:
        raise TargetError(target, f"there is no agent in it; define `{_DEFAULT} = Agent(…)`, or a Runtime([…])")
    return Service(tuple(found), None)


def forget_modules(folder: Path) -> None:
    """Let the modules whose files lie in `folder` be imported anew: those of the program, not installed ones."""
    root = str(folder.resolve())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(root) and not _is_of_a_library(file) and name != "__main__":
            del sys.modules[name]
