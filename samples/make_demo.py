"""Make the sample that `trace-analyzer demo` ships from `samples/slow_cpu_rank`.

    python samples/make_demo.py [--from RUN] [--to FOLDER]

The traces stay Kineto traces, and what the report says of them stays the same; they are made
smaller by dropping

- flow events (the arrows `ac2g` and `fwdbwd`): correlation ids and sequence numbers say the same,
- shapes, types and values of operator inputs, so `record_shapes` becomes 0,
- the profiler's own counters of operators (`Ev Idx`, `Record function id`),

by writing one event a line without indentation, and by zstd in place of gzip. Times keep every
digit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import zstandard

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "samples" / "slow_cpu_rank"
FOLDER = ROOT / "trace_analyzer" / "data" / "sample"

DROPPED_PHASES = {"s", "t", "f"}
DROPPED_ARGUMENTS = {
    "Concrete Inputs",
    "Input Dims",
    "Input Strides",
    "Input type",
    "Ev Idx",
    "Record function id",
    "Fwd thread id",
}


def reduced(text: bytes) -> bytes:
    """Return a smaller Kineto trace.

    Raises `ValueError` where a number cannot be written back digit by digit.
    """
    trace: dict[str, Any] = json.loads(text, parse_float=_exact)
    events = [_reduced_event(e) for e in trace["traceEvents"] if e.get("ph") not in DROPPED_PHASES]
    trace["record_shapes"] = 0
    lines = ",\n".join(_dumps(event) for event in events)
    trace["traceEvents"] = []
    head, tail = _dumps(trace).split('"traceEvents":[]')
    return f'{head}"traceEvents":[\n{lines}\n]{tail}\n'.encode()


def _reduced_event(event: dict[str, Any]) -> dict[str, Any]:
    if "args" in event:
        kept = {k: v for k, v in event["args"].items() if k not in DROPPED_ARGUMENTS}
        event = {**event, "args": kept}
    return event


def _exact(digits: str) -> float:
    value = float(digits)
    if Decimal(repr(value)) != Decimal(digits):
        msg = f"{digits} would lose digits"
        raise ValueError(msg)
    return value


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def make(run: Path, folder: Path) -> None:
    """Write the sample of `run` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(run.glob("rank*.pt.trace.json.gz")):
        small = reduced(gzip.decompress(path.read_bytes()))
        packed = zstandard.ZstdCompressor(level=19).compress(small)
        (folder / path.with_suffix(".zst").name).write_bytes(packed)
    for path in sorted([*run.glob("meta_rank*.json"), *run.glob("nccl_*.log")]):
        shutil.copyfile(path, folder / path.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="run", type=Path, default=RUN)
    parser.add_argument("--to", dest="folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    make(arguments.run, arguments.folder)
