"""What a package offers: names from its modules, each module imported when a name of it is first used.

So a program that uses one name of a package does not load all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(
    package: str, exports: Mapping[str, str]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """The `__all__`, `__getattr__` and `__dir__` of `package`.

    `exports` gives for each module the names that it defines, separated by spaces. Type checkers cannot read it: the
    package imports the same names once more under `TYPE_CHECKING`, and a test holds the two lists together.
    """
    module_of = {name: module for module, names in exports.items() for name in names.split()}

    def load(name: str) -> object:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return sorted(module_of), load, listed
