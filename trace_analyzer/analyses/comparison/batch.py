"""How much more or less work a rank does a step, from the grids of kernels that grow with the batch.

A normalization or element-wise kernel launches blocks in proportion to its rows. The same kernel, in
the same place of the step, with half the blocks in the other run works on half the batch. Matrix
products, attention and optimizers are left out: their grids follow the device or the parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from trace_analyzer.analyses.comparison.kernel_names import canonical
from trace_analyzer.analyses.kernel_table import KernelRow, Shape
from trace_analyzer.analyses.study import Study

_FAMILIES = frozenset(
    {"normalization", "softmax-loss", "elementwise", "dropout-random", "reduction"}
)
# Kernels over parameters keep their grid whatever the batch, so that a ratio other than 1 counts
# from a quarter of the time on, and 1 only where it takes most of it.
_LEAST_SHARE = 0.25
_LEAST_SHARE_OF_ONE = 0.75
_LIKE = 0.02  # ratios this near to each other are one: grids are rounded up


def batch_ratio(base: Study, run: Study) -> float | None:
    """Return rows a rank in `base` over rows a rank in `run`; None where the kernels do not tell."""
    weights: dict[float, float] = defaultdict(float)
    ours, theirs = _grids(base), _grids(run)
    for key in ours.keys() & theirs.keys():
        mine, other = ours[key], theirs[key]
        if len(mine) != len(other):
            continue
        for (blocks, ns), (other_blocks, _) in zip(mine, other, strict=True):
            weights[_rounded(blocks / other_blocks, weights)] += ns
    total = sum(weights.values())
    if total <= 0.0:
        return None
    changed = {ratio: ns for ratio, ns in weights.items() if ratio != 1.0}
    most = max(changed, key=lambda ratio: changed[ratio], default=1.0)
    if changed and changed[most] >= _LEAST_SHARE * total:
        return most
    return 1.0 if weights.get(1.0, 0.0) >= _LEAST_SHARE_OF_ONE * total else None


def _rounded(ratio: float, known: Mapping[float, float]) -> float:
    if abs(ratio - 1.0) <= _LIKE:
        return 1.0
    return next((other for other in known if abs(ratio / other - 1.0) <= _LIKE), ratio)


def _grids(study: Study) -> dict[tuple[str, Shape | None], list[tuple[int, float]]]:
    """Return (blocks, ns a launch) of every launch of a step, by kernel and block, smallest first."""
    steps = len(study.steady.used)
    found: dict[tuple[str, Shape | None], list[tuple[int, float]]] = defaultdict(list)
    for row in study.kernels:
        if row.category in _FAMILIES and row.shape.grid is not None and steps:
            found[canonical(row.name), row.shape.block] += _launches(row, row.shape.grid, steps)
    return {key: sorted(launches) for key, launches in found.items()}


def _launches(row: KernelRow, grid: Shape, steps: int) -> list[tuple[int, float]]:
    rank = min(row.steady_count, default=None)
    if rank is None:
        return []
    count = row.steady_count[rank] / steps
    whole = round(count)
    if whole == 0 or abs(count - whole) > 1e-9:
        return []  # not the same in every step
    return [(prod(grid), row.steady_ns[rank] / row.steady_count[rank])] * whole
