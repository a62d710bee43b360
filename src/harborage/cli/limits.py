"""The options of `run` and `fork` that limit a run. Reading the help must stay cheap: this file imports no runtime."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

__all__ = ["Deadline", "MaxCost", "MaxSteps"]

_MOST_STEPS = 1_000_000_000
_MOST_SECONDS = 10 * 365 * 86_400
_MOST_DOLLARS = 1_000_000


MaxSteps: TypeAlias = Annotated[
    int | None, Parameter(help="How many steps it may take in all.", validator=Number(gt=0, lte=_MOST_STEPS))
]
Deadline: TypeAlias = Annotated[
    float | None, Parameter(help="How many seconds it may take.", validator=Number(gt=0, lte=_MOST_SECONDS))
]
MaxCost: TypeAlias = Annotated[
    float | None,
    Parameter(
        help="How many US dollars its models may cost, with all that it starts.",
        validator=Number(gt=0, lte=_MOST_DOLLARS),
    ),
]
