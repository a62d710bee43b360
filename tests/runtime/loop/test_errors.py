"""The errors of steering."""

from __future__ import annotations

import pytest

from harborage import identity
from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.runtime import steering
from harborage.runtime.loop import errors
from tests.kit.tables import each_row

RUN = Quadruple("t", "u", "s", "r")
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]


@each_row("kind", CLASSES)
def test_every_error_is_a_steering_error_that_speaks(kind: type[errors.SteeringError]) -> None:
    """Each error can be caught as one family, and made without words it says what it is."""
    error = kind()
    assert isinstance(error, errors.SteeringError)
    assert isinstance(error, HarborageError)
    assert len(str(error)) > 10
    assert str(kind("told")) == "told"


def test_a_missing_identity_is_the_same_error_everywhere() -> None:
    """Steering raises the identity room's own error."""
    assert steering.IdentityRequiredError is identity.IdentityRequiredError


@pytest.mark.parametrize("kind", [errors.InboxNotFoundError, errors.InboxExistsError])
def test_inbox_errors_name_the_run(kind: type[errors.InboxNotFoundError | errors.InboxExistsError]) -> None:
    """The run is an attribute, and its id is in the text."""
    error = kind(run=RUN)
    assert error.run == RUN
    assert "'r'" in str(error)


def test_errors_carry_their_facts() -> None:
    """What a caller needs to react is an attribute."""
    assert errors.MaxStepsExceededError(max_steps=3).max_steps == 3
    shape = errors.DecisionShapeUnsupportedError(shape="SpawnTask")
    assert shape.shape == "SpawnTask"
    assert "SpawnTask" in str(shape)
