"""The one name→factory table that every seam uses: planners, stores, redactors, transports, …

A driver is an object that is passed in; a name is only for configuration. Targets may be written `module:attribute`,
so that listing a driver costs no import. A table is filled at start and then frozen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from harborage.errors import HarborageError, NotFoundError

F = TypeVar("F", bound=Callable[..., Any])


class DriverError(HarborageError):
    """A driver table was used wrongly."""


class DriverEmptyNameError(DriverError):
    """A driver was registered without a name."""


class DriverNilFactoryError(DriverError):
    """A driver was registered without a factory."""


class DriverDuplicateError(DriverError):
    """A driver name was registered twice."""


class DriverFrozenError(DriverError):
    """A driver was registered after its table was frozen."""


class DriverUnknownError(DriverError, NotFoundError):
    """No driver has this name. `name` is what was asked for, `known` what there is."""

    def __init__(self, seam: str = "", name: str = "", known: tuple[str, ...] = ()) -> None:
        self.name = name
        self.known = known
        listed = ",".join(known) or "<none>"
        text = f"{seam}: unknown driver {name or '<empty>'} (registered: {listed})"
        super().__init__(name, what=f"{seam} driver".lstrip(), message=text)


class DriverTable(Generic[F]):
    """Names and the factories they stand for, for one seam. Reads are safe from any thread."""

    def __init__(self, seam: str, targets: Mapping[str, F | str] | None = None) -> None:
        self.seam = seam
        self._targets: dict[str, F | str] = {}
        self._lock = threading.Lock()
        self._is_frozen = False
        for name, target in (targets or {}).items():
            self.register(name, target)

    def register(self, name: str, target: F | str | None) -> None:
        """Let `name` stand for `target`, a factory or its `module:attribute` path.

        Raises:
            DriverEmptyNameError, DriverNilFactoryError, DriverDuplicateError, DriverFrozenError: in this order.
        """
        if not name:
            raise DriverEmptyNameError(f"{self.seam}: a driver needs a name")
        if target is None:
            raise DriverNilFactoryError(f"{self.seam}: driver {name!r} needs a factory")
        with self._lock:
            if name in self._targets:
                raise DriverDuplicateError(f"{self.seam}: driver {name!r} is registered already")
            if self._is_frozen:
                raise DriverFrozenError(f"{self.seam}: register {name!r} before the application is built")
            self._targets = {**self._targets, name: target}

    def freeze(self) -> None:
        """Refuse further registrations."""
        self._is_frozen = True

    def names(self) -> list[str]:
        """The registered names, sorted."""
        return sorted(self._targets)

    def factory(self, name: str) -> F:
        """The factory that `name` stands for, imported on first use.

        Raises:
            DriverUnknownError: the name is not registered; the text lists those that are.
        """
        target = self._targets.get(name) if name else None
        if target is None:
            raise DriverUnknownError(self.seam, name, tuple(self.names()))
        if isinstance(target, str):
            module, _, attribute = target.partition(":")
            loaded: F = getattr(import_module(module), attribute)
            with self._lock:
                self._targets = {**self._targets, name: loaded}
            return loaded
        return target
