"""Record a Lightning `Trainer` run.

    from trace_analyzer.collectors.lightning_callback import RecordCallback

    Trainer(..., callbacks=[RecordCallback(out="bundle")])

A step is an optimizer step, also with gradient accumulation. Importing this module imports
lightning, or pytorch_lightning where only that is installed.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trace_analyzer.collectors.recorder import Recorder
from trace_analyzer.collectors.session import record

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback


class RecordCallback(Callback):  # type: ignore[misc]
    """Opens a recording when training starts and closes it when it ends or fails.

    The arguments are those of `trace_analyzer.collectors.record`.
    """

    def __init__(self, out: Path | str = "bundle", **options: Any) -> None:  # noqa: ANN401
        self._out = out
        self._options = options
        self._open = ExitStack()
        self._steps_done = 0
        self.recorder: Recorder | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Begin the first step."""
        if self.recorder is None:
            self._steps_done = trainer.global_step
            self.recorder = self._open.enter_context(record(self._out, **self._options))

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:  # noqa: ANN401
        """End a step and begin the next, where the batch completed an optimizer step."""
        if self.recorder is not None and trainer.global_step != self._steps_done:
            self._steps_done = trainer.global_step
            self.recorder.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Close the recording."""
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401, ARG002
        """Close the recording: what there is is kept."""
        self.close()

    def close(self) -> None:
        """Close the recording; may be called twice."""
        self._open.close()
        self.recorder = None
