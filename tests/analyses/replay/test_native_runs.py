"""The compiled simulator equals the reference on recorded runs and on worlds of many ranks."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from tests.traces import ROOT, real_trace
from tests.worlds import world
from trace_analyzer import _native
from trace_analyzer.analyses.contention import contention
from trace_analyzer.analyses.cross_rank import cross_rank
from trace_analyzer.analyses.partition import busy
from trace_analyzer.analyses.replay.build import build_program
from trace_analyzer.analyses.replay.costs import default_costs, unperturbed
from trace_analyzer.analyses.replay.program import COMM, NONE, OTHER, Execution, Program
from trace_analyzer.analyses.replay.simulate import simulate, simulate_reference
from trace_analyzer.analyses.replay.steady_state import repeated
from trace_analyzer.analyses.study import study
from trace_analyzer.readers.discovery import open_run

pytestmark = pytest.mark.skipif(bool(_native.PROBLEM), reason="the extension is not built")

FAULTS = sorted(path.parent for path in (ROOT / "tests/data/faultlab").glob("*/label.json"))


def check_equal(program: Program) -> None:
    done, expected = simulate(program), simulate_reference(program)
    for item in fields(Execution):
        assert np.array_equal(getattr(done, item.name), getattr(expected, item.name)), item.name


def check_run(path: Path) -> None:
    """Compare the recording, and it repeated without the profiler's costs, with other contention."""
    results = study(open_run(str(path)))
    common = set.intersection(*(set(item.steps.index.tolist()) for item in results.ranks.values()))
    built = build_program(
        {number: (item.rank, item.steps, item.busy) for number, item in results.ranks.items()},
        results.cross,
        results.contention,
        tuple(sorted(common)),
    )
    assert built.program.operations > 1000
    check_equal(built.program)
    ranks = {number: item.rank for number, item in results.ranks.items()}
    base = repeated(unperturbed(built, ranks, default_costs(results.run.ranks[0].source)))
    check_equal(replace(base, alpha=np.array([0.613, 0.071, 0.0, 0.0])))


def test_recorded_faults_are_there() -> None:
    assert len(FAULTS) >= 20


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.name)
def test_recorded_faults(path: Path) -> None:
    check_run(path)


@pytest.mark.parametrize(
    "run",
    [
        "h200-ddp/healthy",
        "h200-ddp/slow_loader",
        "h200-ddp/item_sync",
        "h200-ddp/t1",
        "h200-ddp-nsys/nccl_1ch.sqlite",
    ],
)
def test_real_runs(run: str) -> None:
    check_run(real_trace(run))


@pytest.mark.parametrize("ranks", [2, 16])
def test_worlds(ranks: int) -> None:
    """Every second operation is made a long kernel, for communication to slow it down."""
    made = world(ranks, 60, offsets_ns=2_000_000, late_rank=1, seed=ranks)
    recorded, steps = made.all()
    work = {number: busy(rank) for number, rank in recorded.items()}
    built = build_program(
        {number: (recorded[number], steps[number], work[number]) for number in recorded},
        cross_rank(recorded, steps, work),
        contention(recorded, steps, work),
        tuple(steps[0].index.tolist()),
    )
    program = built.program
    assert program.collective_size.tolist() == [ranks] * 48  # of 4 of the 5 steps
    assert np.sum(program.op_collective != NONE) == 48 * ranks
    check_equal(program)
    odd = program.op_collective % 2 == 1  # backlog, which has none, as well
    mixed = replace(
        program,
        op_class=np.where(odd, OTHER, COMM).astype(np.int8),
        op_collective=np.where(odd, NONE, program.op_collective).astype(np.int32),
        op_stream=(program.op_stream * 2 + odd).astype(np.int32),
        op_base_ns=np.where(odd, 5_000_000, program.op_base_ns),
        alpha=np.array([0.0, 0.37, 0.0, 0.0]),
    )
    check_equal(mixed)
    alone = simulate(replace(mixed, alpha=np.zeros(4))).op_end_ns
    assert not np.array_equal(simulate(mixed).op_end_ns, alone)
