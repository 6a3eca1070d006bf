"""The program without the profiler, and what is made of a known unprofiled step.

A known step that the prediction misses by a little says something about one of two clocks: the
host's, or, where the GPU alone decides the step, the GPU's (its clock rate follows power and heat,
and differs between a timing and a recording by a percent or two).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trace_analyzer.analyses.replay.built import Built
from trace_analyzer.analyses.replay.costs import ProfilerCosts, unperturbed
from trace_analyzer.analyses.replay.edit import Edit
from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.analyses.replay.step_time import StepTime, step_time
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array

# Bounds of the factor by which host time may be scaled to meet a known step.
SCALES = (0.25, 4.0)
# A GPU whose clock is to explain more than this is not what decides the step.
LARGEST_DEVICE_SHIFT = 0.05
# A host that was taken to be hidden behind the device is not slower than predicted by more than what
# predictions of hosts are wrong by.
SLOWEST_UNSEEN_HOST = 1.25
# A known step that is met this well is not fitted any further.
MET_SHARE = 0.002
# The step is bound by one side where the other side's time hardly matters.
BOUND_SHARE = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Factors of all host time, and of all durations on the device."""

    host: float = 1.0
    device: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Clean:
    """What a program without the profiler is made of."""

    built: Built
    ranks: Mapping[int, Rank]
    costs: ProfilerCosts
    steady: BoolArray

    def program(self, fit: Fit) -> Program:
        """Return the program without the profiler's costs, with the factors of a fit."""
        program = self._free
        if fit.host != 1.0:
            program = replace(
                program,
                node_gap_ns=_scaled(program.node_gap_ns, fit.host),
                node_cost_ns=_scaled(program.node_cost_ns, fit.host),
            )
        if fit.device != 1.0:
            program = replace(
                program,
                op_base_ns=_scaled(program.op_base_ns, fit.device),
                collective_transfer_ns=_scaled(program.collective_transfer_ns, fit.device),
            )
        return program

    @cached_property
    def _free(self) -> Program:
        return unperturbed(self.built, self.ranks, self.costs)

    def time(self, fit: Fit) -> StepTime:
        """Return its settled steps. Raises `ReplayError`."""
        return step_time(self.program(fit), self.steady)


def _scaled(times: Int64Array, factor: float) -> Int64Array:
    scaled: Int64Array = np.rint(times * factor).astype(np.int64)
    return scaled


def fitted(clean: Clean, known_ns: float) -> Fit:
    """Return the factors with which T comes nearest to a known unprofiled step, ns.

    Where the device decides, its durations are scaled; else, and where no clock explains the miss,
    the host's time is. T grows with either, so that bisection finds the factor. A known step that no
    host is fast enough for is one that the device decides: the host then gets the largest factor
    that does not lengthen it, and the rest of the miss is the device's.
    """
    predicted = clean.time(Fit())
    off = known_ns / predicted.median_ns - 1.0
    if abs(off) <= MET_SHARE:
        return Fit()
    bound = bound_of(clean, clean.program(Fit()), predicted)
    found = _nearest(clean, known_ns, off, bound)
    # A step that grows with one clock as a whole may still be shorter here and there.
    nearer = abs(known_ns / clean.time(found).median_ns - 1.0) < abs(off)
    return found if nearer else Fit()


def _nearest(clean: Clean, known_ns: float, off: float, bound: str) -> Fit:
    """Return what `fitted` does, for a known step that is `off` from the predicted one."""
    if bound == "device" and abs(off) <= LARGEST_DEVICE_SHIFT:
        around = (1.0 - 2 * LARGEST_DEVICE_SHIFT, 1.0 + 2 * LARGEST_DEVICE_SHIFT)
        return _found(clean, known_ns, lambda factor: Fit(device=factor), around)
    # Loader workers with a pace of their own hide the host as the device does.
    paced = any(part.supply is not None for part in clean.built.parts.values())
    longest = SLOWEST_UNSEEN_HOST if bound == "device" or paced else SCALES[1]
    slowest = longest if off > 0 else 1.0
    host = _found(clean, known_ns, lambda factor: Fit(host=factor), (SCALES[0], slowest))
    over = known_ns / clean.time(host).median_ns
    if 1.0 - LARGEST_DEVICE_SHIFT <= over < 1.0 - MET_SHARE:
        return Fit(host=host.host * over, device=over)
    return host


def _found(
    clean: Clean, known_ns: float, fit: Callable[[float], Fit], bounds: tuple[float, float]
) -> Fit:
    low, high = bounds
    least_ns = clean.time(fit(low)).median_ns
    if least_ns > known_ns * (1.0 + LARGEST_DEVICE_SHIFT):
        return Fit()
    known_ns = max(known_ns, least_ns * (1.0 + MET_SHARE))
    if known_ns >= clean.time(fit(high)).median_ns:
        return Fit()
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        below = clean.time(fit(middle)).median_ns < known_ns
        low, high = (middle, high) if below else (low, middle)
    return fit(float(np.sqrt(low * high)))


def bound_of(clean: Clean, base: Program, time: StepTime) -> str:
    """Return which side decides the step: "device", "host", or "mixed"."""
    fast_host = Edit(clean.built, clean.ranks, base)
    fast_device = Edit(clean.built, clean.ranks, base)
    for number in clean.ranks:
        fast_host.all_host(number, 0.0)
        fast_device.scale_duration(number, clean.built.parts[number].op_row, 0.0)
    fast_device.column("collective_transfer_ns")[:] = 0

    def share(edit: Edit) -> float:
        return step_time(edit.program(), time.steady).median_ns / time.median_ns

    if share(fast_host) >= BOUND_SHARE:
        return "device"
    return "host" if share(fast_device) >= BOUND_SHARE else "mixed"
