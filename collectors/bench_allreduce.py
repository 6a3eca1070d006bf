"""`bench allreduce`: all-reduce over message sizes, against what the links can carry.

Algorithm bandwidth is bytes over time; bus bandwidth is that times 2 (n - 1) / n, which for a
ring is what every link carries: the definitions of nccl-tests (doc/PERFORMANCE.md there). A time
is the mean over ranks of one repetition, as nccl-tests average it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trace_analyzer.collectors.bench_document import Settings, head, measure, size_text, table
from trace_analyzer.collectors.bench_limits import Limit, read_links
from trace_analyzer.collectors.bench_statistics import Estimate, fit_line, median, significant

SIZES_BYTES = tuple(1 << power for power in range(10, 30, 2))  # 1 KiB … 256 MiB


def run(settings: Settings, sizes_bytes: Sequence[int] = SIZES_BYTES) -> dict[str, Any]:
    """Measure, and return the document (`bench.schema.json`)."""
    results = measure(settings, settings.task("allreduce", sizes_bytes=list(sizes_bytes)))
    limit = _limit(settings)
    times = [
        np.mean([result["rows"][index]["times_s"] for result in results], axis=0)
        for index in range(len(sizes_bytes))
    ]
    factor = 2 * (settings.ranks - 1) / settings.ranks
    rows = []
    for size, values in zip(sizes_bytes, times, strict=True):
        time_s = median(values)
        algorithm = time_s.inverted(size / 1e9)
        bus = algorithm.scaled(factor)
        rows.append(
            {
                "bytes": size,
                "time_us": significant(1e6 * time_s.value),
                "time_interval_us": time_s.scaled(1e6).interval,
                "algbw_gbs": significant(algorithm.value),
                "busbw_gbs": significant(bus.value),
                "busbw_interval_gbs": bus.interval,
                "share_of_limit": None if limit is None else significant(bus.value / limit.gbs),
            }
        )
    fit = fit_line(sizes_bytes, times)
    bus_rate: Estimate = fit.rate_bytes_per_s.scaled(factor / 1e9)
    return {
        **head("allreduce", settings, results[0]["about"]),
        "dtype": "float32",
        "limit": None if limit is None else {"gbs": limit.gbs, "basis": limit.basis},
        "fit": {
            "latency_us": significant(1e6 * fit.latency_s.value),
            "latency_interval_us": fit.latency_s.scaled(1e6).interval,
            "busbw_gbs": significant(bus_rate.value),
            "busbw_interval_gbs": bus_rate.interval,
            "largest_relative_residual": significant(fit.largest_relative_residual, 3),
        },
        "rows": rows,
    }


def text(document: dict[str, Any]) -> str:
    """Return the document as a table for a terminal."""
    rows = []
    for row in document["rows"]:
        share = row["share_of_limit"]
        low, high = row["busbw_interval_gbs"]
        rows.append(
            [
                size_text(row["bytes"]),
                f"{row['time_us']:.1f}",
                f"{row['algbw_gbs']:.2f}",
                f"{row['busbw_gbs']:.2f}",
                f"{low:.2f}-{high:.2f}",
                "" if share is None else f"{100 * share:.0f} %",
            ]
        )
    columns = ["size", "time us", "algbw GB/s", "busbw GB/s", "95 % interval", "of limit"]
    fit, limit = document["fit"], document["limit"]
    lines = [
        (
            f"all-reduce, {document['ranks']} ranks, {document['backend']}, float32, "
            f"{document['repetitions']} repetitions"
        ),
        table(columns, rows),
        (
            f"fit: {fit['latency_us']:.1f} us + bytes at {fit['busbw_gbs']:.1f} GB/s bus bandwidth "
            f"(off by up to {100 * fit['largest_relative_residual']:.0f} %: the library changes its "
            "protocol with the size)"
        ),
    ]
    if limit is not None:
        lines.append(f"limit: {limit['gbs']:g} GB/s ({limit['basis']})")
    return "\n".join(lines) + "\n"


def _limit(settings: Settings) -> Limit | None:
    links = read_links() if settings.device == "cuda" else None
    if links is None:
        return None
    limits = [links.of_gpu(gpu) for gpu in range(settings.ranks)]
    known = [limit for limit in limits if limit is not None]
    return min(known, key=lambda limit: limit.gbs, default=None)
