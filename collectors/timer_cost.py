"""What the step timer and its hooks add to a training step, measured on this machine.

    python -m trace_analyzer.collectors.timer_cost [--seconds 50] [--device cuda|cpu] [-o FILE]

One process trains the fault lab's small transformer in blocks of steps, with the hooks of
`collect` and without, in the order off on on off, so that drift of the machine cancels. `added`
is the median of the paired differences of block medians; `noise` is the same for neighbouring
blocks without hooks, which ought to be 0. Where steps vary by more than the hooks cost, `added`
cannot resolve them, so a third kind of block adds up the host time spent inside the hooks:
`inside`, the mean of a block's steps. All intervals are 95 %, by bootstrap over the pairs.

Parts are marked in some steps only (`part_sampling`), so the median step of `added` is one
without them. The median time inside the hooks is given for both kinds of steps, without the time
of the switches between them, which is given by itself.

The cost a step does not depend on how long the step is, so the shortest launch-bound size
resolves it best. Needs torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trace_analyzer.collectors.bench_statistics import median, significant
from trace_analyzer.collectors.clocks import open_clock
from trace_analyzer.collectors.faultlab.workload import GptShape
from trace_analyzer.collectors.timer_cost_blocks import (
    Hooks,
    Size,
    Training,
    Watch,
    cost_of_watching_us,
    train_block,
)

LEAST_PAIRS = 4
BAR_SHARE = 0.005


GPU_SIZES = {
    "launch-bound-short": Size(
        shape=GptShape(layers=2, width=256, heads=4, sequence=128, vocabulary=8192),
        batch=2,
        block_steps=40,
    ),
    "launch-bound": Size(
        shape=GptShape(layers=8, width=256, heads=4, sequence=128, vocabulary=32000),
        batch=2,
        block_steps=30,
    ),
    "gpu-bound": Size(
        shape=GptShape(layers=8, width=1024, heads=16, sequence=1024, vocabulary=32000),
        batch=8,
        block_steps=30,
    ),
}
CPU_SIZES = {
    "cpu": Size(
        shape=GptShape(layers=2, width=32, heads=2, sequence=16, vocabulary=64),
        batch=2,
        block_steps=30,
    )
}


def measure(size: Size, device: torch.device, seconds: float) -> dict[str, Any]:
    """Return what the hooks add to a step of one size, from about `seconds` of training."""
    training = Training(size, device)
    for step in training.block():
        step()
    off: list[float] = []
    on: list[float] = []
    inside: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="timer-cost-") as folder:
        hooks = Hooks(size.block_steps, Path(folder))
        deadline = time.monotonic() + seconds
        while len(inside) < LEAST_PAIRS // 2 or time.monotonic() < deadline:
            off.append(train_block(training, size, device))
            for _ in range(2):
                with hooks.installed():
                    on.append(train_block(training, size, device))
            off.append(train_block(training, size, device))
            inside.append(_watched(hooks, training, size, device))
    return _summary(size, off, on, inside)


def _watched(
    hooks: Hooks, training: Training, size: Size, device: torch.device
) -> dict[str, float]:
    watch = Watch()
    with hooks.installed(watch):
        train_block(training, size, device, watch)
    own_us, steps = cost_of_watching_us(), watch.steps
    result = {
        f"{label}_us": statistics.fmean(step.spent_us(label, own_us) for step in steps)
        for label in ("inside", "marks", "memory")
    }
    result["marks_a_step"] = statistics.fmean(step.calls["marks"] for step in steps)
    result["memory_reads_a_step"] = statistics.fmean(step.calls["memory"] for step in steps)
    result["with_parts_share"] = statistics.fmean(step.has_parts for step in steps)
    for kind, has_parts in (("with_parts", True), ("without_parts", False)):
        of_kind = [step for step in steps if step.has_parts is has_parts]
        switches = [step.spent_us("switches", own_us) for step in of_kind]
        insides = [step.spent_us("inside", own_us) for step in of_kind]
        marks = [step.spent_us("marks", own_us) for step in of_kind]
        result[f"{kind}_inside_us"] = statistics.median(
            inside - switch for inside, switch in zip(insides, switches, strict=True)
        )
        result[f"{kind}_marks_us"] = statistics.median(marks)
    result["switch_us"] = statistics.median(
        step.spent_us("switches", own_us) for step in steps if step.calls["switches"]
    )
    return result


def _summary(
    size: Size, off: Sequence[float], on: Sequence[float], inside: Sequence[dict[str, float]]
) -> dict[str, Any]:
    without, with_hooks = np.array(off), np.array(on)
    step_ms = float(np.median(without))
    added = median(with_hooks - without)
    neighbours = without[1:-1].reshape(-1, 2) if len(without) > 3 else without.reshape(-1, 2)
    noise = median(neighbours[:, 1] - neighbours[:, 0])
    inside_us = median(np.array([item["inside_us"] for item in inside]))
    parts = {
        name: round(statistics.median(item[name] for item in inside), 3)
        for name in sorted(inside[0])
        if name != "inside_us"
    }
    return {
        "block_steps": size.block_steps,
        "pairs": len(on),
        "without_ms": significant(step_ms),
        "with_ms": significant(float(np.median(with_hooks))),
        "added_us": round(added.value * 1e3, 2),
        "added_interval_us": [round(added.low * 1e3, 2), round(added.high * 1e3, 2)],
        "added_pct": round(100 * added.value / step_ms, 4),
        "added_interval_pct": [round(100 * v / step_ms, 4) for v in (added.low, added.high)],
        "noise_interval_us": [round(noise.low * 1e3, 2), round(noise.high * 1e3, 2)],
        "inside_us": round(inside_us.value, 2),
        "inside_interval_us": [round(inside_us.low, 2), round(inside_us.high, 2)],
        "inside_pct": round(inside_us.value / step_ms / 10, 4),
        **parts,
        "bar_us": round(BAR_SHARE * step_ms * 1e3, 1),
    }


def document(device: torch.device, seconds: float) -> dict[str, Any]:
    """Measure every size and return the whole result."""
    sizes = GPU_SIZES if device.type == "cuda" else CPU_SIZES
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {
        "schema_version": 1,
        "kind": "timer-cost",
        "torch": str(torch.__version__),
        "device": name,
        "clock": open_clock(device.type).name,
        "sizes": {
            label: measure(size, device, seconds / len(sizes)) for label, size in sizes.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the result as JSON, or write it to a file."""
    parser = argparse.ArgumentParser(prog="timer_cost", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=50.0, help="training time in all")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=default)
    parser.add_argument("-o", "--output", type=Path, help="file to write; else standard output")
    given = parser.parse_args(arguments)
    if given.device == "cpu":
        torch.set_num_threads(1)  # the model is too small for more, and waits for them
    result = document(torch.device(given.device), given.seconds)
    text = json.dumps(result, indent=1) + "\n"
    if given.output is None:
        sys.stdout.write(text)
    else:
        given.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
