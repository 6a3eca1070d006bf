"""One rank of a benchmark: takes times and writes them; statistics are made elsewhere."""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

from trace_analyzer.allowlist import allowed
from trace_analyzer.collectors.faultlab.gpt import Gpt
from trace_analyzer.collectors.faultlab.workload import GptShape
from trace_analyzer.collectors.faultlab.world import World, close_world, open_world

ALIGNING = 3  # repetitions until ranks are in step; not counted
CYCLES_PER_S = 2e9
LONGEST_PLUG_S = 0.5
Task = dict[str, Any]
Times = dict[str, Any]


def repeated(world: World, action: Callable[[], object], task: Task) -> list[float]:
    """Return the seconds of each repetition of `action` on this rank's device.

    On a GPU all repetitions are queued behind a waiting kernel, so that the host's launch time is
    not in them; events stand around each.
    """
    count, warmup = task["repetitions"] + ALIGNING, task["warmup"]
    for _ in range(max(1, warmup)):
        action()
    world.synchronize()
    if not world.cuda:
        return _repeated_on_host(action, count)
    began = time.perf_counter()
    action()
    host_s = time.perf_counter() - began
    world.synchronize()
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(count)
    ]
    plug_s = min(LONGEST_PLUG_S, 2 * host_s * count + 0.002)
    torch.cuda._sleep(int(plug_s * CYCLES_PER_S))  # noqa: SLF001
    for begin, end in events:
        begin.record()
        action()
        end.record()
    world.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in events[ALIGNING:]]


def _repeated_on_host(action: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return times[ALIGNING:]


def allreduce(world: World, task: Task) -> Times:
    """Time all-reduces of each size."""
    rows = []
    for size in task["sizes_bytes"]:
        values = torch.ones(max(1, size // 4), device=world.device)
        world.meet()
        action = lambda values=values: distributed.all_reduce(values)  # noqa: E731
        rows.append({"bytes": size, "times_s": repeated(world, action, task)})
    return {"rows": rows}


def links(world: World, task: Task) -> Times:
    """Time messages between all pairs: each direction alone, then both together."""
    rows: list[Task] = []
    for source in range(world.size):
        for target in range(world.size):
            if source == target:
                continue
            for size in task["sizes_bytes"]:
                world.meet()
                if world.rank in (source, target):
                    values = torch.ones(size, dtype=torch.uint8, device=world.device)
                    action = _message(world, values, source, target)
                    times = repeated(world, action, task)
                    rows.append(_link_row(source, target, size, times, both=False))
            if source < target:
                size = max(task["sizes_bytes"])
                world.meet()
                if world.rank in (source, target):
                    peer = target if world.rank == source else source
                    times = repeated(world, _exchange(world, size, peer), task)
                    rows.append(_link_row(source, target, size, times, both=True))
    world.meet()
    return {"rows": rows}


def _link_row(source: int, target: int, size: int, times: list[float], *, both: bool) -> Task:
    return {"source": source, "target": target, "bytes": size, "both": both, "times_s": times}


def _message(world: World, values: Tensor, source: int, target: int) -> Callable[[], object]:
    if world.rank == source:
        return lambda: distributed.send(values, target)
    return lambda: distributed.recv(values, source)


def _exchange(world: World, size: int, peer: int) -> Callable[[], object]:
    outgoing = torch.ones(size, dtype=torch.uint8, device=world.device)
    incoming = torch.empty_like(outgoing)

    def exchange() -> None:
        operations = [
            distributed.P2POp(distributed.isend, outgoing, peer),
            distributed.P2POp(distributed.irecv, incoming, peer),
        ]
        for work in distributed.batch_isend_irecv(operations):
            work.wait()

    return exchange


def step(world: World, task: Task) -> Times:
    """Time training steps of transformers of several widths on 1, 2, … ranks."""
    rows: list[Task] = []
    groups = {count: distributed.new_group(list(range(count))) for count in task["ranks"]}
    for width in task["widths"]:
        shape = GptShape(
            layers=task["layers"],
            width=width,
            heads=max(1, width // task["head_width"]),
            sequence=task["sequence"],
            vocabulary=task["vocabulary"],
        )
        for count in task["ranks"]:
            for mode, batch in (
                ("strong", task["batch"] // count),
                ("weak", task["batch"]),
            ):
                if mode == "weak" and count == 1:
                    continue  # the same program as strong
                world.meet()
                if world.rank < count:
                    group = groups[count] if count > 1 else None
                    row = _train(world, shape, batch, group, task)
                    rows.append({"width": width, "ranks": count, "mode": mode, **row})
    world.meet()
    return {"rows": rows}


def _train(world: World, shape: GptShape, batch: int, group: Any, task: Task) -> Task:  # noqa: ANN401
    torch.manual_seed(0)
    with torch.device(world.device):
        model = Gpt(shape)
        tokens = torch.randint(shape.vocabulary, (batch, shape.sequence + 1))
    module: nn.Module = model
    if group is not None:
        devices = [world.device.index] if world.cuda else None
        module = nn.parallel.DistributedDataParallel(
            model, device_ids=devices, process_group=group, gradient_as_bucket_view=True
        )
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def train() -> None:
        with torch.autocast(world.device.type, dtype=torch.bfloat16):
            loss = module(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(task["warmup"]):
        train()
    times = _consecutive(world, train, task["repetitions"])
    parameters = sum(value.numel() for value in model.parameters())
    return {"gradient_bytes": 4 * parameters, "batch_per_rank": batch, "times_s": times}


def _consecutive(world: World, action: Callable[[], object], count: int) -> list[float]:
    """Time actions that follow each other as they do in training: completion to completion."""
    if not world.cuda:
        return _repeated_on_host(action, count + ALIGNING)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + ALIGNING + 1)]
    for event in events[:-1]:
        event.record()
        action()
    events[-1].record()
    world.synchronize()
    pairs = itertools.pairwise(events)
    return [begin.elapsed_time(end) / 1e3 for begin, end in pairs][ALIGNING:]


KINDS: dict[str, Callable[[World, Task], Times]] = {
    "allreduce": allreduce,
    "links": links,
    "step": step,
}


def describe(world: World) -> dict[str, Any]:
    """Return what was measured on."""
    versions = {"torch": str(torch.__version__), "python": platform.python_version()}
    gpus = []
    if world.cuda:
        versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        versions["cuda"] = str(torch.version.cuda)
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    backend = distributed.get_backend()
    return {
        "backend": backend,
        "gpus": gpus,
        "versions": versions,
        "variables": allowed(os.environ),
    }


def main() -> None:
    """Read the task (first argument), measure, write the times (second argument)."""
    task = json.loads(Path(sys.argv[1]).read_text())
    world = open_world(task["device"])
    world.meet()
    result = {**KINDS[task["kind"]](world, task), "about": describe(world)}
    Path(sys.argv[2]).write_text(json.dumps(result))
    world.meet()
    close_world()


if __name__ == "__main__":
    main()
