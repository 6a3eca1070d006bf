"""Records an unmodified training script from inside its ranks.

`install()` runs in every Python process of a `collect` command once that has imported torch
(`bootstrap/sitecustomize.py`). It costs nothing until an optimizer steps; from then on steps end
where `boundaries` says, and a `Recorder` goes through its schedule. When it is through, every
hook is taken out again.

Parts of a step: `data` is the wait in a DataLoader's `__next__`; `forward` lasts from there (or
from the step's begin) to the call of `backward()`, so it holds the loss and whatever the script
does in between; `backward` is that call, `optimizer` the optimizer's. Everything else is `other`,
on the host; on the device it belongs to the part that follows, which saves marks.

Every step is timed by the hook after the optimizer. Parts are marked in some steps
(`part_sampling`) and in all steps of a trace; only in those are their hooks put in.
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
from torch.utils.hooks import RemovableHandle

from trace_analyzer.collectors import session, trail
from trace_analyzer.collectors.boundaries import AnchorFinder
from trace_analyzer.collectors.options import ENVIRONMENT_VARIABLE, Options
from trace_analyzer.collectors.part_hooks import PartHooks, Swap
from trace_analyzer.collectors.part_sampling import HOOKED_PARTS_EVERY
from trace_analyzer.collectors.recorder import Recorder

_installed: Observer | None = None


def _open_rank(options: Options) -> Recorder:
    return session.open_rank(options, parts_every=HOOKED_PARTS_EVERY)


class Observer:
    """Watches optimizers, data loaders and backward passes of the training thread."""

    def __init__(
        self, options: Options, open_recorder: Callable[[Options], Recorder] = _open_rank
    ) -> None:
        self._open_recorder = open_recorder
        # The steps that are left alone are those in which the boundary is learnt.
        self._options = dataclasses.replace(
            options, schedule=dataclasses.replace(options.schedule, skip=0)
        )
        self._finder = AnchorFinder(rounds=options.schedule.skip)
        self._recorder: Recorder | None = None
        self._anchor = 0  # whose step ends a training step, by id
        self._thread = 0
        self._seen = False  # an optimizer
        self._passive = False
        self._parts = PartHooks(self._watching)
        self._captures: Callable[[], bool] | None = None  # whether a CUDA graph is being captured
        self._after: RemovableHandle | None = None  # the hook that finds the step's end
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        """Put the hooks in; those of parts wait for the recording."""
        own = weakref.ref(self)  # a registration at fork cannot be taken back

        def in_child() -> None:
            observer = own()
            if observer is not None and observer._recorder is not None:  # noqa: SLF001  # its own
                observer._passive, observer._anchor = True, 0  # noqa: SLF001  # the parent records

        os.register_at_fork(after_in_child=in_child)
        before = register_optimizer_step_pre_hook(self._parts.before_optimizer)
        self._undo.append(before.remove)
        self._after = register_optimizer_step_post_hook(self._after_optimizer)
        self._wrap_grad_scaler()

    def remove(self, *, inside_hook: bool = False) -> None:
        """Take the hooks out.

        `inside_hook`: called by the hook after the optimizer. torch goes through the list of those
        hooks then, and would fail in the script's own ones that follow if the list got shorter.
        """
        self._passive, self._anchor = True, 0
        self._parts.take_out()
        if self._after is not None and not (inside_hook and _is_followed(self._after)):
            self._after.remove()
            self._after = None
        for undo in self._undo:
            undo()
        self._undo.clear()

    def _after_optimizer(self, optimizer: Optimizer, *_: Any) -> None:  # noqa: ANN401
        # This runs in every step, where the caches hold the training's code and each call costs
        # about a microsecond: the way of a step without parts is written out.
        recorder = self._recorder
        if recorder is None or self._parts.are_in:
            self._after_watched(optimizer)
        elif (
            id(optimizer) == self._anchor
            and threading.get_ident() == self._thread
            and (self._captures is None or not self._captures())
        ):
            recorder.step()
            if recorder.marks_parts or recorder.done:
                self._stepped(recorder)

    def _after_watched(self, optimizer: Optimizer) -> None:
        """Learn where steps end; or mark the optimizer's part, and the step's end if it is one."""
        if self._recorder is None:
            if not self._passive:
                self._learn(optimizer)
            return
        recorder = self._watching()
        if recorder is None:
            return
        outermost = self._parts.after_optimizer(recorder)
        if id(optimizer) == self._anchor:
            recorder.step(ended="optimizer")
            self._stepped(recorder)
        elif outermost:
            recorder.mark("optimizer")

    def _stepped(self, recorder: Recorder) -> None:
        if recorder.done:
            self._ended(recorder)
        elif recorder.marks_parts is not self._parts.are_in:
            if recorder.marks_parts:
                self._parts.put_in()
            else:
                self._parts.take_out()

    def _learn(self, optimizer: Optimizer) -> None:
        if not self._seen:
            self._seen = True
            trail.leave(trail.Stage.OPTIMIZER)
        if self._finder.ends_step(id(optimizer)):
            self._begin(optimizer)

    def _begin(self, anchor: Optimizer) -> None:
        self._anchor, self._thread = id(anchor), threading.get_ident()
        try:
            self._recorder = self._open_recorder(self._options)
        except Exception as error:  # noqa: BLE001  # training must not end because of its observer
            print(f"trace-analyzer: this process is not recorded: {error}", file=sys.stderr)  # noqa: T201
            trail.leave(trail.Stage.REFUSED)
            self.remove(inside_hook=True)
            return
        atexit.register(self._recorder.close)
        self._catch_termination(self._recorder)
        # The timer takes its clock now, and CUDA's only where CUDA is in use by now.
        if torch.cuda.is_initialized():
            self._captures = torch.cuda.is_current_stream_capturing
        self._recorder.begin()
        if self._recorder.marks_parts:
            self._parts.put_in()

    def _ended(self, recorder: Recorder) -> None:
        self.remove(inside_hook=True)
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
            or (self._captures is not None and self._captures())
        ):
            return None
        return recorder

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
                self._parts.before_optimizer()
                self._after_optimizer(optimizer)
            return result

        swap = Swap(GradScaler, "step", lambda _: step)
        swap.put_in()
        self._undo.append(swap.take_out)


def _is_followed(handle: RemovableHandle) -> bool:
    hooks = handle.hooks_dict_ref()
    return hooks is not None and next(reversed(hooks), handle.id) != handle.id


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
