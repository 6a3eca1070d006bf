"""Where training steps begin on the host: the marks that divide the launches of a rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trace_analyzer.analyses.periodicity import kernel_sequence_starts
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.tables import HostCategory

_PROFILER_STEP = re.compile(r"^ProfilerStep\s*#\s*(\d+)$")
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
_NUMBER = re.compile(r"\d+")
KERNEL_SEQUENCE = "kernel sequence"
# Ranges that repeat once a step or more often, but never enclose a whole one.
_NEVER_A_STEP = re.compile(
    r"^(?:nccl|c10d::|enumerate\(DataLoader\)|Optimizer\.|DistributedDataParallel|aten::|autograd::"
    r"|PyTorch Profiler|Torch-Compiled|FSDP::|\[pytorch)"
)
# A range counts as a step if the launches between its first and last occurrence lie in it, but for
# what a training loop does between two iterations (logging, zero_grad before the range).
_LEAST_SHARE_INSIDE = 0.9
# … and if it does not leave out most of the recording (a validation pass would).
_LEAST_SHARE_OF_ALL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostSteps:
    """Host steps in order: step k owns what is launched in [start_ns[k], end_ns[k]).

    `index` holds the numbers as the trace gives them, or 0, 1, … where it gives none.
    """

    basis: str  # "ProfilerStep#N", "range NAME", "Optimizer.step", "kernel sequence"
    index: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    inferred: bool

    def __len__(self) -> int:
        return len(self.start_ns)


def launch_times(rank: Rank) -> Int64Array:
    """Return the start of the launch call of every GPU operation; NA where it has none."""
    launch = rank.operations.launch
    times = np.full(len(launch), np.iinfo(np.int64).min, dtype=np.int64)
    linked = ~is_na(launch)
    times[linked] = rank.calls.start_ns[launch[linked]]
    return times


def find_host_steps(rank: Rank, step_range: str | None = None) -> HostSteps | None:
    """Return the host steps of a rank, or None where nothing in the trace repeats.

    Tried in this order: `step_range` (a range name; digits in it match any number), ProfilerStep
    marks, a user range that encloses the launches, ends of the optimizer's step, the period of
    the kernel sequence.
    """
    if step_range is not None and step_range.rstrip("N").rstrip("# ") == "ProfilerStep":
        return _from_profiler_steps(rank)
    if step_range is not None:
        return _from_named_range(rank, step_range)
    return (
        _from_profiler_steps(rank)
        or _from_enclosing_range(rank)
        or _from_optimizer(rank)
        or _from_kernels(rank)
    )


def _consecutive(
    basis: str, index: Int64Array, start_ns: Int64Array, end_ns: Int64Array, *, inferred: bool
) -> HostSteps:
    """Close each step where the next one starts, so that no launch falls between two steps."""
    closed = end_ns.copy()
    closed[:-1] = start_ns[1:]
    return HostSteps(basis=basis, index=index, start_ns=start_ns, end_ns=closed, inferred=inferred)


def _events_named(rank: Rank, wanted: dict[int, int]) -> tuple[Int64Array, ...]:
    """Return (number, start, end) of the host events whose name position is a key of `wanted`.

    Of any category: traces of 2021 call these marks operators.
    """
    events = rank.events
    keys = np.array(sorted(wanted), dtype=np.int64)
    rows = np.flatnonzero(np.isin(events.name, keys))
    numbers = np.array([wanted[int(name)] for name in events.name[rows]], dtype=np.int64)
    return numbers, events.start_ns[rows], events.end_ns[rows]


# A number that no program counts to; larger ones are damaged, or are no step numbers.
LARGEST_STEP = 2**62


def _from_profiler_steps(rank: Rank) -> HostSteps | None:
    wanted: dict[int, int] = {}
    for position, text in enumerate(rank.names):
        match = _PROFILER_STEP.match(text)
        if match and int(match.group(1)) < LARGEST_STEP:
            wanted[position] = int(match.group(1))
    if not wanted:
        return None
    number, start, end = _events_named(rank, wanted)
    if len(number) == 0:
        return None
    number, first = np.unique(number, return_index=True)
    start, end = start[first], end[first]
    order = np.argsort(start, kind="stable")
    return _consecutive("ProfilerStep#N", number[order], start[order], end[order], inferred=False)


def _normalised(text: str) -> str:
    return _NUMBER.sub("#", text)


def _numbers_of(texts: list[str]) -> Int64Array:
    """Return the one number in which the names differ, else positions."""
    found = [_NUMBER.findall(text) for text in texts]
    if found and all(len(numbers) == 1 for numbers in found):
        values = [int(numbers[0]) for numbers in found]
        if all(b > a for a, b in pairwise(values)) and values[-1] < LARGEST_STEP:
            return np.array(values, dtype=np.int64)
    return np.arange(len(texts), dtype=np.int64)


def _from_rows(rank: Rank, rows: Int64Array, label: str) -> HostSteps:
    events = rank.events
    texts = [rank.names[int(name)] for name in events.name[rows]]
    return _consecutive(
        f"range {label}",
        _numbers_of(texts),
        events.start_ns[rows],
        events.end_ns[rows],
        inferred=False,
    )


def _range_groups(rank: Rank) -> dict[tuple[int, str], Int64Array]:
    """Return the rows of annotations by (thread, name with numbers replaced), at least two each."""
    events = rank.events
    rows = np.flatnonzero(events.category == HostCategory.ANNOTATION)
    family: dict[str, int] = {}
    of_name = {
        int(name): family.setdefault(_normalised(rank.names[int(name)]), len(family))
        for name in np.unique(events.name[rows])
    }
    lookup = np.zeros(len(rank.names), dtype=np.int64)
    for name, number in of_name.items():
        lookup[name] = number
    key = events.thread[rows].astype(np.int64) * max(len(family), 1) + lookup[events.name[rows]]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    labels = list(family)
    groups: dict[tuple[int, str], Int64Array] = {}
    for part in np.split(rows, np.flatnonzero(np.diff(key)) + 1):
        if len(part) >= 2:
            label = labels[lookup[events.name[part[0]]]]
            groups[int(events.thread[part[0]]), label] = part
    return groups


def _from_named_range(rank: Rank, step_range: str) -> HostSteps | None:
    wanted = _normalised(step_range)
    matching = [
        (len(rows), label, rows)
        for (_, label), rows in _range_groups(rank).items()
        if label in (wanted, step_range)
    ]
    if not matching:
        return None
    _, label, rows = max(matching, key=lambda item: item[0])
    return _whole_steps(rank, _from_rows(rank, rows, label), rows)


def _whole_steps(rank: Rank, host: HostSteps, rows: Int64Array) -> HostSteps | None:
    """Leave out the last step of a range that does not enclose it: where it ends is not known."""
    launches = launch_times(rank)
    launches = np.sort(launches[~is_na(launches)])
    start, end = rank.events.start_ns[rows], rank.events.end_ns[rows]
    inside = int((np.searchsorted(launches, end) - np.searchsorted(launches, start))[:-1].sum())
    between = int(np.searchsorted(launches, start[-1]) - np.searchsorted(launches, start[0]))
    if inside >= _LEAST_SHARE_INSIDE * between:
        return host
    if len(host) < 2:
        return None
    return HostSteps(
        basis=host.basis,
        index=host.index[:-1],
        start_ns=host.start_ns[:-1],
        end_ns=host.end_ns[:-1],
        inferred=host.inferred,
    )


def _from_enclosing_range(rank: Rank) -> HostSteps | None:
    launches = launch_times(rank)
    launches = np.sort(launches[~is_na(launches)])
    if len(launches) == 0:
        return None
    best: tuple[int, int, int] | None = None
    chosen: tuple[Int64Array, str] | None = None
    for (_, label), rows in _range_groups(rank).items():
        if _NEVER_A_STEP.match(label):
            continue
        start, end = rank.events.start_ns[rows], rank.events.end_ns[rows]
        if bool(np.any(start[1:] < end[:-1])):
            continue
        inside = np.searchsorted(launches, end) - np.searchsorted(launches, start)
        between = int(np.searchsorted(launches, end[-1]) - np.searchsorted(launches, start[0]))
        total = int(inside.sum())
        if (
            bool(np.all(inside > 0))
            and total >= _LEAST_SHARE_INSIDE * between
            and total >= _LEAST_SHARE_OF_ALL * len(launches)
        ):
            # The widest ranges win: a step encloses its micro-batches.
            score = (len(rows), -total, int(start[0]))
            if best is None or score < best:
                best, chosen = score, (rows, label)
    return None if chosen is None else _from_rows(rank, *chosen)


def _from_optimizer(rank: Rank) -> HostSteps | None:
    """Steps from one end of an optimizer's step to the next: what lies before the first is head."""
    ends: list[Int64Array] = []
    for position, text in enumerate(rank.names):
        if _OPTIMIZER_STEP.match(text):
            _, _, end = _events_named(rank, {position: 0})
            if len(end) >= 2:
                ends.append(np.sort(end))
    if not ends:
        return None
    marks = min(ends, key=len)
    return HostSteps(
        basis="Optimizer.step",
        index=np.arange(len(marks) - 1, dtype=np.int64),
        start_ns=marks[:-1],
        end_ns=marks[1:],
        inferred=True,
    )


def _from_kernels(rank: Rank) -> HostSteps | None:
    starts = kernel_sequence_starts(rank, launch_times(rank))
    if starts is None:
        return None
    return HostSteps(
        basis=KERNEL_SEQUENCE,
        index=np.arange(len(starts) - 1, dtype=np.int64),
        start_ns=starts[:-1],
        end_ns=starts[1:],
        inferred=True,
    )


def range_names(rank: Rank) -> list[str]:
    """Return the names of ranges that repeat, the most frequent last: what a step range can be."""
    groups = _range_groups(rank)
    return sorted({label for _, label in groups if not label.startswith("nccl")})
