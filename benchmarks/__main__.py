"""`python -m benchmarks [NAME …]`: run them, print a table of ratios, write them to `benchmarks/out/results.json`.

It exits with 1 when a row misses what it promises.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.busy import busy_controls
from benchmarks.deltas import streamed_deltas
from benchmarks.durable import durable_steps
from benchmarks.fanout import event_fan_out, tool_fan_out
from benchmarks.imports import import_time
from benchmarks.kept import kept_runs
from benchmarks.local import embedded_model
from benchmarks.mcp import mcp_calls
from benchmarks.measure import Row
from benchmarks.million import million_runs
from benchmarks.server import server_requests
from benchmarks.steering import control_latency, parked_memory
from benchmarks.steps import in_flight, step_overhead
from benchmarks.storage import storage_cost
from benchmarks.store import store_cost
from benchmarks.streams import thousand_streams

BENCHMARKS: dict[str, Callable[[], Awaitable[list[Row]]]] = {
    "steps": step_overhead,
    "flight": in_flight,
    "tools": tool_fan_out,
    "events": event_fan_out,
    "controls": control_latency,
    "parked": parked_memory,
    "deltas": streamed_deltas,
    "imports": import_time,
    "storage": storage_cost,
    "store": store_cost,
    "durable": durable_steps,
    "kept": kept_runs,
    "million": million_runs,
    "server": server_requests,
    "streams": thousand_streams,
    "busy": busy_controls,
    "mcp": mcp_calls,
    "local": embedded_model,
}
_WIDTH = 120
OUT = Path(__file__).parent / "out" / "results.json"


def main(names: Sequence[str]) -> int:
    """Run the benchmarks of these names, or all of them; 1 when a promise is missed, 2 for a name that is none."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr)
        rows.extend(asyncio.run(_run(BENCHMARKS[name])))
    _show(rows)
    _write(rows)
    missed = [row for row in rows if row.is_missed]
    for row in missed:
        note = f" ({row.note})" if row.note else ""
        print(f"missed: {row.name}{note}: {_figure(row)}, promised {_limit(row)}", file=sys.stderr)
    return 1 if missed else 0


async def _run(benchmark: Callable[[], Awaitable[list[Row]]]) -> list[Row]:
    return await benchmark()


def _show(rows: Sequence[Row]) -> None:
    table = Table(title=f"Harborage beside a bare asyncio loop, Python {platform.python_version()}")
    table.add_column("what")
    for column in ("unit", "harborage", "bare", "ratio", "limit"):
        table.add_column(column, justify="right")
    for row in rows:
        style = "bold red" if row.is_missed else None
        figures = (_number(one) for one in (row.ours, row.bare, row.ratio))
        table.add_row(row.name, row.unit, *figures, _limit(row), style=style)
    is_read_live = sys.stdout.isatty()
    Console(width=None if is_read_live else _WIDTH).print(table)


def _figure(row: Row) -> str:
    """What the row has measured, and how many times the bare side that is, where there is one."""
    amount = f"{_number(row.ours)} {row.unit}"
    return amount if row.bare is None else f"{amount}, {_number(row.ratio)} ×"


def _limit(row: Row) -> str:
    """What the row promises: so many times the bare side, so much of the unit, or both."""
    promised = (
        (row.limit, f"{_number(row.limit)} ×"),
        (row.most, f"{_number(row.most)} {row.unit}"),
        (row.least, f"at least {_number(row.least)}"),
    )
    return ", ".join(text for value, text in promised if value is not None) or "–"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _write(rows: Sequence[Row]) -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    lines = [{**msgspec.structs.asdict(row), "ratio": row.ratio} for row in rows]
    OUT.write_bytes(msgspec.json.format(msgspec.json.encode({"machine": machine, "rows": lines})) + b"\n")
    print(f"written to {OUT}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
