"""What a reader of torch.profiler traces found wrong, counted by kind and told once a kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from trace_analyzer.model import DataWarning, Severity

_SAMPLE_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of anomaly: its code, what to say of `{n}` of them, and what follows from it."""

    code: str
    severity: Severity
    message: str
    effect: str


class Anomaly(Enum):
    """Everything that the reader mends, drops or cannot know."""

    TRUNCATED = Kind(
        "TRC001",
        Severity.ERROR,
        "the recording ends in the middle of its events; complete events kept: {kept}",
        "what was recorded last is missing, so the last step is not complete",
    )
    DAMAGED_COMPRESSION = Kind(
        "TRC001",
        Severity.ERROR,
        "the compressed data are damaged; what could be decompressed was kept",
        "events may be missing; copy the file again if its source is intact",
    )
    LOST_HEADER = Kind(
        "TRC001",
        Severity.WARNING,
        "the file ends after its events, before its closing bracket",
        "header values that stood after the events are missing; all events were kept",
    )
    ZERO_TIME = Kind(
        "TRC007",
        Severity.WARNING,
        "GPU operations with time stamp 0 and duration 0: {n}",
        "they were dropped: the profiler lost their times",
    )
    BAD_DURATION = Kind(
        "TRC007",
        Severity.WARNING,
        "events with a negative, missing or absurd duration: {n}",
        "they count with their start and zero duration",
    )
    FAR_TIME = Kind(
        "TRC007",
        Severity.WARNING,
        "events more than a day away from the rest of the recording: {n}",
        "they were dropped",
    )
    UNREADABLE = Kind(
        "TRC009",
        Severity.WARNING,
        "pieces of the event list that are not readable as events: {n}",
        "they were left out; all others were kept",
    )
    NOT_JSON = Kind(
        "TRC009",
        Severity.WARNING,
        "values that are not JSON, such as NaN, Infinity or N/A: {n}",
        "these values are missing; their events were kept",
    )
    INVALID_UTF8 = Kind(
        "TRC009",
        Severity.WARNING,
        "events with bytes that are not UTF-8: {n}",
        "replacement characters stand for them",
    )
    CONTROL_CHARACTER = Kind(
        "TRC009",
        Severity.WARNING,
        "texts with raw line feeds or other control characters: {n}",
        "they were kept as part of the text",
    )
    BAD_ESCAPE = Kind(
        "TRC009",
        Severity.WARNING,
        "texts with escapes that JSON does not know, or half a surrogate pair: {n}",
        "the text was kept as it stands, with replacement characters for surrogates",
    )
    TEXT_NUMBER = Kind(
        "TRC009",
        Severity.WARNING,
        "time stamps and durations that are written as text: {n}",
        "they were converted",
    )
    UNUSABLE = Kind(
        "TRC009",
        Severity.WARNING,
        "values of a type or size that their field cannot hold: {n}",
        "these values are missing; their events were kept",
    )
    NO_NAME = Kind(
        "TRC009",
        Severity.WARNING,
        "events without a name: {n}",
        'their time counts under the name "unknown"',
    )
    NO_TIME = Kind(
        "TRC009",
        Severity.WARNING,
        "events without a usable time stamp: {n}",
        "they were dropped",
    )
    DUPLICATE = Kind(
        "TRC009",
        Severity.WARNING,
        "GPU operations that are exact copies of others: {n}",
        "they were dropped, so that counts and sums hold each operation once",
    )
    STREAM_FROM_THREAD = Kind(
        "TRC009",
        Severity.WARNING,
        "GPU operations that do not state their stream: {n}",
        "the stream was taken from the thread id, which the profiler sets to it",
    )
    NO_STREAM = Kind(
        "TRC009",
        Severity.WARNING,
        "GPU operations without a stream: {n}",
        "unions are exact; analyses by stream do not apply to them",
    )
    NO_CORRELATION = Kind(
        "TRC009",
        Severity.WARNING,
        "no GPU operation has a correlation id (operations: {n})",
        "times on the GPU are exact; analyses of launches do not apply",
    )
    UNKNOWN_CATEGORY = Kind(
        "TRC009",
        Severity.NOTE,
        "events of a category that is not known: {n}",
        "they were left out",
    )
    TRAILING = Kind(
        "TRC009",
        Severity.NOTE,
        "bytes after the end of the trace, or between its parts: {n}",
        "they were ignored",
    )
    UNIT = Kind(
        "TRC012",
        Severity.WARNING,
        "time stamps are in nanoseconds, where this format has microseconds",
        "they were read as nanoseconds",
    )
    NO_GPU = Kind(
        "TRC004",
        Severity.ERROR,
        "the file holds no GPU operation",
        "host events only: nothing can be said about the GPU; record with "
        "ProfilerActivity.CUDA to change that",
    )
    NO_GPU_YET = Kind(
        "TRC004",
        Severity.ERROR,
        "the file is cut off before its first GPU operation",
        "nothing can be said about the GPU",
    )


@dataclass(slots=True)
class Anomalies:
    """Counts and first sample of every anomaly met in one file."""

    counts: Counter[Anomaly] = field(default_factory=Counter)
    samples: dict[Anomaly, str] = field(default_factory=dict)

    def note(self, kind: Anomaly, sample: object = None, count: int = 1) -> None:
        """Count an anomaly; the first sample of a kind is kept."""
        if count <= 0:
            return
        self.counts[kind] += count
        if sample is not None and kind not in self.samples:
            self.samples[kind] = _printable(sample)

    def merge(self, other: Anomalies) -> None:
        """Add what another part of the file met."""
        self.counts.update(other.counts)
        for kind, sample in other.samples.items():
            self.samples.setdefault(kind, sample)

    def warnings(self, kept: int) -> tuple[DataWarning, ...]:
        """Return one warning a kind, in the order of `Anomaly`; `kept` is the number of events read."""
        return tuple(
            self._warning(kind, self.counts[kind], kept) for kind in Anomaly if self.counts[kind]
        )

    def _warning(self, kind: Anomaly, count: int, kept: int) -> DataWarning:
        told = kind.value
        message = told.message.format(n=count, kept=kept)
        sample = self.samples.get(kind)
        return DataWarning(
            code=told.code,
            severity=told.severity,
            message=message if sample is None else f"{message}; first: {sample}",
            effect=told.effect,
            count=count,
        )


def _printable(sample: object) -> str:
    text = sample.decode("utf-8", "replace") if isinstance(sample, bytes) else str(sample)
    text = " ".join(text.split())
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return text if len(text) <= _SAMPLE_CHARACTERS else text[: _SAMPLE_CHARACTERS - 1] + "…"
