"""What `harborage.tools` offers."""

from __future__ import annotations

import subprocess
import sys

import harborage.tools
from harborage.errors import HarborageError, first_sentence
from tests.kit.tables import each_row

ERRORS = [
    value
    for value in vars(harborage.tools).values()
    if isinstance(value, type) and issubclass(value, Exception) and value is not harborage.tools.ToolError
]


def test_every_public_name_is_there_and_documented() -> None:
    """The list is sorted, complete, and each name says what it is."""
    names = harborage.tools.__all__
    assert names == sorted(names, key=lambda name: (name[0].islower(), name))
    values = {name: getattr(harborage.tools, name) for name in names}
    documented = {name for name, value in values.items() if value.__doc__}
    assert set(values) - documented == {"BetweenAttempts", "OnAttempt", "ToolBody", "ToolProbe"}  # aliases have none


@each_row("error", ERRORS)
def test_every_error_is_a_tool_error_that_explains_itself(error: type[Exception]) -> None:
    """Each can be raised without arguments, belongs to the family and has words of its own."""
    raised = error()
    assert isinstance(raised, harborage.tools.ToolError)
    assert isinstance(raised, HarborageError)
    assert str(raised)
    assert first_sentence(error) != first_sentence(harborage.tools.ToolError)


def test_importing_tools_loads_neither_pydantic_nor_a_schema_validator() -> None:
    """What only some programs need is imported when it is first used."""
    code = "import sys, harborage.tools; print([m for m in ('pydantic', 'jsonschema_rs') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
