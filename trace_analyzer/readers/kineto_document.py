"""The document of a trace: an object with a list of events somewhere in it, or the bare list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_chunks import EventList
from trace_analyzer.readers.kineto_events import Event
from trace_analyzer.readers.kineto_text import (
    BLANK,
    CLOSE_BRACE,
    GAP,
    OPEN_BRACE,
    OPEN_BRACKET,
    QUOTE,
    Text,
)

EVENTS_KEY: Final = "traceEvents"

_COLON = re.compile(rb"[\s\0:]*+")
_EVENTS_START = re.compile(rb'"traceEvents"\s*+:\s*+\[')
_EVENTS_START_BYTES = 64  # what a match of it is shorter than, but for absurd white space


class NoTraceError(Exception):
    """The text is not a trace; the argument says what it is instead."""


@dataclass(slots=True)
class Document:
    """What stands around the events."""

    header: dict[str, bytes] = field(default_factory=dict)  # key → JSON text of the value
    has_events: bool = False
    truncated: bool = False  # the list of events does not end


def read_document(
    blocks: Iterator[bytes],
    emit: Callable[[list[Event], bytes], None],
    anomalies: Anomalies,
    document: Document | None = None,
) -> Document:
    """Read a whole file: hand its events to `emit`, in batches, and return the rest.

    `emit` gets a batch of events and the JSON list that they were decoded from. `document`, where
    given, is what is filled and returned, so that `emit` can look at the header before it. Raises
    `NoTraceError` where the text is neither a JSON object nor a list.
    """
    return _DocumentReader(Text(blocks), emit, anomalies, document or Document()).read()


class _DocumentReader:
    def __init__(
        self,
        text: Text,
        emit: Callable[[list[Event], bytes], None],
        anomalies: Anomalies,
        document: Document,
    ) -> None:
        self._text = text
        self._emit = emit
        self._anomalies = anomalies
        self._document = document

    def read(self) -> Document:
        self._text.skip_mark()
        first = self._text.skip(BLANK)
        if first < 0:
            raise NoTraceError("the file is empty")
        if first == OPEN_BRACKET:
            self._events()
        elif first == OPEN_BRACE:
            self._text.at += 1
            self._members()
        else:
            raise NoTraceError("neither a JSON object nor a list of events")
        # Read to the end, so that checksums are verified.
        left = sum(len(block.strip(b" \t\r\n\0")) for block in self._text.rest())
        self._anomalies.note(Anomaly.TRAILING, count=left)
        return self._document

    def _events(self) -> None:
        self._text.at += 1
        self._document.has_events = True
        events = EventList(self._text, self._emit, self._anomalies)
        self._document.truncated = not events.read()

    def _members(self) -> None:
        """Read keys and values up to the end of the object, or as far as that is possible."""
        while not self._document.truncated:
            letter = self._text.skip(GAP)
            if letter == CLOSE_BRACE:
                self._text.at += 1
                return
            if letter >= 0 and letter == QUOTE and self._member():
                continue
            if self._document.has_events:
                if self._text.ended and not self._document.truncated:
                    self._anomalies.note(Anomaly.LOST_HEADER)
                    self._text.at = len(self._text.text)
                return
            if not self._find_events():
                return

    def _member(self) -> bool:
        """Read one key and its value; False where the text is not that."""
        key = self._text.string()
        if key is None:
            return False
        letter = self._text.skip(_COLON)
        if letter < 0:
            return False
        if key == EVENTS_KEY and letter == OPEN_BRACKET:
            self._events()
            return not self._document.truncated
        value = self._text.value()
        if value is None:
            return False
        self._document.header[key] = value
        return True

    def _find_events(self) -> bool:
        """Skip damaged text up to the list of events, if there is one."""
        text = self._text
        skipped = 0
        while True:
            match = _EVENTS_START.search(text.text, text.at)
            if match is not None:
                self._anomalies.note(Anomaly.TRAILING, count=skipped + match.start() - text.at)
                text.at = match.start()
                return True
            keep = max(text.at, len(text.text) - _EVENTS_START_BYTES)
            skipped += keep - text.at
            text.at = keep
            if not text.more():
                return False
