"""What a runtime or driver call does, from its name (CUDA and HIP)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trace_analyzer.schema import Int8Array
from trace_analyzer.tables import CallKind

_VERSION_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")

# First match decides; names are compared without cuda/cu/hip prefix and version suffix.
_KINDS: tuple[tuple[CallKind, str], ...] = (
    (CallKind.GRAPH_LAUNCH, r"^GraphLaunch"),
    (
        CallKind.LAUNCH,
        r"Launch(?:Cooperative)?Kernel|^Launch$|^ExtLaunch|ModuleLaunch|LaunchHostFunc",
    ),
    (CallKind.SYNC, r"^(?:Device|Stream|Event|Ctx|Thread)Synchronize"),
    (
        CallKind.EVENT,
        r"^(?:Event(?:Record|Query|Create|Destroy|ElapsedTime)|StreamWaitEvent|StreamQuery)",
    ),
    (CallKind.MEMSET, r"^Memset"),
    (CallKind.MEMCPY, r"^Memcpy"),
    (
        CallKind.ALLOC,
        r"^(?:Malloc|MemAlloc|HostAlloc|MemHostAlloc|MemCreate|MemMap|MemAddressReserve|HostRegister)",
    ),
    (CallKind.FREE, r"^(?:Free|MemFree|MemRelease|MemUnmap|MemAddressFree|HostUnregister)"),
)
_KIND_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)
_PREFIX = re.compile(r"^(?:cuda|hip|cu)(?=[A-Z])")


def strip_version(name: str) -> str:
    """Return an API name without its version suffix: `cudaLaunchKernel_v7000` → `cudaLaunchKernel`."""
    return _VERSION_SUFFIX.sub("", name)


def call_kind(name: str) -> CallKind:
    """Return what a call of this name does."""
    bare = _PREFIX.sub("", strip_version(name))
    for kind, pattern in _KIND_PATTERNS:
        if pattern.search(bare):
            return kind
    return CallKind.OTHER


def call_kinds(names: Sequence[str]) -> Int8Array:
    """Return the CallKind for every position of a name table."""
    return np.fromiter((call_kind(name) for name in names), dtype=np.int8, count=len(names))
