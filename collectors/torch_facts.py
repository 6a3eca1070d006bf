"""Versions and the device as torch knows them."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed


def versions() -> dict[str, str]:
    """Return versions of torch and of what it was built with or loaded; absent where it has not."""
    found = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        cudnn = torch.backends.cudnn.version()
        if cudnn is not None:
            found["cudnn"] = str(cudnn)
        if distributed.is_available() and distributed.is_nccl_available():
            nccl: Any = torch.cuda.nccl.version()
            found["nccl"] = ".".join(str(part) for part in nccl[:3])
    if torch.version.hip:
        found["hip"] = torch.version.hip
    if distributed.is_available() and distributed.is_initialized():
        found["backend"] = str(distributed.get_backend())
    return found


def device() -> dict[str, Any]:
    """Return the GPU that this process uses, by the ordinal it sees; empty without one."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    ordinal = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(ordinal)
    return {
        "ordinal": ordinal,
        "name": properties.name,
        "uuid": str(getattr(properties, "uuid", "")),
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
    }
