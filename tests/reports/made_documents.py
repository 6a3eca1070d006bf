"""Documents of `scaling` and `compare` for the tests of their pages: every state, and hostile text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from tests.builder import run_of
from tests.comparisons import GPT, NCCL, Kernel, rank_of, run, slower
from tests.reports.builder import HOSTILE
from trace_analyzer.analyses.study import Study, study
from trace_analyzer.assembly.compare import ComparedRun, build_comparison
from trace_analyzer.assembly.report import build_report
from trace_analyzer.assembly.scaling import build_scaling
from trace_analyzer.assembly.scaling_input import ScalingInput, Stated
from trace_analyzer.comparison_document import ComparisonReport
from trace_analyzer.model import UnprofiledSteps
from trace_analyzer.scaling_document import ScalingReport

_TEXTS = frozenset({
    "name", "what", "base", "other", "message", "effect", "headline", "proof", "do_next", "path",
    "title", "instead_of", "dtype", "operation", "gpu", "why", "started", "tool",
})  # fmt: skip


def _two_ranks(us: int = 300, grid: int = 24) -> Study:
    program = tuple(replace(k, us=k.us // 2, grid=max(k.grid // 2, 1)) for k in GPT)
    program = (*program, Kernel(NCCL, us, grid, comm=True))
    ranks = [rank_of(program, rank=rank, world=2).build() for rank in (0, 1)]
    return study(run_of(*ranks, name="two", world_size=2))


def _timed(median_ms: float) -> tuple[UnprofiledSteps, ...]:
    steps = tuple(median_ms * (1 + 0.001 * (at * 7 % 11 - 5)) for at in range(60))
    return (UnprofiledSteps(rank=0, step_ms=steps),)


def scaled() -> ScalingReport:
    """One rank against two, with traces and timed steps."""
    one = ScalingInput(name="one", ranks=1, study=study(run()), unprofiled=_timed(1.5))
    two = ScalingInput(name="two", ranks=2, study=_two_ranks(), unprofiled=_timed(1.1))
    return build_scaling([one, two], "strong", {"runs": ["one", "two"]})


def numbers() -> ScalingReport:
    """Four numbers of ranks, typed, with a curve."""
    given = [
        ScalingInput(
            name=f"{n}", ranks=n, stated=Stated(ms=10 + 90 / n, deviation_ms=0.5, count=60)
        )
        for n in (1, 2, 4, 8)
    ]
    return build_scaling(given, "strong", {"runs": ["1=100"], "mode": "strong"})


def alone() -> ScalingReport:
    """Two numbers, without spread."""
    given = [ScalingInput(name=f"{n}", ranks=n, stated=Stated(ms=50 / n)) for n in (1, 2)]
    return build_scaling(given, "strong", {})


def drifting() -> ScalingReport:
    """Steps that change their level and have outliers."""
    steps = [
        90.0,
        *(25.0 + 0.01 * (i % 7) for i in range(40)),
        *(28.0 + 0.01 * (i % 5) for i in range(20)),
    ]
    steps[20] = 60.0
    given = [
        ScalingInput(name="one", ranks=1, stated=Stated(ms=50.0)),
        ScalingInput(name="two", ranks=2, series_ms=tuple(steps)),
    ]
    return build_scaling(given, "strong", {})


def refused() -> ScalingReport:
    """Another program on two ranks."""
    other = study(run_of(rank_of(operators=("aten::conv",) * 40).build(), name="other"))
    given = [
        ScalingInput(name="one", ranks=1, study=study(run()), unprofiled=_timed(1.5)),
        ScalingInput(name="other", ranks=2, study=other, unprofiled=_timed(1.1)),
    ]
    return build_scaling(given, "strong", {})


def _compared(one: Study, two: Study) -> ComparisonReport:
    runs = [
        ComparedRun(study=item, report=build_report(item.run, studied=item), name=name)
        for item, name in ((one, "base"), (two, "slow"))
    ]
    return build_comparison(runs[0], runs[1], {"base": "base", "slow": "slow"})


def slow() -> ComparisonReport:
    """One kernel takes longer, and the host comes late."""
    program = slower(GPT, "gemm_bf16_b", 1.5)
    return _compared(study(run()), study(run(program, late_us=400)))


def same() -> ComparisonReport:
    """A run against itself."""
    return _compared(study(run()), study(run()))


def channels() -> ComparisonReport:
    """Two ranks whose all-reduce lost its channels."""
    return _compared(_two_ranks(), _two_ranks(900, grid=1))


def apart() -> ComparisonReport:
    """Runs that are not comparable."""
    return _compared(study(run()), _two_ranks())


def stepless() -> ComparisonReport:
    """A run without a complete step."""
    return _compared(study(run(steps=1)), study(run()))


def hostile_scaling() -> ScalingReport:
    """Every text tries to break out."""
    return msgspec.convert(_hostile(msgspec.to_builtins(scaled())), ScalingReport)


def hostile_comparison() -> ComparisonReport:
    """Every text tries to break out."""
    return msgspec.convert(_hostile(msgspec.to_builtins(channels())), ComparisonReport)


def _hostile(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _hostile(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_hostile(item, key) for item in value]
    return HOSTILE if isinstance(value, str) and key in _TEXTS else value


SCALING: dict[str, Callable[[], ScalingReport]] = {
    "scaled": scaled,
    "numbers": numbers,
    "alone": alone,
    "drifting": drifting,
    "refused": refused,
    "hostile": hostile_scaling,
}
COMPARISON: dict[str, Callable[[], ComparisonReport]] = {
    "slow": slow,
    "same": same,
    "channels": channels,
    "apart": apart,
    "stepless": stepless,
    "hostile": hostile_comparison,
}
