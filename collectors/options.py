"""What to record and when: the schedule of a recording, and how it travels into each rank."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import trace_analyzer
from trace_analyzer.bundle import Role, default_name

# Holds the options as JSON in the environment of the ranks that `collect` starts.
ENVIRONMENT_VARIABLE = "TRACE_ANALYZER_COLLECT"


LEAST_TIMED = 4  # steps before a window of which only the time is given


class Mode(StrEnum):
    """What runs in the ranks."""

    TORCH = "torch"  # torch.profiler
    NSYS = "nsys"  # ranges and a cudaProfilerApi window, inside a process that nsys started
    TIMER = "timer"  # step times alone


class Entry(StrEnum):
    """What happens before a segment's first step."""

    FOLLOW = "follow"  # nothing: the steps follow on
    MEET = "meet"  # ranks wait for the device and for each other
    START = "start"  # they meet, and the capture starts
    STOP = "stop"  # the capture stops, and they meet


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A row of steps of one phase (`timer.PHASES`)."""

    phase: str
    steps: int
    entry: Entry
    active: bool = False  # the steps that the capture is for


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Counts of steps, in the order in which they come.

    `skip` steps are left to start-up (allocator, autotuning, communicators). After every meeting
    of the ranks `settle` steps refill the device's queue before any is counted. `unprofiled`
    steps are timed before the capture and `after` of them after it; `warmup` steps run under the
    profiler before the `active` ones. `sample_seconds` sets the number of active steps from the
    time of an unprofiled step, under nsys from that of the steps before the window.
    """

    skip: int = 10
    settle: int = 3
    unprofiled: int = 30
    warmup: int = 3
    active: int = 10
    after: int = 30
    sample_seconds: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and value < (1 if field.name == "active" else 0):
                msg = f"{field.name} is {value}; it must be {1 if field.name == 'active' else 0} or more"
                raise ValueError(msg)
        if self.sample_seconds is not None and not self.unprofiled:
            raise ValueError("sample_seconds needs unprofiled steps to learn how long a step is")

    @property
    def total_steps(self) -> int:
        """Steps that a torch recording takes, without `sample_seconds`."""
        return sum(segment.steps for segment in self.segments(Mode.TORCH))

    def segments(self, mode: Mode) -> list[Segment]:
        """Return the segments of a recording; empty ones are left out.

        nsys slows a process that it started also while it does not collect, so nsys mode times
        no unprofiled steps: they come from a run in timer mode.
        """
        skip = Segment(phase="warmup", steps=self.skip, entry=Entry.FOLLOW)
        settle = Segment(phase="warmup", steps=self.settle, entry=Entry.MEET)
        if mode is Mode.TIMER:
            count = self.unprofiled + self.after
            return _filled(
                [skip, settle, Segment(phase="unprofiled", steps=count, entry=Entry.FOLLOW)]
            )
        capture = [
            Segment(phase="warmup", steps=self.warmup, entry=Entry.START),
            Segment(phase="profiled", steps=self.active, entry=Entry.FOLLOW, active=True),
        ]
        if not self.warmup:
            capture = [dataclasses.replace(capture[1], entry=Entry.START)]
        stop = Segment(phase="warmup", steps=max(self.settle, 1), entry=Entry.STOP)
        if mode is Mode.NSYS:
            # A window by time needs steps to tell how long one is; under nsys any will do.
            timed = dataclasses.replace(settle, steps=max(self.settle, LEAST_TIMED))
            first = [] if self.sample_seconds is None else [timed]
            return _filled([skip, *first, *capture, stop])
        before = Segment(phase="unprofiled", steps=self.unprofiled, entry=Entry.FOLLOW)
        after = Segment(phase="unprofiled", steps=self.after, entry=Entry.FOLLOW)
        return _filled([skip, settle, before, *capture, stop, after])


def _filled(segments: list[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that a rank must know to record itself."""

    folder: str  # the bundle, absolute
    mode: Mode = Mode.TORCH
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    record_shapes: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    calibrate: bool = True
    reset_peak: bool = True
    stop_when_done: bool = False
    host_facts: str = ""  # file with what is the same for all ranks of a host
    package_root: str = ""  # where trace_analyzer can be imported from

    @property
    def path(self) -> Path:
        """The bundle's folder."""
        return Path(self.folder)

    def timer_name(self, rank: int) -> str:
        """Return the name of a rank's step file.

        Steps under nsys get a file of their own beside the one of the timing run.
        """
        name = default_name(Role.TIMER, rank)
        return name.replace(".jsonl", "_nsys.jsonl") if self.mode is Mode.NSYS else name

    def to_json(self) -> str:
        """Return the options as one line."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Read what `to_json` wrote. Raises `ValueError` for anything else."""
        try:
            values = dict(json.loads(text))
            values["mode"] = Mode(values["mode"])
            values["schedule"] = Schedule(**values["schedule"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the options of a recording: {error}") from error


def package_root() -> str:
    """Return the folder from which `trace_analyzer` can be imported."""
    return str(Path(trace_analyzer.__file__).resolve().parent.parent)
