"""Flight Recorder dumps made by hand, in the layout of dump version 2.10."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trace_analyzer.nccl_facts import FlightRecording
from trace_analyzer.readers.flight_recorder import read

BASE_NS = 1_790_000_000_000_000_000


@dataclass
class Dump:
    """One rank's dump; operations are numbered as torch numbers them."""

    rank: int = 0
    groups: Mapping[str, Sequence[int] | None] = field(default_factory=lambda: {"0": (0, 1)})
    status: bool = True
    entries: list[dict[str, Any]] = field(default_factory=list)
    _collective: dict[str, int] = field(default_factory=dict)
    _p2p: dict[str, int] = field(default_factory=dict)
    _recorded: int = 0

    def collective(
        self,
        title: str = "nccl:all_reduce",
        size: int = 8,
        *,
        group: str = "0",
        state: str = "completed",
        counts: bool = True,
        **changes: Any,
    ) -> Dump:
        """Add a collective; `counts=False` issues it as one with the one before."""
        self._collective[group] = self._collective.get(group, 0) + counts
        return self._add(title, size, group, state, is_p2p=False, **changes)

    def peer(
        self,
        title: str,
        size: int = 8,
        *,
        group: str = "0",
        state: str = "completed",
        counts: bool = True,
        **changes: Any,
    ) -> Dump:
        """Add a send or receive."""
        self._p2p[group] = self._p2p.get(group, 0) + counts
        return self._add(title, size, group, state, is_p2p=True, **changes)

    def skip(self, group: str = "0") -> Dump:
        """Count a collective that the dump does not hold any more."""
        self._collective[group] = self._collective.get(group, 0) + 1
        self._recorded += 1
        return self

    def _add(
        self, title: str, size: int, group: str, state: str, *, is_p2p: bool, **changes: Any
    ) -> Dump:
        self._recorded += 1
        created = BASE_NS + self._recorded * 1_000
        done = state == "completed"
        self.entries.append(
            {
                "record_id": self._recorded - 1,
                "pg_id": int(group),
                "process_group": (group, f"group {group}"),
                "collective_seq_id": self._collective.get(group, 0),
                "p2p_seq_id": self._p2p.get(group, 0),
                "op_id": self._recorded,
                "profiling_name": title,
                "time_created_ns": created,
                "input_sizes": [[size]],
                "input_dtypes": ["Float"],
                "output_sizes": [[size]],
                "output_dtypes": ["Float"],
                "state": state,
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": created + 500 if done else None,
                "retired": done,
                "timeout_ms": 600000,
                "is_p2p": is_p2p,
                "frames": [],
            }
            | changes
        )
        return self

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "version": "2.10",
            "comm_lib_version": "2.28.9",
            "pg_config": {
                name: {"name": name, "desc": f"group {name}", "ranks": str(list(ranks))}
                for name, ranks in self.groups.items()
                if ranks is not None
            },
            "entries": self.entries,
        }
        if self.status:
            document["pg_status"] = {
                group: {
                    "last_enqueued_collective": last,
                    "last_started_collective": -1,
                    "last_completed_collective": last,
                }
                for group, last in self._collective.items()
            } or {"9": {}}
        return document

    def write(self, path: Path) -> Path:
        path.write_bytes(pickle.dumps(self.document(), protocol=2))
        return path

    def recording(self, folder: Path) -> FlightRecording:
        """Return the dump as the reader gives it."""
        return read(self.write(folder / f"flight_rank{self.rank}.pkl"), self.rank)


def recordings(folder: Path, *dumps: Dump) -> list[FlightRecording]:
    return [dump.recording(folder) for dump in dumps]
