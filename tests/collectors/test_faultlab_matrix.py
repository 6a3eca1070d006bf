from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from trace_analyzer.collectors.faultlab.catalogue import CODES_OF_CAUSE, codes_of, kind_of
from trace_analyzer.collectors.faultlab.fault import Dose, all_faults
from trace_analyzer.collectors.faultlab.matrices import MATRICES, matrix
from trace_analyzer.collectors.faultlab.matrix import KINETO, NSYS, RunSpec, runs
from trace_analyzer.collectors.faultlab.occasion import State
from trace_analyzer.collectors.faultlab.programs import built_options, faulty_group
from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload

pytestmark = pytest.mark.torch

GPT = Workload(model="gpt", size="small")
CONV = Workload(model="conv", size="small")


def test_the_lab_is_as_large_as_promised() -> None:
    faults = [kind for kind in all_faults().values() if kind.causes]
    controls = [kind for kind in all_faults().values() if not kind.causes]
    assert len(faults) >= 50
    assert len(controls) >= 8
    full = matrix("full")
    assert sum(spec.set == "test" for spec in full) >= 100
    assert sum(len(spec.doses) > 1 for spec in full) >= 5
    assert sum(NSYS in spec.recorders for spec in full) >= 20
    names = {dose.fault for spec in matrix("first") for dose in spec.doses if dose.kind.causes}
    assert len(names) >= 25


def test_every_fault_has_codes_and_is_explained() -> None:
    for kind in all_faults().values():
        assert set(kind.causes) <= set(CODES_OF_CAUSE)
        assert bool(kind.codes()) == bool(kind.causes)
        assert (kind.__doc__ or "").strip().splitlines()[0].endswith(".")
        assert kind(kind.magnitudes[0]).magnitude == kind.magnitudes[0]


@pytest.mark.parametrize("name", sorted(MATRICES))
def test_no_run_is_recorded_twice(name: str) -> None:
    keys = [spec.key for spec in matrix(name)]
    assert len(keys) == len(set(keys))


def test_sets_follow_the_rule_alone() -> None:
    (tune,) = runs(GPT, "item-sync")
    others = [
        *runs(CONV, "item-sync"),
        *runs(GPT, "item-sync=4 item-sync@1 item-sync=2+few-channels"),
    ]
    assert tune.set == "tune"
    assert {spec.set for spec in others} == {"test"}
    assert runs(GPT, "item-sync+few-channels")[0].set == "tune"


def test_words_become_doses() -> None:
    (spec,) = runs(GPT, "late-host=0.35+unfused-optimizer@3", (KINETO, NSYS))
    assert spec.seed == 3
    assert spec.doses == (
        Dose(fault="late-host", magnitude=0.35),
        Dose(fault="unfused-optimizer", magnitude=2.0),
    )
    assert spec.key == "gpt-small-ddp.late-host_0.35+unfused-optimizer_2.seed3"
    with pytest.raises(KeyError):
        runs(GPT, "no-such-fault")


def test_traces_stay_small_but_show_what_repeats_twice() -> None:
    for spec in matrix("full"):
        period = max(dose.kind.period for dose in spec.doses)
        assert spec.active_steps >= max(4, 2 * period)
        assert not (spec.record_shapes and period > 1)


def test_faults_of_construction_and_of_environment() -> None:
    few, slow = runs(GPT, "few-channels=2 slow-transport=2")
    assert built_options(few) == (BuildOptions(), BuildOptions(max_ctas=2))
    assert faulty_group(few).environment == ()
    assert dict(faulty_group(slow).environment) == {
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
    }
    (many,) = runs(GPT, "many-channels")
    assert built_options(many)[0] == BuildOptions(max_ctas=8)
    document = built_options(runs(GPT, "forced-protocol")[0])[1].document()
    assert BuildOptions.of_document(document).communicator_environment == (("NCCL_PROTO", "LL"),)


def test_kinds() -> None:
    assert kind_of((), 0.0) == "control"
    assert kind_of(("GPU002",), 0.4) == "opportunity"
    assert kind_of(("HOST004",), 0.05) == "opportunity"
    assert kind_of(("HOST004",), 0.2) == "fault"
    assert kind_of(("GPU002", "COMM003"), 0.01) == "fault"
    assert codes_of(("L6", "N12-host", "L4")) == ("HOST003", "HOST007", "RANK001")


def test_a_workload_must_be_known() -> None:
    with pytest.raises(ValueError, match="huge"):
        Workload(size="huge")


def test_state_remembers_and_gives_up(tmp_path: Path) -> None:
    spec = RunSpec(workload=GPT, doses=(Dose(fault="healthy", magnitude=1.0),))
    state = State.load(tmp_path / "state.json")
    run = f"{spec.key}.{KINETO}"
    for problem, wanted in itertools.pairwise(["once", "twice", ""]):
        state.failed.setdefault(run, []).append(problem)
        assert state.wants(spec, KINETO) is bool(wanted)
    state.done[f"{spec.key}.{NSYS}"] = {"set": "tune"}
    state.save()
    again = State.load(tmp_path / "state.json")
    assert not again.wants(spec, NSYS)
    assert again.failed == {run: ["once", "twice"]}
