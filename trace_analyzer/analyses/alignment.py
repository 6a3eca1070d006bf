"""The shift between two sequences of collectives that were recorded over different windows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trace_analyzer.schema import Int64Array

# Random signs a code is represented by in the cross-correlation; candidates are checked exactly.
_SIGNS = 8
# Of the shifts that fit, the right one must be clearly nearer in time than the next: collectives of
# neighbouring steps are a step apart, while ends of one collective agree within clock error.
_CLEARLY_NEARER = 3.0
# A shift that leaves hardly any overlap fits by chance.
_LEAST_OVERLAP = 0.5


def best_shift(
    reference: Int64Array,
    other: Int64Array,
    reference_end_ns: Int64Array | None,
    other_end_ns: Int64Array | None,
) -> int | None:
    """Return s such that other[i] is the same collective as reference[i + s], or None.

    All codes in the overlap must be equal, and the overlap must be half of the shorter sequence.
    Where several shifts fit (training repeats itself), ends on a common clock decide; without a
    clock only a single fitting shift is accepted, or shift 0 for sequences that are equal as a
    whole.
    """
    fitting = _fitting_shifts(reference, other)
    if len(fitting) == 0:
        return None
    if len(fitting) == 1:
        return fitting[0]
    if reference_end_ns is None or other_end_ns is None:
        return 0 if 0 in fitting and len(reference) == len(other) else None
    distance = sorted(
        (_distance(shift, reference_end_ns, other_end_ns), shift) for shift in fitting
    )
    nearest, second = distance[0], distance[1]
    return nearest[1] if second[0] > _CLEARLY_NEARER * nearest[0] else None


def _overlap(shift: int, reference: int, other: int) -> tuple[slice, slice]:
    low, high = max(shift, 0), min(reference, other + shift)
    return slice(low, high), slice(low - shift, high - shift)


def _distance(shift: int, reference_end_ns: Int64Array, other_end_ns: Int64Array) -> float:
    """Return the median distance of the ends, ns."""
    left, right = _overlap(shift, len(reference_end_ns), len(other_end_ns))
    return float(np.median(np.abs(reference_end_ns[left] - other_end_ns[right])))


def _fitting_shifts(reference: Int64Array, other: Int64Array) -> list[int]:
    """Return the shifts at which the overlap is long enough and equal throughout.

    The cross-correlation of random signs estimates the share of equal codes for all shifts at
    once, in O(n log n); it is exactly the overlap's length where all codes are equal.
    """
    n, m = len(reference), len(other)
    if n == 0 or m == 0:
        return []
    distinct, inverse = np.unique(np.concatenate([reference, other]), return_inverse=True)
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), size=(len(distinct), _SIGNS))
    coded = signs[inverse.reshape(-1)]
    size = 1 << int(n + m - 1).bit_length()
    spectrum = np.fft.rfft(coded[:n], n=size, axis=0) * np.conj(
        np.fft.rfft(coded[n:], n=size, axis=0)
    )
    correlation: npt.NDArray[np.float64] = np.fft.irfft(spectrum.sum(axis=1), n=size) / _SIGNS
    shift = np.arange(-(m - 1), n)
    overlap = np.minimum(n, m + shift) - np.maximum(shift, 0)
    likely = (correlation[shift % size] >= overlap - 0.5) & (
        overlap >= max(1.0, _LEAST_OVERLAP * min(n, m))
    )
    fitting: list[int] = []
    for candidate in shift[likely].tolist():
        left, right = _overlap(candidate, n, m)
        if np.array_equal(reference[left], other[right]):
            fitting.append(candidate)
    return fitting
