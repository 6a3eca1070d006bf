"""Record a Hugging Face `Trainer` run.

    from trace_analyzer.collectors.hf_callback import RecordCallback

    Trainer(..., callbacks=[RecordCallback(out="bundle")])

A step is an optimizer step, also with gradient accumulation. Importing this module imports
transformers.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trace_analyzer.collectors.recorder import Recorder
from trace_analyzer.collectors.session import record


class RecordCallback(TrainerCallback):  # type: ignore[misc]
    """Opens a recording when training begins and closes it when it ends, or the process does.

    The arguments are those of `trace_analyzer.collectors.record`.
    """

    def __init__(self, out: Path | str = "bundle", **options: Any) -> None:  # noqa: ANN401
        self._out = out
        self._options = options
        self._open = ExitStack()
        self.recorder: Recorder | None = None

    def on_train_begin(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Begin the first step."""
        if self.recorder is None:
            self.recorder = self._open.enter_context(record(self._out, **self._options))
            atexit.register(self.close)  # training that fails calls no callback

    def on_step_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """End a step and begin the next."""
        if self.recorder is not None:
            self.recorder.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Close the recording."""
        self.close()

    def close(self) -> None:
        """Close the recording; may be called twice."""
        atexit.unregister(self.close)
        self._open.close()
        self.recorder = None
