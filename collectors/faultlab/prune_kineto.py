"""Make a torch.profiler trace small without taking anything that analyses read.

Kept, with their times to the last digit: kernels, copies, runtime and driver calls, operators,
annotations, synchronisation and overhead events. Left out: flow arrows (the correlation tells the
same), Python frames, and arguments that are constant, derivable or values of tensors. The order of
keys is chosen for compression: what varies first, then one long run that repeats.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DROPPED_CATEGORIES = frozenset({"ac2g", "async_cpu_to_gpu", "fwdbwd", "python_function"})
DROPPED_ARGUMENTS = frozenset(
    {
        "Concrete Inputs",
        "Input Strides",
        "Ev Idx",
        "Fwd thread id",
        "Record function id",
        "cbid",
        "queued",
        "memory bandwidth (GB/s)",
        "blocks per SM",
        "warps per SM",
    }
)
CALLS = frozenset({"cuda_runtime", "cuda_driver"})
COMPRESSION = 9


class _Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


def prune(source: Path, target: Path) -> dict[str, int]:
    """Write the pruned, compressed trace; return how many events were kept and left out.

    Raises `ValueError` (of the JSON decoder) where the source is no complete trace.
    """
    document = json.loads(source.read_bytes(), parse_float=_Number)
    events = document.pop("traceEvents")
    if "traceName" in document:
        document["traceName"] = Path(document["traceName"]).name
    kept = [event for event in events if event.get("cat") not in DROPPED_CATEGORIES]
    partial = target.with_name(target.name + ".partial")
    with gzip.GzipFile(partial, "wb", COMPRESSION, mtime=0) as stream:
        head = ",\n".join(f"{json.dumps(key)}:{_text(value)}" for key, value in document.items())
        stream.write(f'{{{head},\n"traceEvents":[\n'.encode())
        stream.write(",\n".join(_lines(kept)).encode())
        stream.write(b"\n]}\n")
    partial.replace(target)
    return {"kept": len(kept), "left_out": len(events) - len(kept)}


def _lines(events: list[dict[str, Any]]) -> Iterator[str]:
    # By thread and start: neighbours resemble each other.
    def order(event: dict[str, Any]) -> tuple[str, str, str, float]:
        kind = "device" if "stream" in event.get("args", {}) else "host"
        return kind, str(event.get("pid")), str(event.get("tid")), float(event.get("ts", 0))

    for event in sorted(events, key=order):
        front: dict[str, Any] = {key: event.pop(key) for key in ("ts", "dur") if key in event}
        arguments = event.pop("args", None)
        if arguments is not None:
            wanted = {k: v for k, v in arguments.items() if k not in DROPPED_ARGUMENTS}
            if event.get("cat") in CALLS:
                wanted.pop("External id", None)  # the operation it launched has the same
            first = {k: wanted.pop(k) for k in ("correlation", "External id") if k in wanted}
            front["args"] = {**first, **wanted}
        yield _text({**front, **event})


def _text(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)}:{_text(item)}" for key, item in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)
