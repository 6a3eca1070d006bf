"""What all benchmarks share: settings, how ranks are run, the head of the document, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trace_analyzer import __version__
from trace_analyzer.collectors.bench_limits import gpu_count
from trace_analyzer.collectors.local_ranks import run_ranks
from trace_analyzer.errors import TraceAnalyzerError

SCHEMA_VERSION = 1
WORKER = "trace_analyzer.collectors.bench_worker"
LEAST_REPETITIONS = 30


class BenchError(TraceAnalyzerError):
    """A benchmark that cannot run as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every benchmark is told."""

    device: str  # cuda or cpu
    ranks: int
    repetitions: int = 50
    warmup: int = 10
    timeout_s: float = 600.0

    def task(self, kind: str, **extra: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return what a rank is told."""
        return {
            "kind": kind,
            "device": self.device,
            "repetitions": self.repetitions,
            "warmup": self.warmup,
            **extra,
        }


def settle(device: str, ranks: int | None, repetitions: int, warmup: int) -> Settings:
    """Return settings with "auto" and None decided.

    Raises `BenchError` where there are no GPUs to take, or fewer than asked for, or too few
    repetitions for an interval.
    """
    if repetitions < LEAST_REPETITIONS:
        raise BenchError(
            f"{repetitions} repetitions give no trustworthy interval; take {LEAST_REPETITIONS} or more"
        )
    found = 0 if device == "cpu" else gpu_count()
    if device == "auto":
        device = "cuda" if found else "cpu"
    if device == "cuda" and not found:
        raise BenchError("nvidia-smi lists no GPU; --device cpu measures this host with gloo")
    count = ranks or (found if device == "cuda" else 2)
    if device == "cuda" and count > found:
        raise BenchError(f"{count} ranks asked for, but there are {found} GPUs")
    return Settings(device=device, ranks=count, repetitions=repetitions, warmup=warmup)


def measure(
    settings: Settings, task: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Run a task on all ranks and return their results."""
    return run_ranks(
        WORKER, settings.ranks, task, environment=environment, timeout_s=settings.timeout_s
    )


def head(kind: str, settings: Settings, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that every bench document begins with."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "tool": {"name": "trace-analyzer", "version": __version__},
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": settings.device,
        "ranks": settings.ranks,
        "repetitions": settings.repetitions,
        "statistic": "median; interval: 95 %, bootstrap",
        "backend": about["backend"],
        "gpus": about["gpus"],
        "versions": about["versions"],
        "variables": about["variables"],
    }


def size_text(count: float) -> str:
    """Return a number of bytes in the units that NCCL's own tests use."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.0f} B"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned text under their columns, numbers to the right."""
    widths = [
        max(len(column), *(len(row[index]) for row in rows), 0) if rows else len(column)
        for index, column in enumerate(columns)
    ]
    lines = [list(columns), *map(list, rows)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
