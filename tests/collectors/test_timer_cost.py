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
    assert found["marks_a_step"] == 4.0
    assert 0 < found["inside_us"] < 1e3 * found["without_ms"]
    assert found["inside_interval_us"][0] <= found["inside_us"] <= found["inside_interval_us"][1]
    assert found["added_interval_us"][0] <= found["added_us"] <= found["added_interval_us"][1]
    # Nothing is left in, and recordings that went through their schedule say nothing.
    assert torch.autograd.backward is backward
    assert _BaseDataLoaderIter.__next__ is next_batch
    assert capfd.readouterr() == ("", "")


def test_only_measured_steps_are_counted() -> None:
    class Hook:
        def call(self) -> None:
            """Do nothing."""

    watch, hook = timer_cost_blocks.Watch(), Hook()
    watch.wrap(hook, "call", "inside")
    hook.call()
    assert watch.calls == {"inside": 0}
    watch.counting = True
    hook.call()
    hook.call()
    assert watch.calls == {"inside": 2}
    assert watch.spent_ns["inside"] > 0
