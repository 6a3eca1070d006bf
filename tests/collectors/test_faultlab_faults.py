"""Every fault that a CPU can show, in two real processes that train together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from trace_analyzer.collectors.faultlab.fault import Dose, all_faults
from trace_analyzer.collectors.faultlab.group import Group, GroupError
from trace_analyzer.collectors.faultlab.programs import program_key
from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload

pytestmark = pytest.mark.torch

GPT = Workload(model="gpt", size="tiny")
CONV = Workload(model="conv", size="tiny")
SHARDED = Workload(model="gpt", size="tiny", parallel="fsdp")
COMPILED = Workload(model="gpt", size="tiny", compiled=True)
PLAIN = BuildOptions(compile_backend="eager")

# Each fault once; those that only exist with a workload, on it.
CASES: dict[str, Workload] = {
    **{
        name: GPT
        for name, kind in all_faults().items()
        if kind.needs <= GPT.traits(device="cpu", world_size=2)
    },
    "buffer-broadcast": CONV,
    "channels-first": CONV,
    "serial-all-gathers": SHARDED,
    "fine-sharding": SHARDED,
    "graph-breaks": COMPILED,
    "not-compiled": COMPILED,
}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    log: Path = tmp_path_factory.mktemp("faultlab") / "log"
    ranks = Group(size=2, environment={"OMP_NUM_THREADS": "1"}, log=log)
    ranks.ask(90.0, do="open", device="cpu")
    yield ranks
    ranks.tell_exit()
    ranks.exit()


def run_states(group: Group, dose: Dose, workload: Workload) -> list[list[dict[str, list[float]]]]:
    """Return the step times of both ranks in the healthy and in the faulty state."""
    fault = dose.make()
    healthy = fault.baseline_build(PLAIN)
    group.ask(30.0, do="faults", doses=[asdict(dose)], seed=1)
    answers = []
    for faulty, options in ((False, healthy), (True, fault.build(healthy))):
        key = program_key(workload, options)
        group.ask(
            60.0,
            do="build",
            key=key,
            workload=asdict(workload),
            options=options.document(),
            warmup=0,
        )
        answers.append(group.ask(60.0, do="steps", key=key, faulty=faulty, settle=0, steps=2))
    group.ask(30.0, do="drop", keep=[program_key(workload, PLAIN)])
    return answers


@pytest.mark.parametrize("name", sorted(CASES))
def test_both_states_train(group: Group, name: str) -> None:
    dose = Dose(fault=name, magnitude=min(all_faults()[name].magnitudes))
    for answers in run_states(group, dose, CASES[name]):
        assert [len(answer["step_ms"]) for answer in answers] == [2, 2]
        assert all(value > 0 for answer in answers for value in answer["step_ms"])


def test_a_late_host_is_late_on_its_rank_and_only_while_it_is_on(group: Group) -> None:
    healthy, faulty = run_states(group, Dose(fault="late-host", magnitude=20.0), GPT)
    pause_ms = 20.0 * GPT.scale.nominal_step_ms  # sleeping is never shorter
    assert min(faulty[1]["host_ms"]) >= pause_ms
    assert min(healthy[1]["host_ms"]) < pause_ms


def test_a_failed_command_names_rank_and_reason_and_ends_the_ranks(group: Group) -> None:
    # the last test of the module: the group does not survive it
    with pytest.raises(GroupError, match=r"(?s)steps: rank \d: .*KeyError: 'unbuilt'"):
        group.ask(30.0, do="steps", key="unbuilt", faulty=False, settle=0, steps=1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in group.process_ids)
