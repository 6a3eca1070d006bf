"""The compiled simulator equals the reference to the bit, and refuses what would lead it astray."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.analyses.replay.programs import random_program
from tests.benchmarks.bench_replay import training
from trace_analyzer import _native
from trace_analyzer.analyses.replay.program import COMM, NONE, OTHER, Execution, Program
from trace_analyzer.analyses.replay.simulate import ReplayError, simulate, simulate_reference
from trace_analyzer.errors import SchemaError

compiled = pytest.mark.skipif(bool(_native.PROBLEM), reason="the extension is not built")
TIMES = tuple(item.name for item in fields(Execution))


def outcome(execute: Any, program: Program) -> dict[str, list[int]] | str:
    """Return every time, or what the replay stopped with."""
    try:
        done = execute(program)
    except ReplayError as error:
        return str(error)
    return {name: getattr(done, name).tolist() for name in TIMES}


def empty_times(program: Program) -> list[np.ndarray[Any, Any]]:
    sizes = (program.nodes, program.nodes, program.operations, program.operations)
    return [np.empty(size, dtype=np.int64) for size in sizes]


def core() -> Any:
    return import_module("trace_analyzer._native.core")


@compiled
@pytest.mark.parametrize("broken", [0.0, 0.002, 0.02])
def test_random_programs(broken: float) -> None:
    finished = stopped = slowed = 0
    for seed in range(300):
        dice = np.random.default_rng((seed, 1))
        ranks, nodes = int(dice.integers(1, 6)), int(dice.integers(0, 60))
        made = random_program(seed, ranks=ranks, nodes=nodes, broken=broken)
        expected = outcome(simulate_reference, made)
        assert outcome(simulate, made) == expected, seed
        stopped += isinstance(expected, str)
        finished += not isinstance(expected, str)
        alone = replace(made, alpha=np.zeros(4))
        slowed += outcome(simulate, alone) != expected
    # Else this would compare programs in which nothing happens.
    assert finished > 100
    assert slowed > 50
    assert (stopped > 20) == (broken > 0)


@compiled
@pytest.mark.parametrize(("ranks", "operations", "nodes"), [(1, 5000, 7000), (16, 500, 700)])
def test_programs_like_training(ranks: int, operations: int, nodes: int) -> None:
    made = training(ranks, operations, nodes)
    assert outcome(simulate, made) == outcome(simulate_reference, made)


@compiled
def test_nothing_to_execute() -> None:
    made = random_program(0, ranks=3, nodes=0)
    assert outcome(simulate, made) == outcome(simulate_reference, made)
    none = replace(made, ranks=(), node_first=np.zeros(1, dtype=np.int64))
    assert outcome(simulate, none) == {name: [] for name in TIMES}


def small() -> Program:
    """Return a program with some of everything; it finishes."""
    made = random_program(7, ranks=2, nodes=30)
    assert len(made.collective_size) > 1
    assert min(len(made.wait_operation), len(made.dep_operation)) > 1
    return made


def changed(program: Program, name: str, row: int, value: float) -> Program:
    values = getattr(program, name).copy()
    values[row] = value
    return replace(program, **{name: values})


@compiled
def test_stream_numbers_may_be_any() -> None:
    made = small()
    wild = replace(made, op_stream=(made.op_stream * -700_000_001).astype(np.int32))
    assert np.ptp(wild.op_stream.astype(np.int64)) > wild.operations
    assert outcome(simulate, wild) == outcome(simulate, made)


def one_line(ranks: int, kinds: list[int]) -> Program:
    """Return a program in which every rank launches `kinds` on one stream, without dependencies."""
    made = training(ranks, len(kinds), len(kinds))
    return replace(
        made,
        op_class=np.tile(np.array(kinds, dtype=np.int8), ranks),
        op_stream=made.op_rank,
        op_collective=np.full(made.operations, NONE, dtype=np.int32),
        dep_first=np.zeros(made.operations + 1, dtype=np.int64),
        dep_operation=np.empty(0, dtype=np.int32),
    )


both = pytest.mark.parametrize(
    "execute", [pytest.param(simulate, marks=compiled), simulate_reference], ids=["C", "Python"]
)


@both
def test_a_cycle_counts_what_waits(execute: Any) -> None:
    """The second waits for the third, which stands behind it."""
    made = one_line(1, [OTHER] * 3)
    assert isinstance(outcome(execute, made), dict)
    made = replace(
        made,
        dep_first=np.array([0, 0, 1, 1], dtype=np.int64),
        dep_operation=np.array([2], dtype=np.int32),
    )
    assert outcome(execute, made) == "the replay stops with 2 operations waiting for each other"


@both
def test_a_missing_member_counts_what_waits(execute: Any) -> None:
    made = replace(
        one_line(2, [OTHER, COMM, OTHER]),
        op_collective=np.array([NONE, 0, NONE] * 2, dtype=np.int32),
        collective_size=np.array([2], dtype=np.int32),
        collective_transfer_ns=np.array([5], dtype=np.int64),
    )
    assert isinstance(outcome(execute, made), dict)
    made = changed(made, "collective_size", 0, 3)
    assert outcome(execute, made) == "the replay stops with 4 operations waiting for each other"


@both
def test_a_host_that_waits_for_ever(execute: Any) -> None:
    """All operations but the last end; the host that should launch it waits for it."""
    made = one_line(1, [OTHER] * 3)
    made = replace(
        made, wait_first=np.array([0, 0, 1, 1]), wait_operation=np.array([2], dtype=np.int32)
    )
    assert outcome(execute, made) == "the replay stops with 1 operations waiting for each other"


# Columns of `small()` that are wrong: name, what is done to the column, the message.
WRONG: list[tuple[str, Any, str]] = [
    ("node_first", lambda v: v[:-1], "node_first has 2 rows, not 3"),
    ("node_first", lambda v: v + 1, "node_first does not go up from 0 to 60"),
    ("node_cost_ns", lambda v: v[1:].copy(), "node_cost_ns has 59 rows, not 60"),
    ("node_gap_ns", lambda v: v.astype(np.float64), "node_gap_ns is float64, not int64"),
    ("op_rank", lambda v: v.astype(np.int64), "op_rank is int64, not int32"),
    ("op_rank", lambda v: v + np.int32(1), "op_rank[ROW] is 2, outside [0, 2)"),
    ("op_rank", lambda v: v[:, None], "op_rank is not a one-dimensional array"),
    ("op_rank", lambda v: v.tolist(), "op_rank is not a one-dimensional array"),
    ("op_rank", lambda v: np.repeat(v, 2)[::2], "op_rank is a view with gaps"),
    ("op_node", lambda v: v - np.int32(2), "op_node[0] is -2, outside [-1, 60)"),
    ("op_node", lambda v: v + np.int32(60), "op_node[0] is 60, outside [-1, 60)"),
    ("op_class", lambda v: v + np.int8(4), "outside [0, 4)"),
    ("op_class", lambda v: v - np.int8(4), "outside [0, 4)"),
    ("op_collective", lambda v: v - np.int32(1), "is -2, outside [-1, "),
    ("op_collective", lambda v: v + np.int32(99), "outside [-1, "),
    ("dep_first", lambda v: v[::-1].copy(), "dep_first does not go up from 0"),
    ("dep_first", lambda v: np.r_[v[:1], v[:0:-1]], "dep_first does not go up from 0"),
    ("dep_operation", lambda v: v - np.int32(1000), "outside [0, "),
    ("dep_operation", lambda v: v + np.int32(1000), "outside [0, "),
    ("wait_operation", lambda v: v + np.int32(1000), "outside [0, "),
    ("wait_operation", lambda v: v[1:], "wait_first does not go up from 0"),
    ("node_queue", lambda v: v + np.int32(1000), "outside [-1, "),
    ("node_queue", lambda v: v - np.int32(1000), "outside [-1, "),
    ("node_step", lambda v: v + np.int32(1), "outside [-1, 1)"),
    ("collective_transfer_ns", lambda v: v[1:], "collective_transfer_ns has"),
    ("collective_size", lambda v: v - np.int32(1), "collective_size[0] is 1, but it has 2 members"),
    ("alpha", lambda v: v[:3], "alpha has 3 rows, not 4"),
    ("alpha", lambda v: v - 1.5, "not above -1 and finite"),
    ("alpha", lambda v: v * np.nan, "not above -1 and finite"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), WRONG)
def test_wrong_columns_are_named(name: str, spoil: Any, message: str) -> None:
    made = small()
    row = int(np.flatnonzero(made.op_rank == 1)[0])
    wrong = replace(made, **{name: spoil(getattr(made, name))})
    for execute in (simulate, simulate_reference):
        with pytest.raises(SchemaError) as caught:
            execute(wrong)
        assert str(caught.value).startswith("Program: ")
        assert message.replace("ROW", str(row)) in str(caught.value)


# What the check before it cannot know: these programs are in order for the extension.
HARMLESS = {"node_step has", "collective_size[0]", "outside [-1, 1)", "not above -1 and finite"}


@compiled
@pytest.mark.parametrize(
    ("name", "spoil"),
    [(name, spoil) for name, spoil, message in WRONG if not any(h in message for h in HARMLESS)],
)
def test_the_extension_itself_refuses_wrong_columns(name: str, spoil: Any) -> None:
    made = small()
    wrong = replace(made, **{name: spoil(getattr(made, name))})
    with pytest.raises((ValueError, BufferError, TypeError)):
        core().simulate(wrong, *empty_times(made))


@compiled
def test_the_extension_ends_whatever_sizes_say() -> None:
    """More members than a collective's size: some end before they begin, which is no result."""
    made = small()
    few = replace(made, collective_size=np.ones_like(made.collective_size))
    stuck = core().simulate(few, *empty_times(made))
    assert stuck is None or stuck > 0


@compiled
def test_the_extension_writes_only_where_it_may() -> None:
    made = small()
    times = empty_times(made)
    for position, bad in [
        (0, times[0][:-1]),
        (2, times[2].astype(np.float64)),
        (3, times[3][::2]),
        (1, np.frombuffer(bytes(times[1].nbytes), dtype=np.int64)),  # read-only
        (1, np.frombuffer(bytearray(times[1].nbytes + 1), dtype=np.int64, offset=1, count=-1)),
    ]:
        given = [*times[:position], bad, *times[position + 1 :]]
        with pytest.raises((ValueError, BufferError)):
            core().simulate(made, *given)
    with pytest.raises(TypeError):
        core().simulate(made)
    with pytest.raises(AttributeError, match="node_first"):
        core().simulate(object(), *times)
    # All buffers are given back, also after an error: an array can only then change its size.
    for array in (*times, *(getattr(made, name) for name in ("op_node", "alpha"))):
        array.resize(len(array) + 1, refcheck=False)


@compiled
def test_unaligned_columns_are_refused() -> None:
    made = small()
    raw = memoryview(bytearray(made.op_base_ns.nbytes + 1))[1:].cast("q")
    with pytest.raises(ValueError, match="op_base_ns is not aligned"):
        core().simulate(replace(made, op_base_ns=raw), *empty_times(made))  # type: ignore[arg-type]


@compiled
def test_times_beyond_64_bits_are_left_to_python() -> None:
    """A sum on the way is too large, the end is not."""
    made = replace(
        one_line(1, [COMM]),
        op_collective=np.zeros(1, dtype=np.int32),
        collective_size=np.ones(1, dtype=np.int32),
        collective_transfer_ns=np.array([2**63 - 1]),
        op_latency_ns=np.array([1000]),
        op_end_offset_ns=np.array([-(10**9)]),
    )
    with pytest.raises(OverflowError, match="64 bits"):
        core().simulate(made, *empty_times(made))
    start = int(made.node_gap_ns[0]) + 1000
    assert simulate(made).op_end_ns.tolist() == [2**63 - 1 + start - 10**9]
    beyond = replace(made, op_end_offset_ns=np.zeros(1, dtype=np.int64))
    with pytest.raises(OverflowError):
        simulate(beyond)


@compiled
def test_other_threads_run_meanwhile() -> None:
    """Several at once give what each gives alone."""
    from concurrent.futures import ThreadPoolExecutor

    programs = [random_program(seed, ranks=3, nodes=200) for seed in range(8)]
    alone = [outcome(simulate, made) for made in programs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda made: outcome(simulate, made), programs * 3)) == alone * 3


def test_without_the_extension_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trace_analyzer._native.core", None)
    problem = _native._problem()
    assert problem.startswith("not built")
    monkeypatch.setattr(_native, "PROBLEM", problem)
    made = small()
    assert outcome(simulate, made) == outcome(simulate_reference, made)
    with pytest.raises(ReplayError):
        simulate(changed(made, "collective_size", 0, 5))


@compiled
def test_with_the_extension_python_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.analyses.replay.simulate._Machine", None)
    assert isinstance(outcome(simulate, small()), dict)


@compiled
def test_an_extension_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert core().INTERFACE == _native.INTERFACE
    monkeypatch.setattr(_native, "INTERFACE", _native.INTERFACE + 1)
    assert _native._problem() == "built from other sources: install trace-analyzer again"


def test_an_extension_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("undefined symbol: f")

    monkeypatch.setattr(_native, "import_module", fail)
    assert _native._problem() == "cannot be loaded: undefined symbol: f"
