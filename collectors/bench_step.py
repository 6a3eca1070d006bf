"""`bench step`: how a training step scales on this host, by gradient volume.

Strong scaling keeps the global batch (E = T1 / (n Tn)), weak scaling the batch of a GPU
(E = T1 / Tn). T is the maximum over ranks of the median step; the interval is the bootstrap's of
the ratio, within this one start of the processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from trace_analyzer.collectors.bench_statistics import (
    Estimate,
    Float64Array,
    estimate,
    median_draws,
    significant,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The transformers that are trained: one for each width."""

    widths: tuple[int, ...] = (512, 1024, 2048)
    layers: int = 4
    sequence: int = 512
    vocabulary: int = 8192
    head_width: int = 64
    batch: int = 16  # of one GPU; the global batch of strong scaling


def rank_counts(ranks: int) -> list[int]:
    """Return 1, 2, 4, … and the whole."""
    counts = [1]
    while counts[-1] * 2 <= ranks:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == ranks else [*counts, ranks]


def run(settings: Settings, shape: Shape) -> dict[str, Any]:
    """Measure, and return the document.

    Raises `BenchError` for one rank, or a batch that the rank counts do not divide.
    """
    counts = rank_counts(settings.ranks)
    if len(counts) < 2:
        raise BenchError("scaling needs two ranks; this host shows one")
    if any(shape.batch % count for count in counts):
        raise BenchError(f"a batch of {shape.batch} cannot be shared by {counts} ranks; change it")
    task = settings.task(
        "step",
        ranks=counts,
        widths=list(shape.widths),
        layers=shape.layers,
        sequence=shape.sequence,
        vocabulary=shape.vocabulary,
        head_width=shape.head_width,
        batch=shape.batch,
    )
    results = measure(settings, task)
    rows = []
    for width in shape.widths:
        base = _find(results, width, 1, "strong")
        for count in counts[1:]:
            rows += [_row(results, base, width, count, mode) for mode in ("strong", "weak")]
    return {
        **head("step", settings, results[0]["about"]),
        "workload": {
            "model": "decoder-only transformer, bf16 autocast, fused AdamW, DDP",
            "layers": shape.layers,
            "sequence": shape.sequence,
            "vocabulary": shape.vocabulary,
            "batch": shape.batch,
        },
        "rows": rows,
    }


def text(document: dict[str, Any]) -> str:
    """Return the document as a table for a terminal."""
    rows = []
    for row in document["rows"]:
        low, high = row["efficiency_interval"]
        rows.append(
            [
                size_text(row["gradient_bytes"]),
                str(row["ranks"]),
                row["mode"],
                f"{row['t1_ms']:.3f}",
                f"{row['tn_ms']:.3f}",
                f"{row['efficiency']:.3f}",
                f"{low:.3f}-{high:.3f}",
                f"{row['lost_ms']:.3f}",
            ]
        )
    columns = ["gradients", "n", "scaling", "T1 ms", "Tn ms", "E", "95 % interval", "lost ms"]
    return (
        f"training step, {document['backend']}, {document['repetitions']} steps each, "
        "interval within one start\n" + table(columns, rows) + "\n"
    )


def _row(
    results: Sequence[dict[str, Any]],
    base: list[dict[str, Any]],
    width: int,
    count: int,
    mode: str,
) -> dict[str, Any]:
    several = _find(results, width, count, mode)
    one_s, one_draws = _step(base)
    many_s, many_draws = _step(several)
    share = count if mode == "strong" else 1
    efficiency: Estimate = estimate(one_s / (share * many_s), one_draws / (share * many_draws))
    return {
        "width": width,
        "gradient_bytes": several[0]["gradient_bytes"],
        "ranks": count,
        "mode": mode,
        "batch_per_rank": several[0]["batch_per_rank"],
        "t1_ms": significant(1e3 * one_s),
        "tn_ms": significant(1e3 * many_s),
        "efficiency": significant(efficiency.value),
        "efficiency_interval": efficiency.interval,
        "lost_ms": significant(1e3 * (many_s - one_s / share)),
    }


def _find(
    results: Sequence[dict[str, Any]], width: int, count: int, mode: str
) -> list[dict[str, Any]]:
    wanted = (width, count, mode)
    return [
        row
        for result in results
        for row in result["rows"]
        if (row["width"], row["ranks"], row["mode"]) == wanted
    ]


def _step(rows: Sequence[dict[str, Any]]) -> tuple[float, Float64Array]:
    """Return the step time of ranks that train together, and its draws."""
    times = [np.asarray(row["times_s"], dtype=np.float64) for row in rows]
    draws = np.stack([median_draws(values, np.random.default_rng(0)) for values in times])
    value = max(float(np.median(values)) for values in times)
    return value, np.asarray(draws.max(axis=0), dtype=np.float64)
