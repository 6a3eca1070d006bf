"""Synthetic worlds of ranks that communicate, with known clocks, arrivals and transfers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trace_analyzer.analyses.steps import DeviceSteps, device_steps
from trace_analyzer.model import ProcessGroup, Rank, SourceKind
from trace_analyzer.schema import NA_INT64
from trace_analyzer.tables import (
    CallKind,
    Collectives,
    GpuOperations,
    HostCalls,
    HostCategory,
    HostEvents,
    LaunchConfigs,
    Synchronizations,
    Threads,
    WorkClass,
)

Int64 = npt.NDArray[np.int64]
NAMES = ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "allreduce", "Float", "cudaLaunchKernel")
ARRIVAL_BIAS_NS = 11_000  # the first to arrive ends this much earlier


@dataclass
class World:
    """`arrival_ns[rank, i]` and `transfer_ns[i]` are the truth on one common clock."""

    arrival_ns: Int64
    transfer_ns: Int64
    message_bytes: Int64
    steps: int
    groups: list[ProcessGroup]
    group_of: Int64  # per collective, position in groups
    offset_ns: Int64
    drift: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    sequence: bool = False
    jitter_ns: int = 0
    seed: int = 0

    @property
    def world_size(self) -> int:
        return len(self.arrival_ns)

    def members(self, item: int) -> tuple[int, ...]:
        return self.groups[int(self.group_of[item])].ranks

    def wait_ns(self) -> Int64:
        """True wait of every rank in every collective; 0 for those that do not take part."""
        wait = np.zeros_like(self.arrival_ns)
        for number, group in enumerate(self.groups):
            here = np.flatnonzero(self.group_of == number)
            cells = np.ix_(np.array(group.ranks, dtype=np.int64), here)
            part = self.arrival_ns[cells]
            wait[cells] = part.max(axis=0) - part
        return wait

    def rank(self, number: int, *, keep: slice = slice(None), marked: bool = True) -> Rank:
        """Return the trace of one rank; `keep` cuts its window, `marked` adds step marks."""
        rng = np.random.default_rng((self.seed, number))
        mine = np.array([number in group.ranks for group in self.groups])[self.group_of]
        items = np.flatnonzero(mine)[keep]
        start = self.arrival_ns[number, items]
        wait = self.wait_ns()[number, items]
        # The rank that waited ends a little earlier than the one that came last.
        end = start + wait + self.transfer_ns[items] - np.where(wait > 3_000, ARRIVAL_BIAS_NS, 0)
        if self.jitter_ns:
            end = end + np.abs(rng.normal(0, self.jitter_ns, len(items))).astype(np.int64)
        drift = self.drift[number] if len(self.drift) else 0.0

        def clock(times: Int64) -> Int64:
            moved: Int64 = times + self.offset_ns[number] + (times * drift).astype(np.int64)
            return moved

        launch = start - 50_000
        count = len(items)
        per_step = len(self.transfer_ns) // self.steps
        marks = self.arrival_ns.min(axis=0)[::per_step] - 100_000
        labels = [f"ProfilerStep#{k}" for k in range(self.steps)]
        names = [*NAMES, *labels]
        shown = self.steps if marked else 0
        codes, first = np.unique(
            np.stack([self.group_of[items], self.message_bytes[items]]), axis=1, return_inverse=True
        )
        rows = count if self.sequence else codes.shape[1]
        known_groups = [g for g in range(len(self.groups)) if number in self.groups[g].ranks]
        local = np.zeros(len(self.groups), dtype=np.int64)
        local[known_groups] = np.arange(len(known_groups))
        group_column = self.group_of[items] if self.sequence else codes[0]
        bytes_column = self.message_bytes[items] if self.sequence else codes[1]
        return Rank(
            rank=number,
            rank_basis="content",
            source=SourceKind.KINETO,
            path=f"rank{number}.json",
            names=names,
            operations=GpuOperations.from_columns(
                count,
                start_ns=clock(start),
                end_ns=np.maximum(clock(end), clock(start)),
                kind=np.zeros(count),
                work=np.full(count, WorkClass.COMM),
                name=np.zeros(count),
                device=np.zeros(count),
                stream=np.full(count, 17),
                launch=np.arange(count),
                launch_config=np.zeros(count),
                collective=np.arange(count) if self.sequence else first.reshape(-1),
            ),
            configs=LaunchConfigs.from_columns(1, grid_x=np.array([24]), block_x=np.array([544])),
            calls=HostCalls.from_columns(
                count,
                start_ns=clock(launch),
                end_ns=clock(launch) + 5_000,
                kind=np.full(count, CallKind.LAUNCH),
                name=np.full(count, 3),
                thread=np.zeros(count),
            ),
            events=HostEvents.from_columns(
                shown,
                start_ns=clock(marks)[:shown],
                end_ns=np.append(clock(marks)[1:], clock(start)[-1] + 10**9)[:shown],
                category=np.full(shown, HostCategory.ANNOTATION),
                name=np.arange(shown) + len(NAMES),
                thread=np.zeros(shown),
            ),
            syncs=Synchronizations.empty(),
            collectives=Collectives.from_columns(
                rows,
                operation=np.ones(rows),
                group=local[group_column],
                dtype=np.full(rows, 2),
                message_bytes=bytes_column,
                sequence=items if self.sequence else np.full(rows, NA_INT64),
                calls=np.ones(rows),
            ),
            threads=Threads.from_columns(1),
            groups=tuple(self.groups[g] for g in known_groups),
            world_size=self.world_size,
            clock_base_ns=0,
        )

    def all(self) -> tuple[dict[int, Rank], dict[int, DeviceSteps]]:
        """Return all ranks and their steps."""
        return prepared({number: self.rank(number) for number in range(self.world_size)})


def prepared(ranks: dict[int, Rank]) -> tuple[dict[int, Rank], dict[int, DeviceSteps]]:
    """Return the ranks with their steps."""
    steps: dict[int, DeviceSteps] = {}
    for number, rank in ranks.items():
        found = device_steps(rank)
        assert found is not None
        steps[number] = found
    return ranks, steps


def world(
    ranks: int,
    collectives: int,
    *,
    steps: int = 5,
    late_ns: int = 400_000,
    late_rank: int | None = None,
    offsets_ns: int = 0,
    seed: int = 0,
    groups: list[ProcessGroup] | None = None,
) -> World:
    """Make a world in which `late_rank` (or a random one each time) comes `late_ns` after the rest."""
    rng = np.random.default_rng(seed)
    groups = groups or [
        ProcessGroup(name="0", description="default_pg", size=ranks, ranks=tuple(range(ranks)))
    ]
    sizes = rng.choice(np.array([4, 1 << 20, 25 << 20, 100 << 20]), collectives // steps)
    sizes = np.tile(sizes, steps)
    group_of = np.tile(rng.integers(0, len(groups), collectives // steps), steps)
    count = len(sizes)
    transfer = 20_000 + (sizes / 200).astype(np.int64)
    base = np.cumsum(np.full(count, 3_000_000)) + np.cumsum(transfer)
    arrival = base + rng.integers(0, 2_000, (ranks, count))
    for item in range(count):
        members = groups[int(group_of[item])].ranks
        late = late_rank if late_rank in members else int(rng.choice(np.array(members)))
        arrival[late, item] += late_ns
    return World(
        arrival_ns=arrival.astype(np.int64),
        transfer_ns=transfer,
        message_bytes=sizes,
        steps=steps,
        groups=groups,
        group_of=group_of,
        offset_ns=rng.integers(-offsets_ns, offsets_ns + 1, ranks),
        seed=seed,
    )


def without(rank: Rank, rows: list[int]) -> Rank:
    """Return the rank with some GPU operations dropped."""
    keep = np.ones(len(rank.operations), dtype=np.bool_)
    keep[rows] = False
    return replace(rank, operations=rank.operations.take(keep))
