"""Which calibration a recording takes, at the moment when its steps are done."""

from __future__ import annotations

import torch

from trace_analyzer.collectors.options import Mode, Options


def calibrate(options: Options, rank: int, *, together: bool) -> list[str]:
    """Measure what the recorder costs, and write it beside the trace; return what went wrong.

    torch.profiler is measured at once. nsys takes two runs: the timing run measures without it,
    the recorded one with it, while it still collects.
    """
    from trace_analyzer.collectors import calibration, nsys_calibration

    try:
        if options.mode is Mode.TORCH:
            calibration.record(options, rank, together=together)
        elif not torch.cuda.is_available():
            return []  # nsys has nothing to record, so nothing to cost
        elif options.mode is Mode.NSYS:
            nsys_calibration.measure_recorded(options, rank, together=together)
        else:
            nsys_calibration.measure_plain(options, rank, together=together)
    except Exception as error:  # noqa: BLE001  # the trace is good without it
        return [f"no calibration: {type(error).__name__}: {error}"]
    return []
