"""Synthetic batches through a real `DataLoader`, so that its costs are real too."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from trace_analyzer.collectors.faultlab.workload import LoaderOptions, Workload

POOL = 64  # distinct samples
FILE_MB = 256

Batch = tuple[Tensor, Tensor]


class Samples(Dataset[Batch]):
    """Samples that cost nothing but what the options add."""

    def __init__(self, workload: Workload, options: LoaderOptions, file: Path | None) -> None:
        generator = torch.Generator().manual_seed(1)
        scale = workload.scale
        self._options = options
        self._file = file
        if scale.gpt is not None:
            size = (POOL, scale.gpt.sequence + 1)
            tokens = torch.randint(scale.gpt.vocabulary, size, generator=generator)
            self._inputs, self._targets = tokens[:, :-1], tokens[:, 1:]
        else:
            assert scale.conv is not None
            side = options.image or scale.conv.image
            size4 = (POOL, 3, side, side)
            self._inputs = torch.randint(256, size4, dtype=torch.uint8, generator=generator)
            self._targets = torch.randint(scale.conv.classes, (POOL,), generator=generator)

    def __getitem__(self, index: int) -> Batch:
        if self._options.sleep_ms_per_sample:
            time.sleep(self._options.sleep_ms_per_sample / 1e3)
        if self._file is not None:
            _read_uncached(self._file, self._options.read_mb_per_sample, index)
        return self._inputs[index % POOL], self._targets[index % POOL]


class Forever(Sampler[int]):
    """Indices without end; every rank sees its own share unless `sharded` is off."""

    def __init__(self, rank: int, size: int, *, sharded: bool) -> None:
        self._start, self._stride = (rank, size) if sharded else (0, 1)

    def __iter__(self) -> Iterator[int]:
        return itertools.count(self._start, self._stride)


class BatchSource:
    """An endless iterator of batches with one kind of loader behind it."""

    def __init__(self, workload: Workload, options: LoaderOptions, rank: int, size: int) -> None:
        self._file = _uncached_file() if options.read_mb_per_sample else None
        workers = 0 if workload.size == "tiny" else options.workers
        extra: dict[str, Any] = {}
        if workers:
            extra = {"prefetch_factor": options.prefetch, "multiprocessing_context": "fork"}
        self._loader = DataLoader(
            Samples(workload, options, self._file),
            batch_size=workload.scale.batch + options.extra_samples,
            sampler=Forever(rank, size, sharded=options.sharded),
            num_workers=workers,
            pin_memory=options.pinned and torch.cuda.is_available(),
            **extra,
        )
        self._batches: Iterator[Any] | None = None

    def next(self) -> Batch:
        """Return the next batch, on the host."""
        if self._batches is None:
            self._batches = iter(self._loader)
        inputs, targets = next(self._batches)
        return inputs, targets

    def close(self) -> None:
        """End the workers."""
        shut_down = getattr(self._batches, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        self._batches = None
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _uncached_file() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="faultlab-", suffix=".bin")
    block = os.urandom(1 << 20)
    with os.fdopen(descriptor, "wb") as stream:
        for _ in range(FILE_MB):
            stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return Path(name)


def _read_uncached(file: Path, megabytes: float, index: int) -> None:
    length = int(megabytes * (1 << 20))
    offset = (index * length) % ((FILE_MB << 20) - length)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)
        os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)
