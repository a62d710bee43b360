"""A check of everything in Postgres: it finds what was damaged from outside, wherever that is, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harborage.store.examining import Part
from tests.kit.audited import DAMAGE, fill, found


@pytest.mark.parametrize("size", [2, 1000])
async def test_what_is_damaged_is_found_and_nothing_else(
    new_place: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Each fact that no longer agrees is reported with its row; a store that is whole has none, and is left as it
    was."""
    monkeypatch.setattr("harborage.store.sql.audit.SIZES", dict.fromkeys(Part, size))
    async with new_place() as place:
        store = await place.open()
        await fill(store)
        assert await found(store) == {}
        for sql, (kind, subjects) in DAMAGE.items():
            tables = [row["tablename"] for row in await _tables(place)]
            await place.admin.execute(
                "begin; " + "; ".join(f"create table kept_{one} as table {one}" for one in tables)
            )
            await place.admin.execute("commit")
            await place.admin.execute(f"set session_replication_role = replica; {_written(sql)}")
            assert (sql, await found(store)) == (sql, {kind: {*subjects.split()}})
            await place.admin.execute("; ".join(map(_restored, tables)))


async def _tables(place: Any) -> Any:
    return await place.admin.fetch(
        "select tablename from pg_tables where schemaname = $1 and tablename like 'harborage%' order by 1", place.schema
    )


def _written(sql: str) -> str:
    return sql.format(bad="'\\x6e6f'::bytea", no="'\\x7b7d'::bytea")


def _restored(table: str) -> str:
    return (
        f"delete from {table}; insert into {table} overriding system value select * from kept_{table}; "
        f"drop table kept_{table}"
    )
