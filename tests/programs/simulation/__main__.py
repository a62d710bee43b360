"""`python -m tests.programs.simulation`: play many stories and name those that fail, or print one of them in full."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.programs.simulation.coverage import EVERYTHING
from tests.programs.simulation.stories import many, play

_MANY = 500
"""As many stories are about everything, most likely."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a story failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="tell this one story")
    parser.add_argument("--verbose", action="store_true", help="with --seed: tell every call of the storage, too")
    parser.add_argument("--seeds", type=int, default=1000, help="how many stories to play (1000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once (one for each core)")
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        return _tell(asked.seed, is_verbose=asked.verbose)
    return _play_many(range(asked.start, asked.start + asked.seeds), asked.jobs)


def _tell(seed: int, *, is_verbose: bool) -> int:
    outcome = play(seed, is_verbose=is_verbose)
    _say(outcome.trace)
    struck = ", ".join(f"{count} × {kind}" for kind, count in sorted(outcome.struck.items())) or "nothing"
    _say(f"seed {seed}: {outcome.turns} turns, {outcome.seconds:.1f} simulated seconds, struck by {struck}")
    if outcome.result:
        _say(f"came up: {', '.join(sorted(outcome.result))}")
    _say(f"digest {outcome.digest}")
    return 0 if outcome.error is None else 1


def _play_many(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    failed = 0
    missed = set(EVERYTHING)
    for one in many(seeds, jobs):
        missed -= one.marks
        if one.error:
            failed += 1
            _say(f"seed {one.seed}: {one.error.splitlines()[0][:300]}")
            _say(f"  alone: python -m tests.programs.simulation --seed {one.seed}")
    took = time.monotonic() - began
    if missed and len(seeds) >= _MANY:
        _say(f"never came up: {', '.join(sorted(missed))}")
    _say(f"{len(seeds)} stories, {failed} failed; {took:.0f} s, {len(seeds) / max(took, 1e-9):.1f} a second")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
