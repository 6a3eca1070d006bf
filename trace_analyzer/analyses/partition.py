r"""The exact partition of time: compute, exposed communication, exposed copies, idle.

With C, N and M the unions of computing kernels, of communication kernels and of copies and memsets
of a rank, over all its streams and devices: exposed comm = |N \ C|, exposed copy =
|M \ (C ∪ N)|, idle = length - |C ∪ N ∪ M|. The four parts sum to the length, in integer ns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int64Array
from trace_analyzer.tables import WorkClass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Busy:
    """When a rank's devices were busy, by class of work."""

    compute: Intervals
    comm: Intervals
    copy: Intervals
    compute_or_comm: Intervals
    any: Intervals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """Parts of windows, ns; all arrays have one entry a window.

    `compute_ns + comm_exposed_ns + copy_exposed_ns + idle_ns == length_ns`. `comm_ns` counts
    hidden communication too.
    """

    length_ns: Int64Array
    compute_ns: Int64Array
    comm_ns: Int64Array
    comm_exposed_ns: Int64Array
    copy_exposed_ns: Int64Array
    idle_ns: Int64Array

    def __len__(self) -> int:
        return len(self.length_ns)


def busy(rank: Rank) -> Busy:
    """Return the unions C, N and M of a rank."""
    operations = rank.operations
    sets = [
        intervals.union(
            operations.start_ns[operations.work == work], operations.end_ns[operations.work == work]
        )
        for work in (WorkClass.COMPUTE, WorkClass.COMM, WorkClass.COPY)
    ]
    compute, comm, copy = sets
    compute_or_comm = intervals.merge(compute, comm)
    return Busy(
        compute=compute,
        comm=comm,
        copy=copy,
        compute_or_comm=compute_or_comm,
        any=intervals.merge(compute_or_comm, copy),
    )


def partition(work: Busy, start_ns: Int64Array, end_ns: Int64Array) -> Partition:
    """Divide the windows [start_ns, end_ns); both arrays have one entry a window."""
    length = np.maximum(end_ns - start_ns, 0)
    compute = intervals.coverage(work.compute, start_ns, end_ns)
    either = intervals.coverage(work.compute_or_comm, start_ns, end_ns)
    anything = intervals.coverage(work.any, start_ns, end_ns)
    return Partition(
        length_ns=length,
        compute_ns=compute,
        comm_ns=intervals.coverage(work.comm, start_ns, end_ns),
        comm_exposed_ns=either - compute,
        copy_exposed_ns=anything - either,
        idle_ns=length - anything,
    )


def partition_window(work: Busy, start_ns: int, end_ns: int) -> Partition:
    """Divide one window."""
    return partition(work, np.array([start_ns], dtype=np.int64), np.array([end_ns], dtype=np.int64))
