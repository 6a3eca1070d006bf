"""Records an unmodified training script from inside its ranks.

`install()` runs in every Python process of a `collect` command once that has imported torch
(`bootstrap/sitecustomize.py`). It costs nothing until an optimizer steps; from then on steps end
where `boundaries` says, and a `Recorder` goes through its schedule. When it is through, every
hook is taken out again.

Parts of a step: `data` is the wait in a DataLoader's `__next__`; `forward` lasts from there (or
from the step's begin) to the call of `backward()`, so it holds the loss and whatever the script
does in between; `backward` is that call, `optimizer` the optimizer's. Everything else is `other`, on the host; on
the device it belongs to the part that follows, which saves marks.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from trace_analyzer.collectors import session, trail
from trace_analyzer.collectors.boundaries import AnchorFinder
from trace_analyzer.collectors.options import ENVIRONMENT_VARIABLE, Options
from trace_analyzer.collectors.recorder import Recorder

_installed: Observer | None = None


class Observer:
    """Watches optimizers, data loaders and backward passes of the training thread."""

    def __init__(
        self, options: Options, open_recorder: Callable[[Options], Recorder] = session.open_rank
    ) -> None:
        self._open_recorder = open_recorder
        # The steps that are left alone are those in which the boundary is learnt.
        self._options = dataclasses.replace(
            options, schedule=dataclasses.replace(options.schedule, skip=0)
        )
        self._finder = AnchorFinder(rounds=options.schedule.skip)
        self._recorder: Recorder | None = None
        self._thread = 0
        self._seen = False  # an optimizer
        self._passive = False
        self._depth = 0  # of optimizers inside optimizers
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Put the hooks in."""
        own = weakref.ref(self)  # a registration at fork cannot be taken back

        def in_child() -> None:
            observer = own()
            if observer is not None and observer._recorder is not None:  # noqa: SLF001  # its own
                observer._passive = True  # noqa: SLF001  # the parent records

        os.register_at_fork(after_in_child=in_child)
        handles = (
            register_optimizer_step_pre_hook(self._before_optimizer),
            register_optimizer_step_post_hook(self._after_optimizer),
        )
        self._undo.extend(handle.remove for handle in handles)
        self._wrap_backward()
        self._wrap_data_loader()
        self._wrap_grad_scaler()

    def remove(self) -> None:
        """Take the hooks out."""
        self._passive = True
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _before_optimizer(self, *_: Any) -> None:  # noqa: ANN401
        recorder = self._watching()
        if recorder is None:
            return
        self._depth += 1
        if self._depth == 1:
            recorder.mark("other", on_device=False)
            recorder.ranges.begin("optimizer")

    def _after_optimizer(self, optimizer: Optimizer, *_: Any) -> None:  # noqa: ANN401
        if self._passive:
            return
        recorder = self._watching()
        if self._recorder is not None and recorder is None:
            return  # another thread
        ends_step = self._finder.ends_step(id(optimizer))
        if recorder is None:
            if not self._seen:
                self._seen = True
                trail.leave(trail.Stage.OPTIMIZER)
            if ends_step:
                self._begin()
            return
        outermost = self._depth <= 1
        self._depth = max(0, self._depth - 1)
        if outermost:
            recorder.ranges.end("optimizer")
        if ends_step:
            recorder.step(ended="optimizer")
            if recorder.done:
                self._ended(recorder)
        elif outermost:
            recorder.mark("optimizer")

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._recorder = self._open_recorder(self._options)
        except Exception as error:  # noqa: BLE001  # training must not end because of its observer
            print(f"trace-analyzer: this process is not recorded: {error}", file=sys.stderr)  # noqa: T201
            trail.leave(trail.Stage.REFUSED)
            self.remove()
            return
        atexit.register(self._recorder.close)
        self._catch_termination(self._recorder)
        self._recorder.begin()

    def _ended(self, recorder: Recorder) -> None:
        self.remove()
        if self._options.stop_when_done and recorder.complete:
            print("trace-analyzer: recording complete, training is stopped", file=sys.stderr)  # noqa: T201
            raise SystemExit(0)

    def _catch_termination(self, recorder: Recorder) -> None:
        """Keep what is recorded when a launcher ends this rank because another one failed."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def on_termination(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            signal.signal(number, signal.SIG_DFL)
            recorder.abandon("the launcher ended this process")
            os.kill(os.getpid(), number)

        def restore() -> None:
            if signal.getsignal(signal.SIGTERM) is on_termination:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

        signal.signal(signal.SIGTERM, on_termination)
        self._undo.append(restore)

    def _watching(self) -> Recorder | None:
        recorder = self._recorder
        if (
            recorder is None
            or self._passive
            or recorder.done
            or threading.get_ident() != self._thread
            or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
        ):
            return None
        return recorder

    def _enter(self, before: str, part: str) -> Recorder | None:
        recorder = self._watching()
        if recorder is not None:
            recorder.ranges.end("forward")
            # What lies before the data is little: it needs no mark of its own on the device.
            recorder.mark(before, on_device=before != "other")
            recorder.ranges.begin(part)
        return recorder

    def _leave(self, recorder: Recorder, part: str) -> None:
        recorder.ranges.end(part)
        recorder.mark(part)
        if part == "data":
            recorder.ranges.begin("forward")

    def _wrap_backward(self) -> None:
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            recorder = self._enter("forward", "backward")
            try:
                original(*args, **kwargs)
            finally:
                if recorder is not None:
                    self._leave(recorder, "backward")

        self._replace(torch.autograd, "backward", original, backward)

    def _wrap_data_loader(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        original = _BaseDataLoaderIter.__next__

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: ANN401, N807
            recorder = self._enter("other", "data")
            try:
                return original(iterator)
            finally:
                if recorder is not None:
                    self._leave(recorder, "data")

        self._replace(_BaseDataLoaderIter, "__next__", original, __next__)

    def _wrap_grad_scaler(self) -> None:
        """A scaler that found infinities skips the optimizer, but the step ends all the same."""
        from torch.amp.grad_scaler import GradScaler

        original = GradScaler.step

        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            stepped: list[object] = []
            handle = optimizer.register_step_post_hook(lambda *_: stepped.append(True))
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                handle.remove()
            if not stepped:
                self._before_optimizer()
                self._after_optimizer(optimizer)
            return result

        self._replace(GradScaler, "step", original, step)

    def _replace(self, owner: Any, name: str, original: Any, wrapper: Any) -> None:  # noqa: ANN401
        def undo() -> None:
            if getattr(owner, name) is wrapper:  # else somebody has wrapped the wrapper
                setattr(owner, name, original)

        setattr(owner, name, wrapper)
        self._undo.append(undo)


def install() -> None:
    """Watch this process if a `collect` command started it."""
    global _installed  # noqa: PLW0603  # one observer a process
    text = os.environ.get(ENVIRONMENT_VARIABLE)
    if text is None or _installed is not None:
        return
    trail.leave(trail.Stage.TORCH)
    _installed = Observer(Options.from_json(text))
    _installed.install()


def stand_down() -> None:
    """Take the hooks out: the script says itself where its steps are."""
    if _installed is not None:
        _installed.remove()
