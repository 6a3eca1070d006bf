"""What rules read: the study, the replay, and the few questions that all of them ask."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.replay.replay import Replay
from trace_analyzer.analyses.replay.starvation import Starvation, starvation
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.analyses.transfers import Transfers, transfers
from trace_analyzer.findings import Range
from trace_analyzer.intervals import Intervals
from trace_analyzer.schema import AnyArray, BoolArray, Int64Array, is_na

LARGEST_RANGES = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """A run as rules see it. `withheld` says why there is no replay, "" where there is one."""

    study: Study
    replay: Replay | None
    withheld: str = ""

    @property
    def ranks(self) -> dict[int, RankStudy]:
        """Results of each rank that has complete steps."""
        return {number: item for number, item in self.study.ranks.items() if len(item.steps)}

    @cached_property
    def step_ns(self) -> float:
        """T: of the replay's base, else of the recording; 0 where there is no step."""
        if self.replay is not None:
            return self.replay.time.median_ns
        return self.study.step_ns or 0.0

    @cached_property
    def mean_step_ns(self) -> float:
        """T as a mean, for causes that come and go."""
        if self.replay is not None:
            return self.replay.time.mean_ns
        return self.study.step_mean_ns or 0.0

    @cached_property
    def transfers(self) -> Transfers | None:
        """Matched collectives; None where fewer than two ranks with communication were recorded."""
        cross = self.study.cross
        if cross is None:
            return None
        ranks = self.study.ranks
        return transfers(
            cross,
            {number: item.rank for number, item in ranks.items()},
            {number: item.busy for number, item in ranks.items()},
            {number: self.in_steady(number) for number in ranks},
        )

    @cached_property
    def starvation(self) -> Mapping[int, Starvation]:
        """Where each rank's GPU waits for its host without the profiler; empty without a replay."""
        if self.replay is None:
            return {}
        return starvation(self.replay.built, self.replay.base)

    def steady_windows(self, rank: int) -> Intervals:
        """Return the steady steps of a rank on its device, as intervals."""
        item = self.study.ranks[rank]
        return intervals.union(item.steps.start_ns[item.steady], item.steps.end_ns[item.steady])

    def host_windows(self, rank: int) -> Intervals:
        """Return the steady steps of a rank on its host, as intervals."""
        item = self.study.ranks[rank]
        return intervals.union(
            item.steps.host_start_ns[item.steady], item.steps.host_end_ns[item.steady]
        )

    def steady_count(self, rank: int) -> int:
        """Return the number of steady steps of a rank, at least 1."""
        return max(int(self.study.ranks[rank].steady.sum()), 1)

    def in_steady(self, rank: int) -> BoolArray:
        """Return which GPU operations of a rank were launched in its steady steps."""
        item = self.study.ranks[rank]
        step = item.steps.operation_step
        steady = np.append(item.steady, [False, False])  # BEFORE_FIRST and UNASSIGNED index these
        found: BoolArray = steady[step]
        return found

    def calls_in_steady(self, rank: int) -> BoolArray:
        """Return which runtime calls of a rank began in the host part of its steady steps."""
        return self.starts_in(self.study.ranks[rank].rank.calls.start_ns, self.host_windows(rank))

    def events_in_steady(self, rank: int) -> BoolArray:
        """Return which host events of a rank began in the host part of its steady steps."""
        return self.starts_in(self.study.ranks[rank].rank.events.start_ns, self.host_windows(rank))

    def launched_in(self, rank: int, spans: Intervals) -> Int64Array:
        """Return the GPU operations of a rank whose launch calls begin in `spans`."""
        recorded = self.study.ranks[rank].rank
        rows = np.flatnonzero(~is_na(recorded.operations.launch))
        start = recorded.calls.start_ns[recorded.operations.launch[rows]]
        return rows[self.starts_in(start, spans)].astype(np.int64)

    @staticmethod
    def starts_in(start_ns: Int64Array, windows: Intervals) -> BoolArray:
        """Return which times lie in sorted, disjoint windows."""
        at = np.searchsorted(windows.start, start_ns, side="right") - 1
        inside: BoolArray = (at >= 0) & (
            start_ns < windows.end[np.maximum(at, 0)] if len(windows) else False
        )
        return inside

    def named(self, rank: int, matches: Callable[[str], bool] | re.Pattern[str]) -> BoolArray:
        """Return which names of a rank match; index it with a table's `name` column."""
        test = matches.search if isinstance(matches, re.Pattern) else matches
        return np.array(
            [bool(test(text)) for text in self.study.ranks[rank].rank.names], dtype=np.bool_
        )

    def idle_ns(self, rank: int, spans: Intervals) -> float:
        """Return how long the device of a rank is idle inside `spans`, ns a steady step."""
        item = self.study.ranks[rank]
        inside = intervals.intersect(spans, self.steady_windows(rank))
        idle = intervals.subtract(inside, item.busy.any)
        return float(np.sum(idle.end - idle.start)) / self.steady_count(rank)

    def per_step_ns(self, rank: int, total_ns: float) -> float:
        """Return a total over steady steps as a mean a step."""
        return float(total_ns) / self.steady_count(rank)

    def ranges(
        self, rank: int, start_ns: AnyArray, end_ns: AnyArray, label: str = ""
    ) -> tuple[Range, ...]:
        """Return the longest of some stretches of a rank's trace clock, in order of time."""
        window = self.study.ranks[rank].steps.window_start_ns
        longest = np.argsort(-(end_ns - start_ns), kind="stable")[:LARGEST_RANGES]
        return tuple(
            Range(
                rank=rank,
                start_ns=int(start_ns[row]) - window,
                end_ns=int(end_ns[row]) - window,
                label=label,
            )
            for row in np.sort(longest).tolist()
        )


def rank_list(ranks: Iterable[int]) -> str:
    """Return "rank 1", "ranks 0 and 3", "ranks 0, 1, 2 and 5 more"."""
    numbers = sorted(ranks)
    if not numbers:
        return "no rank"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) <= 4:
        return "ranks " + ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers[:3]))} and {len(numbers) - 3} more"
