"""`bench links`: every ordered pair of GPUs, by send and receive.

Each direction alone gives latency (the smallest message) and bandwidth (the largest), as the
receiver sees them; both directions at once give what the pair carries together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trace_analyzer.collectors.bench_document import (
    BenchError,
    Settings,
    head,
    measure,
    size_text,
    table,
)
from trace_analyzer.collectors.bench_limits import read_links
from trace_analyzer.collectors.bench_statistics import median, significant

SIZES_BYTES = (4, 256 << 20)


def run(settings: Settings, sizes_bytes: Sequence[int] = SIZES_BYTES) -> dict[str, Any]:
    """Measure, and return the document. Raises `BenchError` for fewer than two ranks."""
    if settings.ranks < 2:
        raise BenchError("links need two ranks; this host shows one")
    results = measure(settings, settings.task("links", sizes_bytes=list(sizes_bytes)))
    links = read_links() if settings.device == "cuda" else None
    rows, together = [], []
    for source in range(settings.ranks):
        for target in range(settings.ranks):
            if source == target:
                continue
            small = _times(results, source, target, min(sizes_bytes), both=False)
            large = _times(results, source, target, max(sizes_bytes), both=False)
            limit = None if links is None else links.of_pair(source, target)
            rate = median(large).inverted(max(sizes_bytes) / 1e9)
            latency = median(small).scaled(1e6)
            rows.append(
                {
                    "src": source,
                    "dst": target,
                    "bytes": max(sizes_bytes),
                    "latency_us": significant(latency.value),
                    "latency_interval_us": latency.interval,
                    "bandwidth_gbs": significant(rate.value),
                    "bandwidth_interval_gbs": rate.interval,
                    "limit_gbs": None if limit is None else limit.gbs,
                    "limit_basis": None if limit is None else limit.basis,
                }
            )
            if source < target:
                both = _times(results, source, target, max(sizes_bytes), both=True)
                sum_rate = median(both).inverted(2 * max(sizes_bytes) / 1e9)
                together.append(
                    {
                        "ranks": [source, target],
                        "bytes_each_way": max(sizes_bytes),
                        "bandwidth_gbs": significant(sum_rate.value),
                        "bandwidth_interval_gbs": sum_rate.interval,
                    }
                )
    about = results[0]["about"]
    return {**head("links", settings, about), "rows": rows, "both_directions": together}


def text(document: dict[str, Any]) -> str:
    """Return the document as tables for a terminal."""
    rows = []
    for row in document["rows"]:
        low, high = row["bandwidth_interval_gbs"]
        limit = row["limit_gbs"]
        rows.append(
            [
                f"{row['src']} -> {row['dst']}",
                f"{row['latency_us']:.1f}",
                f"{row['bandwidth_gbs']:.2f}",
                f"{low:.2f}-{high:.2f}",
                "" if limit is None else f"{limit:g}",
                "" if limit is None else f"{100 * row['bandwidth_gbs'] / limit:.0f} %",
            ]
        )
    columns = ["pair", "latency us", "GB/s", "95 % interval", "limit", "of limit"]
    size = size_text(document["rows"][0]["bytes"])
    lines = [
        f"links, {document['backend']}, messages of {size}, {document['repetitions']} repetitions",
        table(columns, rows),
    ]
    for row in document["both_directions"]:
        first, second = row["ranks"]
        lines.append(
            f"{first} <-> {second} both ways at once: {row['bandwidth_gbs']:.2f} GB/s in sum"
        )
    bases = sorted({row["limit_basis"] for row in document["rows"] if row["limit_basis"]})
    lines += [f"limit: {basis}" for basis in bases]
    return "\n".join(lines) + "\n"


def _times(
    results: Sequence[dict[str, Any]], source: int, target: int, size: int, *, both: bool
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the receiver's times; of an exchange, the mean of both ranks."""
    ranks = (source, target) if both else (target,)
    found = [
        row["times_s"]
        for rank in ranks
        for row in results[rank]["rows"]
        if (row["source"], row["target"], row["bytes"], row["both"]) == (source, target, size, both)
    ]
    return np.asarray(np.mean(found, axis=0), dtype=np.float64)
