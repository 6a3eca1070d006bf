"""The interval of a predicted unprofiled step: how wrong either clock may be.

What the host's time is wrong by hardly matters where the GPU decides the step, and lengthens or
shortens it where the host does. So the interval is what the step would be with a faster and with a
slower host, joined with what predictions are wrong by that the GPU alone decides.
"""

from __future__ import annotations

import numpy as np

from trace_analyzer.analyses.replay.fit import Clean, Fit
from trace_analyzer.analyses.replay.step_time import StepTime

# By how much all host time of a prediction may be wrong, and all time of the GPU, as shares: of the
# labelled runs of the tuning half 91 % lie inside. The pace of a host changes by more than this from
# second to second, and the unprofiled steps saw other seconds than the recording.
HOST_ERROR = 0.15
DEVICE_ERROR = 0.04


def predicted_interval_ns(clean: Clean, predicted: StepTime) -> tuple[float, float]:
    """Return the 95 % interval of a predicted step, ns. Raises `ReplayError`."""
    middle = predicted.median_ns
    fast = clean.time(Fit(host=1.0 - HOST_ERROR)).median_ns
    slow = clean.time(Fit(host=1.0 + HOST_ERROR)).median_ns
    below = float(np.hypot(max(middle - fast, 0.0), DEVICE_ERROR * middle))
    above = float(np.hypot(max(slow - middle, 0.0), DEVICE_ERROR * middle))
    return middle - below, middle + above
