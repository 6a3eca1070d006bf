"""Which rank this process is, from torch.distributed or from what the launcher said."""

from __future__ import annotations

import os
import sys

# torchrun; Slurm's srun; Open MPI's mpirun; Cray PALS / MPICH
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


def rank_of_process() -> int:
    """Return the global rank; 0 for a process that belongs to no group."""
    return _from_group("get_rank", _RANK, 0)


def world_size_of_process() -> int:
    """Return the number of processes of the run; 1 for a process that belongs to no group."""
    return _from_group("get_world_size", _WORLD, 1)


def local_rank_of_process() -> int:
    """Return the rank among the processes of this host, as the launcher numbers them."""
    return _from_environment(_LOCAL, 0)


def _from_group(question: str, names: tuple[str, ...], default: int) -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(getattr(distributed, question)())
    return _from_environment(names, default)


def _from_environment(names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default
