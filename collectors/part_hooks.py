"""Marks the parts of a training step from inside torch: data loaders, backward, optimizers.

The wrappers are in place only while a step whose parts are marked is open; in all other steps
torch's own functions stand where they always do. No hook is put on modules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from trace_analyzer.collectors.recorder import Recorder


class Swap:
    """Puts a wrapper in the place of `owner.name`, and back what was there.

    Where somebody has wrapped the wrapper meanwhile it stays below theirs; `wrap` makes wrappers
    that can bear that. What it returns is kept while what stands in the place is the same.
    """

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:  # noqa: ANN401
        self._owner, self._name, self._wrap = owner, name, wrap
        self._original: Any = None
        self._wrapper: Any = None

    def put_in(self) -> None:
        """Put the wrapper in."""
        present = getattr(self._owner, self._name)
        if present is self._wrapper:
            return
        if present is not self._original:
            self._original, self._wrapper = present, self._wrap(present)
        setattr(self._owner, self._name, self._wrapper)

    def take_out(self) -> None:
        """Take the wrapper out, unless somebody has wrapped it."""
        if self._wrapper is not None and getattr(self._owner, self._name) is self._wrapper:
            setattr(self._owner, self._name, self._original)


class PartHooks:
    """The hooks that mark parts; `watching` returns the recorder, or None where it is not to see.

    `before_optimizer` is a hook of torch's for all optimizers, and stays registered: another
    thread may be going through the list of them. It returns at once while `are_in` is false.
    """

    def __init__(self, watching: Callable[[], Recorder | None]) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self.are_in = False
        self._watching = watching
        self._inside = False  # a wrapped call; one inside it is no part of its own
        self._depth = 0  # of optimizers inside optimizers
        self._swaps = (
            Swap(torch.autograd, "backward", functools.partial(self._around, "backward")),
            Swap(_BaseDataLoaderIter, "__next__", functools.partial(self._around, "data")),
        )

    def put_in(self) -> None:
        """Mark parts from now on."""
        self.are_in, self._inside, self._depth = True, False, 0
        for swap in self._swaps:
            swap.put_in()

    def take_out(self) -> None:
        """Mark no parts from now on."""
        self.are_in = False
        for swap in self._swaps:
            swap.take_out()

    def before_optimizer(self, *_: Any) -> None:  # noqa: ANN401
        """Note that an optimizer's step begins."""
        if not self.are_in:
            return
        recorder = self._watching()
        if recorder is None:
            return
        self._depth += 1
        if self._depth == 1:
            recorder.mark("other", on_device=False)
            recorder.ranges.begin("optimizer")

    def after_optimizer(self, recorder: Recorder) -> bool:
        """Note that an optimizer's step ended; return whether it lay in no other one's."""
        outermost = self._depth <= 1
        self._depth = max(0, self._depth - 1)
        if outermost:
            recorder.ranges.end("optimizer")
        return outermost

    def _around(self, part: str, original: Any) -> Any:  # noqa: ANN401
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            recorder = self._enter(part) if self.are_in else None
            if recorder is None:
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                self._leave(recorder, part)

        return wrapper

    def _enter(self, part: str) -> Recorder | None:
        recorder = self._watching()
        if recorder is None or self._inside:
            return None
        self._inside = True
        recorder.ranges.end("forward")
        # What lies before the data is little: it needs no mark of its own on the device.
        if part == "data":
            recorder.mark("other", on_device=False)
        else:
            recorder.mark("forward")
        recorder.ranges.begin(part)
        return recorder

    def _leave(self, recorder: Recorder, part: str) -> None:
        self._inside = False
        recorder.ranges.end(part)
        recorder.mark(part)
        if part == "data":
            recorder.ranges.begin("forward")
