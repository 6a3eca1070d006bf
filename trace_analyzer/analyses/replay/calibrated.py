"""The recorder's costs on the host of a run: calibrated there where that is known to serve, or default.

A calibration times loops that do one thing with the recorder and without it. In a step the same event
costs more: its code and the recorder's buffers have left the core's caches. With four times what the
loops of one kind of server gave, labelled runs of that server are predicted as well as with constants
that were fitted to them; three and five times are worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trace_analyzer.analyses.replay.costs import DEFAULT_KINETO, ProfilerCosts, default_costs
from trace_analyzer.calibration_facts import TORCH_PROFILER, Calibration
from trace_analyzer.model import Run, SourceKind

# What an event costs in a step, as a multiple of what it costs in a loop.
STEP_TO_LOOP = 2.0
# Loops whose costs give those of a step's events.
NEEDED = ("aten_op", "aten_launch", "autograd_node", "annotation", "runtime_call")
# A recorder that seems to cost less than this for a launch, ns, or more, was not measured well: two
# ranks of one host gave 1.8 and 1.9.
LAUNCH_NS = (300.0, 30_000.0)


def recording_costs(run: Run) -> ProfilerCosts:
    """Return what recording an event cost in a run.

    nsys is not calibrated: its loops give half of what its runs show, because most of what it slows
    is not in them.
    """
    source = run.ranks[0].source
    if source == SourceKind.NSYS:
        return default_costs(source)
    return calibrated(run.calibration) or default_costs(source)


def calibrated(calibrations: Sequence[Calibration]) -> ProfilerCosts | None:
    """Return the costs that torch.profiler was calibrated to have, None where not to be had.

    Means over ranks: what two ranks of a host measure differs by as much as two measurements do.
    """
    rows = [found for item in calibrations if (found := _loop_costs(item)) is not None]
    if not rows:
        return None
    operator, launch, autograd, annotation, call = np.mean(rows, axis=0) * 1e3
    if not LAUNCH_NS[0] <= launch <= LAUNCH_NS[1]:
        return None
    return replace(
        DEFAULT_KINETO,
        operator_ns=STEP_TO_LOOP * float(operator),
        autograd_ns=STEP_TO_LOOP * float(autograd),
        annotation_ns=STEP_TO_LOOP * float(annotation),
        call_ns=STEP_TO_LOOP * float(call),
        launch_ns=STEP_TO_LOOP * float(launch),
        basis="calibrated on this host",
    )


def _loop_costs(calibration: Calibration) -> list[float] | None:
    """Return µs an operator, launch call, node of backward, range, other call; None if not there."""
    if calibration.recorder != TORCH_PROFILER:
        return None
    found = [calibration.cost(name) for name in NEEDED]
    if any(cost is None for cost in found):
        return None
    operator, launch, node, annotation, call = (cost for cost in found if cost is not None)
    an_operator = max(operator.delta_us, 0.0)
    # A node of backward is recorded with the operators inside it, a launch with its operator.
    inside = max((node.cpu_ops_per_call or 1.0) - 1.0, 0.0)
    costs = [
        an_operator,
        launch.delta_us - an_operator,
        node.delta_us - inside * an_operator,
        annotation.delta_us,
        call.delta_us / max(call.runtime_calls_per_call or 1.0, 1.0),
    ]
    return [max(cost, 0.0) for cost in costs]
