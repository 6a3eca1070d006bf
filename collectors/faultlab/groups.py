"""The groups of an occasion: started early, opened when needed, replaced when they fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trace_analyzer.collectors.faultlab.group import Group, GroupError
from trace_analyzer.collectors.faultlab.nsys import Nsys
from trace_analyzer.collectors.faultlab.workload import Workload

OPEN_TIMEOUT_S = 90.0
SINGLE_PROCESS = "FAULTLAB_SINGLE_PROCESS"
STARTED_AHEAD = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """Which processes: of a workload, with some environment, perhaps under nsys."""

    workload: Workload
    environment: tuple[tuple[str, str], ...] = ()
    captures: int = 0  # above 0: started under nsys, for that many captures
    serial: int = 0  # tells apart groups that are otherwise the same

    @property
    def name(self) -> str:
        """Short name for files."""
        parts = [self.workload.name, *(f"{key}-{value}" for key, value in self.environment)]
        if self.captures:
            parts.append(f"nsys{self.serial}")
        return "_".join(parts)


class Groups:
    """Starts, opens and ends groups."""

    def __init__(self, *, size: int, device: str, work: Path, nsys: Nsys | None) -> None:
        self._size = size
        self._device = device
        self._work = work
        self._nsys = nsys
        self._started: dict[GroupKey, Group] = {}
        self._opened: set[GroupKey] = set()
        self._leaving: list[Group] = []
        self.logs = work / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.captures = work / "captures"
        self.captures.mkdir(exist_ok=True)

    def start(self, keys: Iterable[GroupKey]) -> None:
        """Start processes that will be wanted, all at once, and wait until they have loaded torch."""
        for key in keys:
            if key not in self._started and len(self._started) < STARTED_AHEAD:
                self._started[key] = self._spawn(key)
        for key in list(self._started):
            with contextlib.suppress(GroupError):  # found again, and said, by `opened`
                self._started[key].connect()

    def opened(self, key: GroupKey) -> Group:
        """Return the group with its process group open. Raises `GroupError`."""
        if key not in self._started:
            self._started[key] = self._spawn(key)
        group = self._started[key]
        if key not in self._opened:
            group.ask(OPEN_TIMEOUT_S, do="open", device=self._device)
            self._opened.add(key)
        return group

    def forget(self, key: GroupKey) -> None:
        """Drop a group that has failed; the next `opened` starts another."""
        group = self._started.pop(key, None)
        self._opened.discard(key)
        if group is not None:
            group.kill()

    def leave(self, key: GroupKey) -> None:
        """Tell a group to end, without waiting."""
        group = self._started.pop(key, None)
        self._opened.discard(key)
        if group is not None:
            group.tell_exit()
            self._leaving.append(group)

    def close(self) -> None:
        """End all groups and wait for them."""
        for key in list(self._started):
            self.leave(key)
        for group in self._leaving:
            group.exit()

    def world_size(self, key: GroupKey) -> int:
        """Return how many ranks a group has."""
        alone = key.workload.parallel == "single" or dict(key.environment).get(SINGLE_PROCESS)
        return 1 if alone else self._size

    def _spawn(self, key: GroupKey) -> Group:
        prefix: list[str] = []
        if key.captures:
            assert self._nsys is not None
            prefix = self._nsys.prefix(self.captures / key.name, key.captures)
        environment = {**self._variables(), **dict(key.environment)}
        return Group(
            size=self.world_size(key),
            environment=environment,
            log=self.logs / f"{key.name}.log",
            prefix=prefix,
        )

    def _variables(self) -> Mapping[str, str]:
        return {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,NET",
            "NCCL_DEBUG_FILE": str(self.logs / "nccl_%p.log"),
            "TORCH_FR_BUFFER_SIZE": "600",
            "TOKENIZERS_PARALLELISM": "false",
            # Else the profiler's hooks stay in the process, and launches cost a third more from the
            # first recording on (10.4 and 14.2 us, H200, torch 2.11).
            "TEARDOWN_CUPTI": "1",
        }
