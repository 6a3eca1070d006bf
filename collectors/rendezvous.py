"""Where ranks wait for each other, and agree, without touching the GPU.

A barrier of the process group would run a collective: it may build a communicator that training
never uses, and it appears in the trace. The group's key-value store gives the same at the host.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import distributed

POLL_SECONDS = 0.001
# A rank that ended early, or steps another number of times, never comes.
TIMEOUT_SECONDS = 120.0


class Rendezvous:
    """Meets the other ranks through the store of the default process group.

    Without a process group, or alone in it, every call returns at once. `problem` says what went
    wrong, once something did; later calls then return at once too.
    """

    def __init__(self, name: str = "trace-analyzer") -> None:
        self.problem = ""
        self._name = name
        self._meetings = 0

    def offer(self, key: str, text: str) -> None:
        """Let rank 0 leave a text for the others, who may take it after the next meeting."""
        store = self._store()
        if store is None or distributed.get_rank() != 0:
            return
        try:
            store.set(f"{self._name}/{key}", text)
        except RuntimeError as error:
            self.problem = f"the ranks' store does not answer: {str(error).splitlines()[0]}"

    def take(self, key: str) -> str:
        """Return what rank 0 offered before a meeting to which all came; "" where alone."""
        store = self._store()
        if store is None:
            return ""
        try:
            return bytes(store.get(f"{self._name}/{key}")).decode()
        except RuntimeError as error:
            self.problem = f"the ranks' store does not answer: {str(error).splitlines()[0]}"
            return ""

    def meet(self, *, timeout_s: float = TIMEOUT_SECONDS) -> bool:
        """Wait for the device and then for all ranks; return whether all came."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        store = self._store()
        if store is None:
            return not self.problem
        self._meetings += 1
        key = f"{self._name}/meeting/{self._meetings}"
        world_size = distributed.get_world_size()
        deadline = time.monotonic() + timeout_s
        try:
            arrived = store.add(key, 1)
            # add(key, 0) reads without blocking the store's client for the watchdog threads,
            # which wait(key) would do.
            while arrived < world_size:
                if time.monotonic() > deadline:
                    self.problem = (
                        f"{world_size - arrived} of {world_size} ranks did not reach the same "
                        f"step within {timeout_s:.0f} s; ranks no longer wait for each other"
                    )
                    return False
                time.sleep(POLL_SECONDS)
                arrived = store.add(key, 0)
        except RuntimeError as error:  # torch.distributed raises its store errors as such
            self.problem = f"the ranks' store does not answer: {str(error).splitlines()[0]}"
            return False
        return True

    def share(self, value: int) -> int:
        """Return rank 0's value on every rank; the own one where ranks cannot agree."""
        store = self._store()
        if store is None:
            return value
        key = f"{self._name}/shared/{self._meetings}"
        try:
            if distributed.get_rank() == 0:
                store.set(key, str(value))
            return int(store.get(key))
        except RuntimeError as error:
            self.problem = f"the ranks' store does not answer: {str(error).splitlines()[0]}"
            return value

    def _store(self) -> Any:  # noqa: ANN401
        if self.problem or not distributed.is_available() or not distributed.is_initialized():
            return None
        if distributed.get_world_size() == 1:
            return None
        try:
            return distributed.distributed_c10d._get_default_store()  # noqa: SLF001
        except (AttributeError, RuntimeError) as error:
            self.problem = f"no store to meet the other ranks: {error}"
            return None
