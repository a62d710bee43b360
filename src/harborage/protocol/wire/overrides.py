"""The messages of `runs.set_overrides`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import Answer, Request


class OverrideParts(msgspec.Struct, frozen=True, kw_only=True):
    """What to set for the next run of a session; a blank `session_id` is the caller's own, unset fields change nothing.

    `reasoning_effort` is low, medium or high, `temperature` from 0 to 2, `top_p` from 0 to 1, `max_tokens` above 0.
    """

    session_id: str = ""
    reasoning_effort: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    system_prompt_override: str = ""


class SetOverrides(Request, frozen=True, kw_only=True):
    """`runs.set_overrides`; a blank set is legal, and takes back what was set before."""

    overrides: OverrideParts = OverrideParts()


class OverridesSet(Answer, frozen=True, kw_only=True):
    """The answer of `runs.set_overrides`: when they were recorded."""

    applied_at: datetime
