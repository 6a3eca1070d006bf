"""`calibration_rank{r}.json`: what the recorder cost on the machine that was recorded.

The schema is `trace_analyzer/data/schemas/calibration.schema.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from trace_analyzer.allowlist import shown_value
from trace_analyzer.bundle import read_json_object
from trace_analyzer.calibration_facts import RECORDERS, TORCH_PROFILER, Calibration, CallCost
from trace_analyzer.errors import UnreadableInputError

_SCHEMA_VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]

# No call of a loop takes longer, and none is recorded as more events.
MOST_US = 1e9
MOST_EVENTS = 1e6


class _Cost(msgspec.Struct):
    name: str
    calls: Count
    unprofiled_us: float
    profiled_us: float
    delta_us: float
    delta_interval_us: tuple[float, float]
    cpu_ops_per_call: float | None = None
    runtime_calls_per_call: float | None = None


class _Document(msgspec.Struct):
    rounds: Count
    classes: list[_Cost]
    rank: Rank | None = None
    recorder: str = TORCH_PROFILER  # files from before nsys was calibrated do not say
    device: str = ""
    options: dict[str, object] = {}


def read(path: Path, rank: int | None = None, *, display: str | None = None) -> Calibration:
    """Return the costs of one rank; `rank` counts where the file itself does not tell.

    Raises `UnreadableInputError` for a file of another kind or schema, one without a rank, and
    one with values that are no times.
    """
    shown = display or str(path)
    document = read_json_object(path, display=shown)
    version = document.get("schema_version")
    if version != _SCHEMA_VERSION:
        raise UnreadableInputError(shown, f"calibration schema {version!r} is not 1")
    try:
        found = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise UnreadableInputError(shown, str(error)) from error
    number = rank if found.rank is None else found.rank
    if number is None:
        raise UnreadableInputError(shown, "no rank in it")
    if found.recorder not in RECORDERS:
        raise UnreadableInputError(shown, f"the recorder {shown_value(found.recorder)} is unknown")
    return Calibration(
        rank=number,
        recorder=found.recorder,
        rounds=found.rounds,
        costs=tuple(_cost(cost, shown) for cost in found.classes),
        device=shown_value(found.device),
        options={key: value for key, value in found.options.items() if isinstance(value, bool)},
        path=shown,
    )


def _cost(cost: _Cost, shown: str) -> CallCost:
    low, high = cost.delta_interval_us
    times = (cost.unprofiled_us, cost.profiled_us, cost.delta_us, low, high)
    # Comparisons with NaN are false.
    sane = all(abs(value) <= MOST_US for value in times)
    if not sane or low > high or cost.unprofiled_us < 0:
        raise UnreadableInputError(shown, f"the times of {shown_value(cost.name)} are none")
    counts = (cost.cpu_ops_per_call, cost.runtime_calls_per_call)
    if not all(value is None or 0 <= value <= MOST_EVENTS for value in counts):
        raise UnreadableInputError(shown, f"the counts of {shown_value(cost.name)} are none")
    return CallCost(
        name=shown_value(cost.name),
        calls=cost.calls,
        unprofiled_us=cost.unprofiled_us,
        profiled_us=cost.profiled_us,
        delta_us=cost.delta_us,
        delta_interval_us=(low, high),
        cpu_ops_per_call=cost.cpu_ops_per_call,
        runtime_calls_per_call=cost.runtime_calls_per_call,
    )
