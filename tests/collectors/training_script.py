"""A training script that knows nothing of trace-analyzer; run by tests, not by pytest."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import cast

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--fail-at", type=int, default=-1)
parser.add_argument("--fsdp", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--seconds", type=float, default=0.0)
args = parser.parse_args()

torch.set_num_threads(1)
model: nn.Module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
data = TensorDataset(torch.zeros(20_000, 16))
sampler: DistributedSampler[tuple[torch.Tensor, ...]] | None = None
if "RANK" in os.environ:
    distributed.init_process_group("gloo")
    if args.fsdp:
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
        fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model)
    sampler = DistributedSampler(data)
if args.compile:
    model = cast(nn.Module, torch.compile(model))
optimizer = torch.optim.AdamW(model.parameters())
for step, (batch,) in enumerate(DataLoader(data, batch_size=4, sampler=sampler)):
    if step == args.fail_at:
        sys.stderr.write("the loss is nan\n")
        sys.exit(7)
    if step == args.steps:
        break
    optimizer.zero_grad()
    model(batch).sum().backward()
    time.sleep(args.seconds)
    optimizer.step()
if "RANK" in os.environ:
    distributed.destroy_process_group()
sys.stdout.write("trained\n")
