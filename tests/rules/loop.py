"""A training loop on paper: a host that launches, a GPU that follows, all times known.

The host runs ahead; a kernel starts 5 µs after its launch began, or when the stream is free. Times
are in µs where a name says so. Each `step()` begins a ProfilerStep.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from tests.builder import NCCL, RankBuilder, run_of
from trace_analyzer.analyses.replay import replay as replays
from trace_analyzer.analyses.replay.costs import DEFAULT_KINETO, ProfilerCosts
from trace_analyzer.analyses.study import study
from trace_analyzer.model import ProcessGroup, Rank, Run, SourceKind
from trace_analyzer.rules.catalogue import rules
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.judge import Diagnosis, diagnose
from trace_analyzer.rules.rule import Rule
from trace_analyzer.tables import HostCategory, OperationKind

# What recording costs in these loops. Constants that are fitted to real recorders change; what a rule
# takes out of a loop does not depend on them.
MADE_COSTS = replace(
    DEFAULT_KINETO,
    operator_ns=4_000.0,
    autograd_ns=13_800.0,
    annotation_ns=2_600.0,
    call_ns=6_000.0,
    launch_ns=3_000.0,
    floor=0.15,
    call_floor=0.15,
    neighbours=1,
)
LATENCY = 5_000
NAMES = {OperationKind.MEMCPY: "cudaMemcpyAsync", OperationKind.MEMSET: "cudaMemsetAsync"}


@dataclass
class Loop:
    """One rank's loop; `now` is the host's time and `free` the stream's, ns."""

    rank: int = 0
    world: int | None = None
    now: int = 1_000_000
    free: int = 0
    thread: int = 0
    steps: list[int] = field(default_factory=list)
    builder: RankBuilder = field(init=False)

    def __post_init__(self) -> None:
        group = None
        if self.world is not None:
            group = ProcessGroup(name="0", size=self.world, ranks=tuple(range(self.world)))
        self.builder = RankBuilder(rank=self.rank, world=self.world, group=group)

    def step(self) -> None:
        """Begin a step."""
        self.steps.append(self.now)

    def silent(self, us: float) -> None:
        """Let the host do what no trace shows."""
        self.now += round(us * 1_000)

    def event(
        self, name: str, us: float, *, category: HostCategory = HostCategory.ANNOTATION
    ) -> None:
        """Let the host spend time inside a range."""
        begin = self.now
        self.silent(us)
        self.builder.event(name, begin, self.now, category=category, thread=self.thread)

    def inside(
        self,
        name: str,
        body: Callable[[], object],
        *,
        category: HostCategory = HostCategory.ANNOTATION,
    ) -> None:
        """Run `body` inside a range."""
        begin = self.now
        body()
        self.builder.event(name, begin, self.now, category=category, thread=self.thread)

    def call(self, name: str, us: float) -> None:
        """Let the host make a CUDA call that launches nothing."""
        begin = self.now
        self.silent(us)
        self.builder.call(name, begin, self.now, thread=self.thread)

    def launch(
        self,
        name: str,
        us: float,
        *,
        host_us: float = 10.0,
        blocking: bool = False,
        kind: OperationKind = OperationKind.KERNEL,
        size: int | None = None,
        stream: int = 7,
        grid: int = 64,
    ) -> None:
        """Launch an operation of `us`; a blocking call returns when it has ended."""
        begin = self.now
        start = max(begin + LATENCY, self.free)
        end = start + round(us * 1_000)
        self.silent(host_us)
        if blocking:
            self.now = max(self.now, end + 2_000)
        self.builder.operation(
            name,
            start,
            end,
            launch=(begin, self.now),
            kind=kind,
            size=size,
            stream=stream,
            thread=self.thread,
            grid=grid,
        )
        self.free = end

    def launches(self, count: int, us: float, name: str = "gemm", host_us: float = 10.0) -> None:
        """Launch `count` kernels."""
        for _ in range(count):
            self.launch(name, us, host_us=host_us)

    def copy(
        self, name: str, us: float, size: int, *, blocking: bool = False, host_us: float = 10.0
    ) -> None:
        """Launch a copy of `size` bytes."""
        self.launch(
            name,
            us,
            kind=OperationKind.MEMCPY,
            size=size,
            blocking=blocking,
            host_us=host_us,
        )

    def wait(self, name: str = "cudaStreamSynchronize") -> None:
        """Wait for all that was launched."""
        begin = self.now
        self.now = max(self.now + 2_000, self.free + 2_000)
        self.builder.call(name, begin, self.now, thread=self.thread)

    def build(self) -> Rank:
        """Return the rank."""
        self.builder.profiler_steps(self.steps, self.now)
        return self.builder.build()


def single(body: Callable[[Loop, int], object], steps: int = 8) -> Run:
    """Return a run of one rank: `body(loop, k)` is step k."""
    loop = Loop()
    for number in range(steps):
        loop.step()
        body(loop, number)
    return run_of(loop.build())


def _made_costs(_: Run) -> ProfilerCosts:
    return MADE_COSTS


def context_of(run: Run) -> Context:
    """Return what rules read of a run."""
    results = study(run)
    made = not run.sources and run.ranks[0].source == SourceKind.KINETO
    with patch.object(replays, "recording_costs", _made_costs) if made else nullcontext():
        answer = replays.replay(results)
    if isinstance(answer, str):
        return Context(study=results, replay=None, withheld=answer)
    return Context(study=results, replay=answer)


def diagnosed(rule: Rule, run: Run) -> Diagnosis:
    """Return what one rule says about a run."""
    return diagnose(context_of(run), [rule])


def recoverable_ms(diagnosis: Diagnosis) -> float:
    """Return what the only finding gives back, ms a step."""
    (finding,) = diagnosis.findings
    assert finding.recoverable_ms is not None
    return finding.recoverable_ms


def together(loops: list[Loop], us: float = 100.0, size: int = 1 << 20) -> None:
    """All-reduce over the loops: it moves data once the last of them has arrived."""
    arrivals = [max(loop.now + LATENCY, loop.free) for loop in loops]
    done = max(arrivals) + round(us * 1_000)
    for loop, arrival in zip(loops, arrivals, strict=True):
        loop.builder.operation(
            NCCL,
            arrival,
            done,
            launch=(loop.now, loop.now + 10_000),
            stream=17,
            operation="allreduce",
            group=0,
            message_bytes=size,
        )
        loop.now += 10_000
        loop.call("cudaStreamWaitEvent", 2)
        loop.free = done


def ranks(body: Callable[[Loop, int], object], steps: int = 8, world: int = 2) -> Run:
    """Return a run of `world` ranks: `body(loop, k)` is step k, which ends with an all-reduce."""
    loops = [Loop(rank=number, world=world) for number in range(world)]
    for number in range(steps):
        for loop in loops:
            loop.step()
            body(loop, number)
        together(loops)
    return run_of(*(loop.build() for loop in loops), world_size=world)


def all_codes(run: Run) -> list[tuple[str, list[int]]]:
    """Return code and ranks of every finding of the whole catalogue, in order; faults only."""
    found = diagnose(context_of(run), rules())
    errors = [check.reason for check in found.checks if check.state == "error"]
    assert not errors
    return [(item.code, item.ranks) for item in found.findings if item.kind == "fault"]
