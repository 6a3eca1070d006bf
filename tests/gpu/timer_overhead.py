"""What the step timer and the hook's marks add to a step: segments with and without, in turns.

One process, one GPU: `python tests/gpu/timer_overhead.py OUT.json`. Both a GPU-bound and a
launch-bound model; step times by CUDA events around the steps of each segment, medians.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from tests.gpu.train_gpt import Gpt
from trace_analyzer.collectors.timer import StepTimer

SEGMENTS, STEPS = 12, 20


class Watched:
    """Adds up the host time that calls of a timer take, inside the steps."""

    def __init__(self, timer: StepTimer) -> None:
        self.timer, self.spent_ns = timer, 0

    def begin_step(self) -> None:
        begin = time.perf_counter_ns()
        self.timer.begin_step()
        self.spent_ns += time.perf_counter_ns() - begin

    def mark(self, part: str) -> None:
        begin = time.perf_counter_ns()
        self.timer.mark(part)
        self.spent_ns += time.perf_counter_ns() - begin


def step(
    model: Gpt, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, timer: Watched | None
) -> None:
    if timer is not None:
        timer.begin_step()
        timer.mark("other")
        timer.mark("data")
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(tokens)
        loss = functional.cross_entropy(logits.reshape(-1, 32000).float(), tokens.reshape(-1))
    if timer is not None:
        timer.mark("forward")
    loss.backward()
    if timer is not None:
        timer.mark("backward")
        timer.mark("other")
    optimizer.step()
    if timer is not None:
        timer.mark("optimizer")


def compare(layers: int, width: int, length: int, batch: int, path: Path) -> dict[str, object]:
    torch.manual_seed(0)
    model = Gpt(layers, width, length).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 32000, (batch, length), device="cuda")
    for _ in range(15):
        step(model, optimizer, tokens, None)
    medians: dict[bool, list[float]] = {True: [], False: []}
    with StepTimer(rank=0, path=path) as timer:
        watched = Watched(timer)
        for segment in range(2 * SEGMENTS):
            timed = segment % 2 == 1
            torch.cuda.synchronize()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
            for mark in marks[:-1]:
                mark.record()
                step(model, optimizer, tokens, watched if timed else None)
            marks[-1].record()
            torch.cuda.synchronize()
            timer.break_sequence()
            pairs = list(itertools.pairwise(marks))[5:]
            medians[timed].append(statistics.median(a.elapsed_time(b) for a, b in pairs))
    shares = [100 * (b / a - 1) for a, b in zip(medians[False], medians[True], strict=True)]
    ordered = sorted(shares)
    return {
        "without_ms": statistics.median(medians[False]),
        "timed_ms": statistics.median(medians[True]),
        "overhead_pct": statistics.median(shares),
        "overhead_interval_pct": [ordered[2], ordered[-3]],  # 96 % for the median of twelve
        "host_us_a_step": watched.spent_ns / 1e3 / (SEGMENTS * STEPS),
    }


def main() -> None:
    out = Path(sys.argv[1])
    results = {
        "gpu_bound": compare(8, 1024, 1024, 8, out.with_suffix(".gpu.jsonl")),
        "launch_bound": compare(8, 256, 128, 2, out.with_suffix(".launch.jsonl")),
    }
    out.write_text(json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
