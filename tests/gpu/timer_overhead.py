"""What the step timer and the hook's marks add to a step: segments with and without, in turns.

One process, one GPU: `python tests/gpu/timer_overhead.py OUT.json`. Both a GPU-bound and a
launch-bound model; step times by CUDA events around the steps of each segment, medians.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from tests.gpu.train_gpt import Gpt
from trace_analyzer.collectors.timer import StepTimer

SEGMENTS, STEPS = 8, 40


def step(
    model: Gpt, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, timer: StepTimer | None
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


def compare(layers: int, width: int, length: int, batch: int, path: Path) -> dict[str, float]:
    torch.manual_seed(0)
    model = Gpt(layers, width, length).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 32000, (batch, length), device="cuda")
    for _ in range(15):
        step(model, optimizer, tokens, None)
    times: dict[bool, list[float]] = {True: [], False: []}
    host_us = []
    with StepTimer(rank=0, path=path) as timer:
        for segment in range(2 * SEGMENTS):
            timed = segment % 2 == 1
            torch.cuda.synchronize()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
            for mark in marks[:-1]:
                mark.record()
                step(model, optimizer, tokens, timer if timed else None)
            marks[-1].record()
            torch.cuda.synchronize()
            timer.break_sequence()
            pairs = list(zip(marks, marks[1:], strict=False))[5:]
            times[timed] += [first.elapsed_time(second) for first, second in pairs]
        # The marks alone, on an idle host: what they cost it.
        for _ in range(50):
            begin = time.perf_counter_ns()
            timer.begin_step()
            for part in ("other", "data", "forward", "backward", "other", "optimizer"):
                timer.mark(part)
            host_us.append((time.perf_counter_ns() - begin) / 1e3)
            time.sleep(0.002)
        memory = []
        for _ in range(50):
            begin = time.perf_counter_ns()
            timer._clock.memory(reset_peak=True)
            memory.append((time.perf_counter_ns() - begin) / 1e3)
    without, timed_ms = statistics.median(times[False]), statistics.median(times[True])
    return {
        "without_ms": without,
        "timed_ms": timed_ms,
        "overhead_pct": 100 * (timed_ms / without - 1),
        "host_us_a_step": statistics.median(host_us),
        "memory_us": statistics.median(memory),
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
