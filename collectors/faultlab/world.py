"""The process and its peers: device, rank, and the two ways to wait."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed

COLLECTIVE_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class World:
    """Where this process stands among the ranks of its run."""

    rank: int
    size: int
    device: torch.device

    @property
    def cuda(self) -> bool:
        """Whether training runs on GPUs."""
        return self.device.type == "cuda"

    @property
    def last(self) -> int:
        """The highest rank: the one that rank faults strike by default."""
        return self.size - 1

    def synchronize(self) -> None:
        """Wait for the own device."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def meet(self) -> None:
        """Wait for the own device and for all ranks."""
        self.synchronize()
        if self.size > 1:
            distributed.all_reduce(torch.zeros(1, device=self.device))
            self.synchronize()


def open_world(device: str) -> World:
    """Join the process group that RANK, WORLD_SIZE and MASTER_* describe.

    A single process forms a group of one, so that all faults find the same calls. Raises what
    torch.distributed raises where the peers do not come.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        place = torch.device("cuda", torch.cuda.current_device())
    else:
        place = torch.device("cpu")
    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        rank=rank,
        world_size=size,
        timeout=COLLECTIVE_TIMEOUT,
    )
    return World(rank=rank, size=size, device=place)


def close_world() -> None:
    """Leave the process group."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
