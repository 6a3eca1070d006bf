"""Numbers that no program writes: they are left out, and nothing else is lost."""

from __future__ import annotations

import json
from pathlib import Path

from tests.builder import RankBuilder
from trace_analyzer.analyses.host_steps import find_host_steps
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.readers.kineto_collectives import message_bytes
from trace_analyzer.readers.sidecars import _is_step_ms
from trace_analyzer.schema import NA_INT64


def test_a_size_that_no_message_has_is_unknown() -> None:
    assert message_bytes("allreduce", 2**62, 2**62, 4, 2) == NA_INT64
    assert message_bytes("allreduce", 2**20, 2**20, 4, 2) == 4 * 2**20


def test_a_step_number_that_no_program_counts_to_is_none() -> None:
    builder = RankBuilder()
    for number, name in enumerate(("ProfilerStep#1", f"ProfilerStep#{2**63}", "ProfilerStep#2")):
        builder.event(name, number * 1000, (number + 1) * 1000)
    steps = find_host_steps(builder.build())
    assert steps is not None
    assert steps.index.tolist() == [1, 2]


def test_a_world_that_no_job_has_is_unknown(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.pt.trace.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"stream": 7}}
    trace.write_text(
        json.dumps({"distributedInfo": {"rank": 0, "world_size": 10**18}, "traceEvents": [kernel]})
    )
    run = open_run(str(trace))
    assert run.world_size is None
    assert run.missing_ranks == ()


def test_numbers_beyond_floats_are_no_step_times() -> None:
    assert not _is_step_ms(10**400)
    assert _is_step_ms(25.7)
