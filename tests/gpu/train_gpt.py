"""A plain training script: a small GPT under DDP or FSDP, compiled or not, timing its own steps.

It knows nothing of trace-analyzer. `--times FOLDER` receives, from rank 0, when every step began
and the milliseconds of each by CUDA events around it, also where training is ended early.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset[torch.Tensor]):
    def __init__(self, count: int, length: int, vocabulary: int) -> None:
        self.count, self.length, self.vocabulary = count, length, vocabulary

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, self.vocabulary, (self.length,), generator=generator)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = width // 64

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        wider: torch.Tensor = self.narrow(functional.gelu(self.wide(self.after(x))))
        return x + wider


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class Times:
    """Milliseconds of every step by CUDA events around it (by the host's clock on a CPU)."""

    def __init__(self, folder: Path | None, *, on_gpu: bool) -> None:
        self.folder, self.on_gpu = folder, on_gpu
        self.marks: list[Any] = []
        self.starts_unix_ns: list[int] = []

    def begin_step(self) -> None:
        if self.on_gpu:
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
            self.marks.append(mark)
        else:
            self.marks.append(time.perf_counter_ns())
        self.starts_unix_ns.append(time.time_ns())

    def write(self) -> None:
        if self.folder is None or dist.get_rank() != 0:
            return
        pairs = itertools.pairwise(self.marks)
        if self.on_gpu:
            torch.cuda.synchronize()
            step_ms = [first.elapsed_time(second) for first, second in pairs]
        else:
            step_ms = [(second - first) / 1e6 for first, second in pairs]
        path = self.folder / f"times_{time.time_ns()}.json"
        path.write_text(json.dumps({"start_unix_ns": self.starts_unix_ns, "step_ms": step_ms}))


def parallel(model: Gpt, kind: str) -> nn.Module:
    if kind == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--parallel", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--compile", action="store_true", help="compile every block")
    parser.add_argument("--times", type=Path, help="folder for the times of rank 0's steps")
    args = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    plain = Gpt(args.layers, args.width, args.length, args.vocabulary).to(device)
    if args.compile:
        for block in plain.blocks:
            block.compile()
    model = parallel(plain, args.parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Tokens(args.steps * args.batch, args.length, args.vocabulary),
        batch_size=args.batch,
        num_workers=2 if on_gpu else 0,
        pin_memory=on_gpu,
    )
    times = Times(args.times, on_gpu=on_gpu)
    try:
        for batch in loader:
            times.begin_step()
            tokens = batch.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits = model(tokens)
                loss = functional.cross_entropy(
                    logits[:, :-1].reshape(-1, args.vocabulary).float(), tokens[:, 1:].reshape(-1)
                )
            loss.backward()
            optimizer.step()
    finally:
        times.write()
    if not on_gpu:
        # Gloo's thread needs the interpreter to let go of the last all-reduce; a group destroyed
        # meanwhile waits for that thread with the interpreter held, for ever.
        time.sleep(0.5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
