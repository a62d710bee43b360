"""The planner's error tree."""

from __future__ import annotations

from harborage import codec, drivers, identity, planner
from harborage.errors import HarborageError
from harborage.planner import errors
from tests.kit.tables import each_row

OWN = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]


@each_row("error", OWN, ids=lambda error: error.__name__)
def test_every_error_is_a_planner_error_with_a_message(error):
    """Every error of the room can be caught as PlannerError and says something when raised bare."""
    assert issubclass(error, errors.PlannerError)
    assert issubclass(error, HarborageError)
    assert str(error())


def test_shared_errors_are_the_other_rooms_own():
    """An error that another room raises is the very same class here."""
    assert planner.UnserializableError is codec.UnserializableError
    assert planner.IdentityRequiredError is identity.IdentityRequiredError
    assert planner.IdentityMissingError is identity.IdentityMissingError
    for name in ("DriverUnknownError", "DriverEmptyNameError", "DriverNilFactoryError", "DriverDuplicateError"):
        assert getattr(planner, name) is getattr(drivers, name)


def test_repair_exhausted_text_is_fixed():
    """The text of an exhausted repair travels in metadata, so it is exact."""
    assert str(planner.RepairExhaustedError()) == "planner: schema repair exhausted"


def test_identifiers_are_attributes():
    """What an error is about can be read from it without parsing its text."""
    assert planner.ToolContextLostError("h-1").handle == "h-1"
    assert planner.DeterministicStepError(3, "boom").index == 3
    assert planner.MemoryBlockUnserializableError("external", "no").tier == "external"
    cap = planner.ParallelCapExceededError(51, 50)
    assert (cap.branches, cap.cap) == (51, 50)
    branch = planner.ParallelBranchInvalidArgsError(2, "search", "missing q")
    assert (branch.index, branch.tool, branch.reason) == (2, "search", "missing q")
    unmet = planner.ParallelThresholdUnmetError(2, 1, {4: "late", 0: "boom"})
    assert (unmet.needed, unmet.succeeded) == (2, 1)
    assert str(unmet).endswith("(branch 0: boom; branch 4: late)")


def test_parallel_errors_share_a_parent():
    """Whatever is wrong with a parallel call can be caught at once."""
    names = ["CapExceeded", "InvalidJoin", "BranchInvalidArgs", "PauseUnsupported", "ThresholdUnmet"]
    assert all(issubclass(getattr(planner, f"Parallel{name}Error"), planner.ParallelError) for name in names)
    assert not issubclass(planner.ParallelThresholdUnmetError, planner.InvalidDecisionError)
