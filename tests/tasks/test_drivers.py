"""A configuration names a registry and two limits, and nonsense is refused when it is written."""

from __future__ import annotations

import pytest

from harborage.drivers import DriverUnknownError
from harborage.events import MemoryEventBus
from harborage.tasks import (
    TASK_DRIVERS,
    InProcessTaskRegistry,
    InvalidRequestError,
    RegistryParts,
    TaskRegistry,
    TasksConfig,
    open_tasks,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


def test_the_defaults() -> None:
    """The registry in this process, five minutes, eight hops."""
    config = TasksConfig()
    assert (config.driver, config.retain_turn_timeout_s, config.continuation_hop_limit) == ("inprocess", 300.0, 8)


@each_row("field", ["retain_turn_timeout_s", "continuation_hop_limit"])
@each_row("value", [0, -1])
def test_limits_must_be_positive(field: str, value: int) -> None:
    """A limit of zero or less is refused by name."""
    with pytest.raises(InvalidRequestError, match=f"tasks.{field}: must be greater than 0") as caught:
        TasksConfig(**{field: value})
    assert caught.value.field == f"tasks.{field}"


@pytest.mark.parametrize("name", ["", "inprocess"])
async def test_a_blank_driver_means_this_process(name: str) -> None:
    """The default registry lives in this process and satisfies the port."""
    registry = await open_tasks(TasksConfig(driver=name), RegistryParts(bus=MemoryEventBus()))
    assert isinstance(registry, InProcessTaskRegistry)
    assert isinstance(registry, TaskRegistry)


async def test_an_unknown_driver_lists_those_there_are() -> None:
    """The error names what could have been asked for."""
    with pytest.raises(DriverUnknownError, match=r"tasks: unknown driver cloud \(registered: inprocess\)"):
        await open_tasks(TasksConfig(driver="cloud"), RegistryParts(bus=MemoryEventBus()))
    assert TASK_DRIVERS.names() == ["inprocess"]
