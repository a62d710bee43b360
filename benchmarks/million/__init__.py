"""What a store answers, and a claim and a check of it cost, once it has a million runs.

`HARBORAGE_BENCH_RUNS=10000 python -m benchmarks million` does the same with fewer.
"""

from benchmarks.million.asking import million_runs

__all__ = ["million_runs"]
