"""Which settings of a training process may appear in a report.

A report is attached to tickets, so only what explains speed is kept: names are let in by list,
and of paths only the last part is shown. Standard library only: collectors use it too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PREFIXES = (
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "FI_",
    "GLOO_",
    "GPU_MAX_HW_QUEUES",
    "HIP_",
    "HSA_",
    "MIOPEN_",
    "NCCL_",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVSHMEM_",
    "PYTORCH_",
    "RCCL_",
    "ROCR_VISIBLE_DEVICES",
    "TORCHINDUCTOR_",
    "TORCH_",
    "TRITON_",
    "UCX_",
)
_NAMES = frozenset(
    {
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MKL_NUM_THREADS",
        "NODE_RANK",
        "GROUP_RANK",
        "OMP_NUM_THREADS",
        "OMP_PROC_BIND",
        "RANK",
        "TOKENIZERS_PARALLELISM",
        "WORLD_SIZE",
    }
)
_SECRET = re.compile(r"KEY|TOKEN(?!IZERS_PARALLELISM)|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE")
# Absolute paths: any at the start of a word, inside a word (-I/opt/me/include) from two parts on.
_PATH = re.compile(
    r"""(?<![^\s:,;="'(])(?:~|[A-Za-z]:(?=\\))?[/\\][^:;,\s="']*|(?:[/\\][^/\\:;,\s="']+){2,}[/\\]?"""
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")
_MAX_VALUE_CHARACTERS = 500


def is_allowed(name: str) -> bool:
    """Tell whether an environment variable of this name may be shown."""
    if _SECRET.search(name):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def shown_value(value: str) -> str:
    """Return a value without folders: `/home/me/topo.xml` becomes `topo.xml`; long ones are cut."""
    text = _PATH.sub(_last_part, _USER_INFO.sub("", " ".join(value.split())))
    if len(text) > _MAX_VALUE_CHARACTERS:
        return text[:_MAX_VALUE_CHARACTERS] + "…"
    return text


def allowed(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may be shown, by name, with shown values."""
    return {
        name: shown_value(value) for name, value in sorted(variables.items()) if is_allowed(name)
    }


def _last_part(match: re.Match[str]) -> str:
    return re.split(r"[/\\]", match.group(0).rstrip("/\\"))[-1] or "/"
