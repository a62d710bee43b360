"""`harborage version`."""

from __future__ import annotations

import sys

from harborage import __version__

__all__ = ["version"]


def version() -> int:
    """Print the version."""
    sys.stdout.write(f"harborage {__version__}\n")
    return 0
