"""A table of labelled runs: what was recorded, with which cost, for the documents."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from trace_analyzer.collectors.faultlab.runfiles import LABEL_NAME

COLUMNS = (
    "run",
    "recorder",
    "set",
    "kind",
    "codes",
    "faults",
    "workload",
    "healthy_ms",
    "faulty_ms",
    "cost_ms",
    "cost_lo",
    "cost_hi",
    "half_width_pct",
    "statistic",
    "active_steps",
    "bytes",
)


def rows(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return one row a labelled run below the folders, by name; the same run once."""
    labels = sorted({path.resolve() for folder in folders for path in folder.rglob(LABEL_NAME)})
    found = {path.parent.name: _row(path) for path in labels}
    return [found[name] for name in sorted(found)]


def _row(path: Path) -> dict[str, Any]:
    label = json.loads(path.read_text())
    low, high = label["cost_interval_ms"]
    return {
        "run": label["run"],
        "recorder": label["recorder"],
        "set": label["set"],
        "kind": label["kind"],
        "codes": " ".join(label["codes"]),
        "faults": "+".join(f"{fault['name']}={fault['magnitude']:g}" for fault in label["faults"]),
        "workload": label["workload"]["name"],
        "healthy_ms": round(label["healthy"]["step_ms"], 3),
        "faulty_ms": round(label["faulty"]["step_ms"], 3),
        "cost_ms": round(label["cost_ms"], 3),
        "cost_lo": round(low, 3),
        "cost_hi": round(high, 3),
        "half_width_pct": round(100 * label["half_width_share"], 2),
        "statistic": label["statistic"],
        "active_steps": label["recording"]["active_steps"],
        "bytes": sum(item.stat().st_size for item in path.parent.iterdir()),
    }


def write(table: Iterable[dict[str, Any]], stream: TextIO) -> None:
    """Write the rows as CSV."""
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
