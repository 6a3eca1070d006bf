"""Whether a Kineto and an nsys recording are of the same job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trace_analyzer.model import Rank
from trace_analyzer.tables import OperationKind

SAME_JOB_SHARE = 0.5  # of the launches, by kernel name

_TEMPLATE_OR_ARGUMENTS = re.compile(r"[<(].*$", re.DOTALL)


def same_job(one: Sequence[Rank], other: Sequence[Rank]) -> bool:
    """Tell whether two sets of ranks ran the same program, by the mix of their kernels.

    The two profilers write C++ names slightly differently, so only the part before template and
    call arguments counts. Recordings without kernels are not taken for the same job.
    """
    if one[0].world_size and other[0].world_size and one[0].world_size != other[0].world_size:
        return False
    first, second = _mix(one), _mix(other)
    shared = sum(min(share, second[name]) for name, share in first.items() if name in second)
    return shared >= SAME_JOB_SHARE


def _mix(ranks: Sequence[Rank]) -> dict[str, float]:
    """Return the share of every kernel in all launches."""
    counts: Counter[str] = Counter()
    for rank in ranks:
        operations = rank.operations
        names = operations.name[operations.kind == OperationKind.KERNEL]
        for position, count in enumerate(np.bincount(names, minlength=len(rank.names))):
            if count:
                counts[_bare(rank.names[position])] += int(count)
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}


def _bare(name: str) -> str:
    without_type = name.removeprefix("void ").strip()
    return _TEMPLATE_OR_ARGUMENTS.sub("", without_type).strip()
