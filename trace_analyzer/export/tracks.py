"""Processes and threads of a Chrome trace: ids that are unique in the file, with their names.

Trace viewers tell tracks apart by process and thread id, some of them by the latter alone, while
ranks of several hosts share both. So ids count up; what they stand for is in the names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trace_analyzer.export.text_rows import quoted

# Far from what could be taken for a GPU's number by readers that look for it in the process id.
_FIRST_ID = 10_000


@dataclass(slots=True)
class Tracks:
    """Ids in order of use; `metadata` are the events that name them, without commas."""

    metadata: list[str] = field(default_factory=list)
    _next: int = _FIRST_ID

    def process(self, name: str) -> int:
        """Return the id of a new process."""
        pid = self._new()
        self._name("process", pid, pid, name)
        return pid

    def thread(self, pid: int, name: str) -> int:
        """Return the id of a new thread."""
        tid = self._new()
        self._name("thread", pid, tid, name)
        return tid

    def place(self, pid: int, name: str) -> str:
        """Return a new thread as the fields of an event."""
        return place(pid, self.thread(pid, name))

    def take_metadata(self) -> list[str]:
        """Return the events that name what is new since the last call."""
        taken, self.metadata = self.metadata, []
        return taken

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def _name(self, kind: str, pid: int, tid: int, name: str) -> None:
        for event, value in (
            (f"{kind}_name", f'"name":{quoted(name)}'),
            (f"{kind}_sort_index", f'"sort_index":{tid}'),
        ):
            self.metadata.append(
                f'{{"ph":"M","name":"{event}",{place(pid, tid)},"args":{{{value}}}}}'
            )


def place(pid: int, tid: int) -> str:
    """Return a track as the fields of an event."""
    return f'"pid":{pid},"tid":{tid}'
