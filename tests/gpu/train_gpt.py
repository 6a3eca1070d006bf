"""A plain training script: a small GPT under DistributedDataParallel, timing its own steps.

It knows nothing of trace-analyzer. `--times FILE` receives, from rank 0, the milliseconds of every
step by CUDA events around it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset[torch.Tensor]):
    def __init__(self, count: int, length: int) -> None:
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, 32000, (self.length,), generator=generator)


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
    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(32000, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 32000, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--times", type=Path)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    model = DistributedDataParallel(Gpt(args.layers, args.width, args.length).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Tokens(args.steps * args.batch, args.length),
        batch_size=args.batch,
        num_workers=2,
        pin_memory=True,
    )
    marks = []
    for batch in loader:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        marks.append(mark)
        tokens = batch.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens)
            loss = functional.cross_entropy(
                logits[:, :-1].reshape(-1, 32000).float(), tokens[:, 1:].reshape(-1)
            )
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    if args.times and dist.get_rank() == 0:
        times = [first.elapsed_time(second) for first, second in itertools.pairwise(marks)]
        args.times.write_text(json.dumps(times))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
