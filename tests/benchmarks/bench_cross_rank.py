"""How long the cross-rank analysis takes in large synthetic worlds. Run by hand:

python -m tests.benchmarks.bench_cross_rank
"""

from __future__ import annotations

import resource
import time

from tests.worlds import prepared, world
from trace_analyzer.analyses.cross_rank import cross_rank
from trace_analyzer.analyses.partition import busy

CASES = ((64, 15_625, True), (64, 15_625, False), (1024, 1_000, True), (1024, 1_000, False))


def main() -> None:
    """Print a table: ranks, collectives, events, seconds and peak memory."""
    print("ranks  collectives   events  keys      seconds  peak MB")
    for ranks, collectives, sequence in CASES:
        made = world(ranks, collectives, late_rank=3, offsets_ns=5_000_000)
        made.sequence = sequence
        recorded, steps = prepared({number: made.rank(number) for number in range(ranks)})
        begin = time.perf_counter()
        found = cross_rank(recorded, steps, {n: busy(rank) for n, rank in recorded.items()})
        seconds = time.perf_counter() - begin
        assert found is not None
        assert found.matches.count == len(made.transfer_ns)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        keys = "sequence" if sequence else "steps"
        print(
            f"{ranks:5}  {len(made.transfer_ns):11,}  {len(found.events):7,}"
            f"  {keys:8}  {seconds:7.2f}  {peak:7.0f}"
        )


if __name__ == "__main__":
    main()
