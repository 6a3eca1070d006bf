"""`bench nccl-env`: whether settings of NCCL make all-reduces faster here.

Every setting has processes of its own, started in turn with the others' for several rounds: what
differs from start to start is in the interval. A difference whose interval holds zero is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    nested_median,
    significant,
)

SIZES_BYTES = (1 << 20, 16 << 20, 256 << 20)
ROUNDS = 2
# NVLink multicast (NCCL_NVLS_ENABLE) is left to the user: it is switched off where it cannot work.
GRID: tuple[Mapping[str, str], ...] = (
    {"NCCL_ALGO": "Tree"},
    {"NCCL_PROTO": "LL128"},
    {"NCCL_MAX_CTAS": "8"},
    {"NCCL_MIN_CTAS": "32"},
    {"NCCL_BUFFSIZE": str(8 << 20)},
)
NO_DIFFERENCE, FASTER, SLOWER = "no difference", "faster", "slower"


def parse_setting(text: str) -> dict[str, str]:
    """Return the variables of `NAME=VALUE[,NAME=VALUE]`. Raises `BenchError`."""
    setting: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise BenchError(f"{text!r} is no setting: write NAME=VALUE[,NAME=VALUE]")
        setting[name.strip()] = value.strip()
    return setting


def run(
    settings: Settings,
    grid: Sequence[Mapping[str, str]] = GRID,
    *,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    rounds: int = ROUNDS,
) -> dict[str, Any]:
    """Measure the default and every setting, and return the document."""
    task = settings.task("allreduce", sizes_bytes=list(sizes_bytes))
    every: list[Mapping[str, str]] = [{}, *grid]
    times: list[list[list[Float64Array]]] = [[[] for _ in sizes_bytes] for _ in every]
    about: dict[str, Any] = {}
    for _ in range(rounds):
        for position, setting in enumerate(every):
            results = measure(settings, task, setting)
            about = about or results[0]["about"]
            for index in range(len(sizes_bytes)):
                by_rank = [result["rows"][index]["times_s"] for result in results]
                times[position][index].append(np.mean(by_rank, axis=0))
    rows = []
    for index, size in enumerate(sizes_bytes):
        base, base_draws = nested_median(times[0][index], seed=0)
        for position, setting in enumerate(every):
            value, draws = nested_median(times[position][index], seed=position)
            ratio = estimate(value / base, draws / base_draws)
            rows.append(_row(setting, size, estimate(value, draws), ratio, settings.ranks))
    return {**head("nccl-env", settings, about), "rounds": rounds, "rows": rows}


def text(document: dict[str, Any]) -> str:
    """Return the document as a table for a terminal."""
    rows = []
    for row in document["rows"]:
        low, high = row["time_ratio_interval"]
        compared = bool(row["setting"])
        rows.append(
            [
                size_text(row["bytes"]),
                _name(row["setting"]),
                f"{row['time_us']:.1f}",
                f"{row['busbw_gbs']:.2f}",
                f"{row['time_ratio']:.3f}" if compared else "",
                f"{low:.3f}-{high:.3f}" if compared else "",
                row["verdict"] or "",
            ]
        )
    columns = ["size", "setting", "time us", "busbw GB/s", "time ratio", "95 % interval", "verdict"]
    return (
        f"all-reduce under settings, {document['ranks']} ranks, {document['backend']}, "
        f"{document['rounds']} starts of {document['repetitions']} repetitions each\n"
        + table(columns, rows)
        + "\n"
    )


def _row(
    setting: Mapping[str, str], size: int, time_s: Estimate, ratio: Estimate, ranks: int
) -> dict[str, Any]:
    bus = time_s.inverted(2 * (ranks - 1) / ranks * size / 1e9)
    return {
        "setting": dict(setting),
        "bytes": size,
        "time_us": significant(1e6 * time_s.value),
        "time_interval_us": time_s.scaled(1e6).interval,
        "busbw_gbs": significant(bus.value),
        "time_ratio": significant(ratio.value) if setting else 1.0,
        "time_ratio_interval": ratio.interval if setting else [1.0, 1.0],
        "verdict": verdict(ratio) if setting else None,
    }


def verdict(ratio: Estimate) -> str:
    """Return what an interval of the time's ratio to the default allows one to say."""
    if ratio.high < 1:
        return FASTER
    return SLOWER if ratio.low > 1 else NO_DIFFERENCE


def _name(setting: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "default"
