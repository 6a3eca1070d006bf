from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data.dataloader import _BaseDataLoaderIter  # noqa: E402

from trace_analyzer.collectors import timer_cost, timer_cost_blocks  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_cost_is_measured_against_steps_without_hooks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backward, next_batch = torch.autograd.backward, _BaseDataLoaderIter.__next__
    target = tmp_path / "cost.json"
    assert timer_cost.main(["--seconds", "0", "--device", "cpu", "-o", str(target)]) == 0
    document = json.loads(target.read_text())
    assert (document["kind"], document["device"]) == ("timer-cost", "cpu")
    found = document["sizes"]["cpu"]
    assert found["pairs"] == timer_cost.LEAST_PAIRS
    # Of 30 steps 0, 1, 9, 18 and 27 have parts, and three marks more than the others.
    assert found["with_parts_share"] == pytest.approx(5 / 30, abs=1e-3)
    assert found["marks_a_step"] == pytest.approx(1 + 3 * 5 / 30, abs=1e-3)
    assert found["without_parts_inside_us"] < found["with_parts_inside_us"]
    assert 0 < found["inside_us"] < 1e3 * found["without_ms"]
    assert found["inside_interval_us"][0] <= found["inside_us"] <= found["inside_interval_us"][1]
    assert found["added_interval_us"][0] <= found["added_us"] <= found["added_interval_us"][1]
    # Nothing is left in, and recordings that went through their schedule say nothing.
    assert torch.autograd.backward is backward
    assert _BaseDataLoaderIter.__next__ is next_batch
    assert capfd.readouterr() == ("", "")


def test_calls_are_counted_by_step() -> None:
    class Hook:
        def call(self) -> None:
            """Do nothing."""

    watch, hook = timer_cost_blocks.Watch(), Hook()
    watch.wrap(hook, "call", "inside")
    hook.call()
    with watch.step():
        hook.call()
        hook.call()
    hook.call()
    watch.marks_parts = lambda: True
    with watch.step():
        hook.call()
    assert [step.calls for step in watch.steps] == [{"inside": 2}, {"inside": 1}]
    assert [step.has_parts for step in watch.steps] == [False, True]
    step = watch.steps[0]
    assert step.spent_us("inside", 1.0) == pytest.approx(step.spent_ns["inside"] / 1e3 - 2.0)
