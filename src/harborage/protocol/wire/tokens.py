"""The message of `auth.rotate_token`."""

from __future__ import annotations

from datetime import datetime

import msgspec


class RotateTokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A new token of the same principal and scopes. The old one stays valid until it expires."""

    new_token: str
    expires_at: datetime
