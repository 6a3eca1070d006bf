"""Times of a run by step, on the ranks that are compared: what differences are computed of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.schema import Float64Array, Int64Array

_NS_PER_MS = 1e6
PARTS = (
    "compute",
    "transfer",
    "wait",
    "unsplit",
    "copy",
)
IDLE_PARTS = ("latency", "other")


def part_names(study: Study) -> list[str]:
    """Return the parts of a step in their order: late launches by what the host did."""
    hosts = [name for item in study.ranks.values() for name in item.idle.launch_by_host]
    return [*PARTS, *(f"launch:{name}" for name in dict.fromkeys(hosts)), *IDLE_PARTS]


def part_values(study: Study, item: RankStudy, names: Sequence[str]) -> Float64Array:
    """Return ms by steady step and part, shape (steps, parts); a part that is not known is 0.

    The parts of a step sum to its length.
    """
    chosen = item.steady
    split = None if study.cross is None else study.cross.ranks[item.rank.rank]
    nothing = np.zeros(len(chosen), dtype=np.int64)
    columns: dict[str, Int64Array] = {
        "compute": item.parts.compute_ns,
        "transfer": nothing,
        "wait": nothing,
        "unsplit": item.parts.comm_exposed_ns,
        "copy": item.parts.copy_exposed_ns,
        "latency": item.idle.latency_ns,
        "other": item.idle.other_ns,
    }
    if split is not None and split.matched > 0:
        columns |= {
            "transfer": split.exposed_transfer_ns,
            "wait": split.exposed_wait_ns,
            "unsplit": split.exposed_unsplit_ns,
        }
    columns |= {f"launch:{name}": ns for name, ns in item.idle.launch_by_host.items()}
    return np.stack([columns.get(name, nothing)[chosen] for name in names], axis=1) / _NS_PER_MS


def step_rows(item: RankStudy, times_ns: Int64Array) -> Int64Array:
    """Return the row of the steady step in which each time lies, -1 outside; rows count steady steps."""
    steps = item.steps
    row = np.searchsorted(steps.start_ns, times_ns, side="right") - 1
    place = np.maximum(row, 0)
    inside = (row >= 0) & (times_ns < steps.end_ns[place]) & item.steady[place]
    number = np.cumsum(item.steady) - 1
    return np.where(inside, number[place], -1).astype(np.int64)
