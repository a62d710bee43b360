"""What a caller sets for the next run of a session: one pending slot for each principal, in the store of records.

The last write wins, and the next start that asks for it takes it, once, whichever process starts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import InvalidOptionError, at_least
from harborage.ids import new_id
from harborage.runtime.loop.seam import ModelOverrides
from harborage.state import RecordNotFoundError, StateRecord, SwappingStateStore

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.state import StateStore

KIND: Final = "runs.overrides"
"""The kind of the record that holds them."""

EFFORTS: Final = ("low", "medium", "high")

_MOST_TEMPERATURE: Final = 2
_MOST_TOP_P: Final = 1


def check_overrides(overrides: ModelOverrides) -> None:
    """Accept overrides that a model can take.

    Raises:
        InvalidOptionError: one is out of its range; the first in the order of the fields.
    """
    if overrides.reasoning_effort and overrides.reasoning_effort not in EFFORTS:
        raise InvalidOptionError("reasoning_effort", overrides.reasoning_effort, f"one of {', '.join(EFFORTS)}")
    for name, most in (("temperature", _MOST_TEMPERATURE), ("top_p", _MOST_TOP_P)):
        value = getattr(overrides, name)
        if value is not None and not 0 <= value <= most:
            raise InvalidOptionError(name, value, f"a number from 0 to {most}")
    if overrides.max_tokens is not None:
        at_least(1, overrides.max_tokens, "max_tokens", is_whole=True)


async def set_overrides(state: StateStore, who: Identity, overrides: ModelOverrides) -> None:
    """Set what the next run of `who` is started with, in place of what was set before.

    Raises:
        InvalidOptionError: a value is out of its range; nothing is set.
        IdentityRequiredError: a part of the identity is empty.
        DatabaseError: the store refused.
    """
    check_overrides(overrides)
    await state.save(_record(who, codec.encode(overrides, KIND)))


async def take_overrides(state: StateStore, who: Identity) -> ModelOverrides | None:
    """Return what was set for the next run of `who`, and leave nothing; None where nothing was.

    Of several starts at the same moment, in any process, one gets it.

    Raises:
        DatabaseError: the store refused.
    """
    while True:
        try:
            record = await state.load(who.with_run(""), KIND)
        except RecordNotFoundError:
            return None
        if not record.data:
            return None
        if await _empty(state, who, record):
            try:
                return codec.decode(record.data, ModelOverrides)  # type: ignore[no-any-return]
            except msgspec.DecodeError:
                return None  # another version wrote it; a run starts without it


async def put_back(state: StateStore, who: Identity, overrides: ModelOverrides) -> None:
    """Set again what a start took that did not come about, unless something newer was set meanwhile."""
    try:
        record = await state.load(who.with_run(""), KIND)
    except RecordNotFoundError:
        after = ""
    else:
        if record.data:
            return
        after = record.event_id
    again = _record(who, codec.encode(overrides, KIND))
    if isinstance(state, SwappingStateStore):
        await state.swap(again, after=after)
    else:
        await state.save(again)


async def _empty(state: StateStore, who: Identity, record: StateRecord) -> bool:
    """Empty the slot as long as it holds this record; False when another caller was faster."""
    if isinstance(state, SwappingStateStore):
        return await state.swap(replace(_record(who, b""), version=record.version), after=record.event_id)
    await state.delete(who.with_run(""), KIND)
    return True


def _record(who: Identity, data: bytes) -> StateRecord:
    return StateRecord(event_id=new_id(), identity=who.with_run(""), kind=KIND, data=data)
