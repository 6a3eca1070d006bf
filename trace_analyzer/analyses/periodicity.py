"""The period of a rank's kernel sequence: steps of a trace that marks none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trace_analyzer.kernels import category
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.tables import OperationKind, WorkClass

# A lag is a period if nine of ten kernels meet themselves there: logging and bucket rebuilds
# change a few kernels from step to step, while neighbouring layers differ in far more.
_LEAST_MATCH = 0.9
# The shortest lag within this much of the best one: multiples of a period match as well as it.
_MATCH_TOLERANCE = 0.005
# Random signs a kernel is represented by. The estimate of a lag's match has a standard error of
# 1 / sqrt(signs × kernels), which is refined exactly for the candidates.
_SIGNS = 8
# Enough for hundreds of steps; the period is a property of the sequence, not of its length.
_LONGEST_SEQUENCE = 1 << 18
# Below this a "step" would be a handful of kernels, such as a loop over one operator.
_LEAST_PERIOD = 8


def find_period(sequence: Int64Array) -> int | None:
    """Return the smallest lag at which a sequence of codes repeats, or None.

    At least two whole periods must be seen. The autocorrelation of random signs gives the share
    of equal codes for all lags at once, in O(n log n); the best lags are then counted exactly.
    """
    codes = sequence[:_LONGEST_SEQUENCE]
    count = len(codes)
    if count < 2 * _LEAST_PERIOD:
        return None
    distinct, inverse = np.unique(codes, return_inverse=True)
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), size=(len(distinct), _SIGNS))
    size = 1 << int(2 * count - 1).bit_length()
    spectrum = np.fft.rfft(signs[inverse], n=size, axis=0)
    power = np.sum((spectrum * np.conj(spectrum)).real, axis=1)
    correlation: npt.NDArray[np.float64] = np.fft.irfft(power, n=size)[: count // 2 + 1]
    estimate = correlation / (_SIGNS * (count - np.arange(len(correlation))))
    estimate[:_LEAST_PERIOD] = -1.0
    candidates = np.flatnonzero(estimate >= _LEAST_MATCH - 0.1)
    candidates = candidates[np.argsort(-estimate[candidates], kind="stable")][:64]
    exact = {int(lag): float(np.mean(codes[:-lag] == codes[lag:])) for lag in candidates}
    best = max(exact.values(), default=0.0)
    if best < _LEAST_MATCH:
        return None
    return min(lag for lag, share in exact.items() if share >= best - _MATCH_TOLERANCE)


def _phase(rank: Rank, rows: Int64Array, issue_ns: Int64Array, period: int) -> int:
    """Return where in the period a step begins: after the optimizer, else at the widest pause."""
    names = rank.operations.name[rows]
    whole = (len(rows) // period) * period
    is_optimizer = np.array(
        [category(rank.names[int(name)]) == "optimizer" for name in names[:period]], dtype=np.bool_
    )
    if is_optimizer.any() and not is_optimizer.all():
        # The cluster may wrap around the window's start: cut where the optimizer ends.
        ends = np.flatnonzero(is_optimizer & ~np.roll(is_optimizer, -1))
        return int((ends[-1] + 1) % period)
    pause = np.diff(issue_ns, prepend=issue_ns[:1])[:whole].reshape(-1, period)
    return int(np.argmax(np.median(pause, axis=0)))


def kernel_sequence_starts(rank: Rank, launch_ns: Int64Array) -> Int64Array | None:
    """Return the times at which periods of the kernel sequence are issued, at least three, or None.

    A kernel is issued when its launch call starts; where no kernel has one, when it starts itself.
    """
    operations = rank.operations
    chosen = (operations.kind == OperationKind.KERNEL) & (operations.work == WorkClass.COMPUTE)
    linked = ~is_na(launch_ns)
    if bool(np.any(linked & chosen)):
        chosen &= linked
    rows = np.flatnonzero(chosen)
    issue = np.where(linked, launch_ns, operations.start_ns)[rows]
    order = np.argsort(issue, kind="stable")
    rows, issue = rows[order], issue[order]
    width = np.int64(len(rank.configs) + 1)
    config = np.where(is_na(operations.launch_config), len(rank.configs), operations.launch_config)
    code = operations.name[rows].astype(np.int64) * width + config[rows]
    period = find_period(code)
    if period is None:
        return None
    first = _phase(rank, rows, issue, period)
    starts = issue[first::period]
    if len(starts) < 3:
        return None
    # A layer repeats too. If what surrounds the periods has kernels that no period has (embedding,
    # head, sampling), the period is a part of the step, and the step itself was not seen twice.
    names = operations.name[rows]
    last = first + (len(starts) - 1) * period
    surroundings = np.concatenate([names[:first], names[last:]])
    if not bool(np.all(np.isin(surroundings, names[first:last]))):
        return None
    return starts
