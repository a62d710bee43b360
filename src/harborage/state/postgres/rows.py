"""How values of the ports become columns and come back; nothing here opens or asks a database.

Free text goes through `kept_text`, since it may hold what Postgres refuses in text; names are kept as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harborage.identity import Quadruple
from harborage.state.store import StateRecord

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Row

_ESCAPED = re.compile(r"\\(.)")


def kept_text(text: str) -> str:
    r"""Text without NUL: it becomes `\0`, and a backslash becomes two."""
    if "\0" not in text and "\\" not in text:
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def read_text(text: str) -> str:
    """What was kept by `kept_text`."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text)


def state_record_of(row: Row, tenant_id: str, user_id: str, session_id: str) -> StateRecord:
    """The record in a row of a slot of this session."""
    who = Quadruple(tenant_id, user_id, session_id, row["run_id"])
    return StateRecord(row["event_id"], who, row["kind"], row["data"], row["version"], row["updated_at"])
