"""Programs that run training and record it. The only place that imports torch.

(The readers of the files they leave are in `trace_analyzer.readers`.)

    with trace_analyzer.collectors.record(out="bundle") as rec:
        for batch in loader:
            ...
            rec.step()

Names are imported when they are first used, so that the parts that need no torch start fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trace_analyzer.collectors.recorder import Recorder
    from trace_analyzer.collectors.session import record
    from trace_analyzer.collectors.timer import StepTimer

_HOMES = {
    "Recorder": "trace_analyzer.collectors.recorder",
    "StepTimer": "trace_analyzer.collectors.timer",
    "record": "trace_analyzer.collectors.session",
}

__all__ = ["Recorder", "StepTimer", "record"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        module = importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        msg = f"{__name__}.{name} needs torch: pip install 'trace-analyzer[collect]'"
        raise ModuleNotFoundError(msg, name="torch") from None
    return getattr(module, name)
