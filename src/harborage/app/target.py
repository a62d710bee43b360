"""Finding the agent that a command line names: `path/to/file.py`, `package.module`, either with `:attribute`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from harborage.app.agent import Agent
from harborage.errors import HarborageError

__all__ = ["AgentNotReadyError", "TargetError", "is_target", "load_agent"]

_DEFAULT = "agent"


class TargetError(HarborageError):
    """A target names no agent. `target` is what was given."""

    def __init__(self, target: str = "", reason: str = "") -> None:
        self.target = target
        super().__init__(f"cannot run {target!r}: {reason}")


class AgentNotReadyError(HarborageError):
    """An agent cannot work where it stands; the message says what is missing and how to mend it."""


def is_target(word: str) -> bool:
    """Whether a command line's first word names an agent and does not begin a sentence.

    A file that ends in `.py`, or a module that can be imported, either with `:attribute`. A plain word does only where
    a module of that name lies in the current folder: half of all words are modules of something that is installed.
    """
    place, _, attribute = word.rpartition(":") if _has_attribute(word) else (word, "", "")
    if place.endswith(".py"):
        return True
    if not all(part.isidentifier() for part in place.split(".")):
        return False
    return bool(attribute) or (_exists(place) if "." in place else _is_here(place))


def _is_here(module: str) -> bool:
    return Path(f"{module}.py").is_file() or Path(module, "__init__.py").is_file()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def load_agent(target: str) -> Agent:
    """The agent that `target` names; without `:attribute` the one called `agent`. A function is called for its agent.

    Raises:
        TargetError: no such file or module, it fails to import, or it holds no such agent.
    """
    place, _, attribute = target.rpartition(":") if _has_attribute(target) else (target, "", "")
    module = _module(target, place)
    name = attribute or _DEFAULT
    if not hasattr(module, name):
        agents = sorted(key for key, value in vars(module).items() if isinstance(value, Agent))
        hint = f"; it has {', '.join(agents)}" if agents else f"; define `{name} = Agent(…)` in it"
        raise TargetError(target, f"there is no {name!r} in it{hint}")
    return _agent(target, getattr(module, name))


def _has_attribute(target: str) -> bool:
    """Whether the part behind the last colon is a name; a drive letter or a path is not."""
    _, colon, attribute = target.rpartition(":")
    return bool(colon) and attribute.isidentifier()


def _agent(target: str, found: Any) -> Agent:
    if callable(found) and not isinstance(found, Agent):
        try:
            found = found()
        except HarborageError:
            raise
        except Exception as error:
            raise TargetError(target, f"making the agent failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, Agent):
        raise TargetError(target, f"it is a {type(found).__name__}, not a harborage.app.Agent")
    return found


def _module(target: str, place: str) -> ModuleType:
    if not place:
        raise TargetError(target, "give a file such as agent.py or a module such as package.module")
    try:
        if place.endswith(".py") or "/" in place:
            return _from_file(target, Path(place))
        return importlib.import_module(place)
    except TargetError:
        raise
    except ModuleNotFoundError as error:
        raise TargetError(target, f"{error}; install it or check the spelling") from error
    except Exception as error:
        raise TargetError(target, f"importing it failed: {type(error).__name__}: {error}") from error


def _from_file(target: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(target, f"there is no file {path}")
    name = f"harborage_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(target, f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Values defined in the file name their module, which must be found again when they are read.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
