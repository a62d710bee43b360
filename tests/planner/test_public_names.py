"""Every public name that was promised can be imported, and every promised option can be passed."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

from tests.kit.tables import each_row

NAMES = (Path(__file__).parents[1] / "data" / "public_names.tsv").read_text("utf-8").splitlines()
FORM = re.compile(r"(?P<module>[\w.]+):(?P<path>[\w.]+)(?:\((?P<parameter>\w+)\))?")


def test_the_list_is_whole():
    """The list was read, each line is well formed, and none is there twice."""
    assert len(NAMES) > 250
    assert len(set(NAMES)) == len(NAMES)
    assert all(FORM.fullmatch(name) for name in NAMES)


@each_row("name", NAMES)
def test_name(name: str) -> None:
    """The name is there; written with a parameter, the callable takes that parameter by keyword."""
    found = FORM.fullmatch(name)
    value = import_module(found["module"])
    for part in found["path"].split("."):
        value = getattr(value, part)
    if found["parameter"]:
        parameter = inspect.signature(value).parameters[found["parameter"]]
        assert parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
