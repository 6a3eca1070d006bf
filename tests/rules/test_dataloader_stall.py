"""DATA001: loaders that keep the GPU waiting, and loaders that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.loop import Loop, context_of, diagnosed, recoverable_ms, single
from tests.traces import real_trace
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.catalogue import rules
from trace_analyzer.rules.dataloader_stall import RULE
from trace_analyzer.rules.judge import diagnose

IN_PROCESS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
HTOD = "Memcpy HtoD (Pinned -> Device)"


def training(loop: Loop, load_us: float, name: str = IN_PROCESS, after_us: float = 0.0) -> None:
    if name:
        loop.event(name, load_us)
    else:
        loop.silent(load_us)
    loop.silent(after_us)
    loop.copy(HTOD, 20, 1 << 20)
    loop.launches(40, 100)  # 4 ms of kernels in 0.4 ms of launches


def loaded(load_us: float, name: str = IN_PROCESS, after_us: float = 0.0) -> Run:
    return single(lambda loop, _: training(loop, load_us, name, after_us))


def test_loading_in_the_training_process_gives_back_what_it_delays() -> None:
    found = diagnosed(RULE, loaded(9_000))
    (finding,) = found.findings
    # 9 ms of loading against 4 ms of kernels that still run: 5.4 ms of idle time are gained.
    assert recoverable_ms(found) == pytest.approx(5.4, abs=0.3)
    assert finding.ceiling_ms == pytest.approx(5.4, abs=0.5)
    assert "training process loads" in finding.title
    assert finding.ranges
    assert finding.actions[0].startswith("Load in workers")


def test_a_loader_that_the_gpu_hides_is_no_finding() -> None:
    found = diagnosed(RULE, loaded(3_000))
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_work_between_the_loader_and_the_copy_counts() -> None:
    (finding,) = diagnosed(RULE, loaded(200, after_us=9_000)).findings
    assert "works 8.9 ms a step on loaded batches" in finding.title


def test_silence_before_the_copy_stands_for_an_unmarked_loader() -> None:
    found = diagnosed(RULE, loaded(9_000, name=""))
    (finding,) = found.findings
    assert finding.confidence != "high"
    assert recoverable_ms(found) == pytest.approx(5.4, abs=0.4)


def test_silence_after_the_copy_is_not_the_loader() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.event(IN_PROCESS, 100)
        loop.copy(HTOD, 20, 1 << 20)
        loop.silent(9_000)
        loop.launches(40, 100)

    assert not diagnosed(RULE, single(body)).findings


def test_one_first_batch_is_no_stall() -> None:
    run = single(lambda loop, k: training(loop, 20_000 if k == 3 else 100))
    assert not diagnosed(RULE, run).findings


def paced(step_us: float, pace_us: float, steps: int = 8) -> Run:
    """A host that needs `step_us` a step and workers that need `pace_us` a batch."""
    loop = Loop()
    ready = loop.now
    for _ in range(steps):
        loop.step()
        begin = loop.now
        ready = max(ready + round(pace_us * 1_000), begin)
        wait_us = max(ready - begin, 0) / 1_000 + 50
        loop.event(WORKERS, wait_us)
        loop.copy(HTOD, 20, 1 << 20)
        loop.launches(40, 100)
        loop.silent(step_us - 460)
    from tests.builder import run_of

    return run_of(loop.build())


def test_workers_keep_their_pace_when_the_host_gets_faster() -> None:
    run = paced(step_us=7_000, pace_us=10_000)
    context = context_of(run)
    assert context.replay is not None
    supply = context.replay.built.parts[0].supply
    assert supply is not None
    assert supply.duration_ns.mean() == pytest.approx(10e6, rel=0.02)
    assert context.step_ns == pytest.approx(10e6, rel=0.02)
    assert context.replay.error < 0.001
    faster = context.replay.edit()
    faster.launches(0, 0.1)
    assert context.replay.gain(faster).gain_ns == pytest.approx(0, abs=1e5)
    (finding,) = diagnosed(RULE, run).findings
    assert "a batch takes them 10.0 ms" in finding.title
    known = replace(run, environment={0: {"setting.dataloader.num_workers": "2"}})
    (finding,) = diagnosed(RULE, known).findings
    assert "from 2 to 4" in finding.actions[0]


def test_workers_that_are_ahead_set_no_pace() -> None:
    context = context_of(paced(step_us=7_000, pace_us=5_000))
    assert context.replay is not None
    assert context.replay.built.parts[0].supply is None


@pytest.mark.parametrize("name", ["slow_loader"])
def test_slow_loader_of_two_gpus(name: str) -> None:
    run = open_run(str(real_trace(f"h200-ddp/{name}")))
    (finding,) = diagnosed(RULE, run).findings
    assert finding.ranks == [0, 1]
    assert finding.recoverable_ms == pytest.approx(17.96, abs=2.5)


def test_the_same_job_with_and_without_workers() -> None:
    """A real pair: without workers the GPU waits a third of the step, with four it does not."""
    alone = open_run(str(real_trace("public/kineto/resnet50_num_workers_0")))
    (finding,) = diagnosed(RULE, alone).findings
    context = context_of(alone)
    assert finding.ceiling_ms is not None
    assert 0.30 < finding.ceiling_ms * 1e6 / (context.study.step_ns or 0) < 0.36
    assert 0.25 < (finding.recoverable_ms or 0) * 1e6 / context.step_ns < 0.36
    four = open_run(str(real_trace("public/kineto/resnet50_num_workers_4")))
    assert not diagnosed(RULE, four).findings


@pytest.mark.parametrize("name", ["healthy", "t1"])
def test_healthy_runs_have_no_fault_of_the_host(name: str) -> None:
    context = context_of(open_run(str(real_trace(f"h200-ddp/{name}"))))
    hosts = [rule for rule in rules() if rule.code.startswith(("DATA", "HOST", "MEM", "STEP"))]
    found = diagnose(context, hosts)
    assert not [item.code for item in found.findings if item.kind == "fault"]
    assert not [check for check in found.checks if check.state == "error"]
