"""Which steps count: warm-up, partial and outlier steps are set aside, by stated rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array

# An outlier is above median + max(5 scaled MAD, 10 %): 5 sigma of a normal core, and never less
# than what two healthy steps of an eager training loop differ by.
OUTLIER_MADS = 5.0
OUTLIER_LEAST_SHARE = 0.10
# Below this the median of the steps is itself too uncertain to call one of them an outlier.
OUTLIER_LEAST_STEPS = 5
# Makes the median absolute deviation an estimate of a normal distribution's sigma.
_MAD_SCALE = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steady:
    """The chosen steps of every rank.

    `used` holds step numbers. `mask[rank]` has one entry a step of that rank's DeviceSteps.
    `excluded` names every other step once, with the reason.
    """

    used: tuple[int, ...]
    mask: Mapping[int, BoolArray]
    excluded: tuple[tuple[int, str], ...]
    partial: bool


def outlier_limit_ns(length_ns: Int64Array) -> float:
    """Return the step length above which a step is an outlier; infinity with fewer than 5 steps."""
    return outlier_limit(length_ns)


def outlier_limit(lengths: Int64Array | Float64Array) -> float:
    """Return the same for lengths of any unit, in that unit."""
    if len(lengths) < OUTLIER_LEAST_STEPS:
        return float("inf")
    median = float(np.median(lengths))
    mad = float(np.median(np.abs(lengths - median)))
    return median + max(OUTLIER_MADS * _MAD_SCALE * mad, OUTLIER_LEAST_SHARE * median)


def _reasons(steps: DeviceSteps) -> dict[int, str]:
    """Return the steps of one rank that do not count, by number.

    Outliers that lead the recording are warm-up (lazy loading, autotuning, compilation): the rule
    is the same, the name is not.
    """
    length = steps.length_ns
    limit = outlier_limit_ns(length)
    reasons: dict[int, str] = {}
    leading = True
    for number, ns in zip(steps.index.tolist(), length.tolist(), strict=True):
        if ns > limit:
            kind = "warm-up" if leading else "outlier"
            reasons[number] = f"{kind}: {ns / 1e6:.1f} ms, above {limit / 1e6:.1f} ms"
        else:
            leading = False
    return reasons


def steady_steps(steps: Mapping[int, DeviceSteps], chosen: tuple[int, int] | None = None) -> Steady:
    """Return the steady steps of a run; keys of `steps` are ranks.

    A step that does not count on one rank counts on none, because ranks wait for each other.
    `chosen` is a range of step numbers [first, last] that the user wants; it replaces the rules.
    Where ranks have no step number in common, each keeps its own.
    """
    with_steps = {rank: item for rank, item in steps.items() if len(item)}
    candidates = _numbers(with_steps)
    common = _common([item.index for item in with_steps.values()])
    reasons: dict[int, str] = {}
    for rank in sorted(steps):
        for number, reason in steps[rank].excluded:
            reasons.setdefault(number, reason)
    for rank in sorted(with_steps):
        found = _reasons(with_steps[rank]) if chosen is None else {}
        for number, reason in found.items():
            suffix = f" on rank {rank}" if len(with_steps) > 1 else ""
            reasons.setdefault(number, reason + suffix)
    for number in candidates:
        if chosen is not None and not chosen[0] <= number <= chosen[1]:
            reasons[number] = "not asked for"
        elif common is not None and number not in common:
            reasons.setdefault(number, "not recorded on every rank")
    used = tuple(number for number in candidates if number not in reasons)
    if not used and chosen is None:
        # Rules that leave nothing say nothing: keep what there is and let the count speak.
        used = tuple(number for number in candidates if common is None or number in common)
        reasons = {number: why for number, why in reasons.items() if number not in used}
    keep = np.array(used, dtype=np.int64)
    return Steady(
        used=used,
        mask={rank: np.isin(item.index, keep) for rank, item in steps.items()},
        excluded=tuple(sorted(reasons.items())),
        partial=any(item.partial for item in with_steps.values()),
    )


def _numbers(steps: Mapping[int, DeviceSteps]) -> list[int]:
    return sorted({int(number) for item in steps.values() for number in item.index})


def _common(indices: Sequence[Int64Array]) -> set[int] | None:
    """Return the step numbers that all ranks have, or None where there is none."""
    sets = [set(index.tolist()) for index in indices]
    shared = set.intersection(*sets) if sets else set()
    return shared or None


def run_step_ns(
    steps: Mapping[int, DeviceSteps], steady: Steady
) -> tuple[float | None, float | None]:
    """Return T, the maximum over ranks of the median steady step, and the same with means; ns."""
    medians: list[float] = []
    means: list[float] = []
    for rank, item in steps.items():
        length: Float64Array = item.length_ns[steady.mask[rank]].astype(np.float64)
        if len(length):
            medians.append(float(np.median(length)))
            means.append(float(np.mean(length)))
    return (max(medians), max(means)) if medians else (None, None)
