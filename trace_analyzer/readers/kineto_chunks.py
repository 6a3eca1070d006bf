"""From text to batches of events: where to cut, and what to do where a cut or an event is bad.

The writers put the same few bytes between any two events. Once that separator is known, the last
one in a block of text is where to cut: `[` + chunk + `]` is valid JSON only if both cuts lie
between events of the list, so the decoder itself proves every cut. Small chunks keep structs in
the processor's cache, which matters more for speed than the JSON library.

A chunk that strict decoding refuses goes down a ladder: decoded again with loose types; walked
event by event, strictly, then with mended text; what remains unreadable is counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_events import Event, event_decoder, events_decoder
from trace_analyzer.readers.kineto_json import DECODE_ERRORS, TEXT, balanced_end
from trace_analyzer.readers.kineto_repair import loose_events, mended_event
from trace_analyzer.readers.kineto_text import (
    CLOSE_BRACKET,
    GAP,
    MAX_VALUE_BYTES,
    OPEN_BRACE,
    OPEN_BRACKET,
    QUOTE,
    SCALAR,
    Text,
)

_SEPARATOR = re.compile(rb"\s*+,\s*+\{")
_LEARN_EVENTS: Final = 2  # events to walk in order to learn the separator
_UNDIVIDED_BYTES: Final = 1 << 20  # text without a known separator after which it is learnt anew
_RESYNC_TRIES: Final = 8  # separators behind which an event is looked for
_LAST_TRIES: Final = 1000  # the same at the end of the file, where no more text can help
_PATIENCE_BYTES: Final = 16 << 20  # text to look through in vain for the ends of damaged events
_SAMPLE_BYTES: Final = 200


class EventList:
    """Reads the list of events that begins where the text stands."""

    def __init__(
        self,
        text: Text,
        emit: Callable[[list[Event], bytes], None],
        anomalies: Anomalies,
    ) -> None:
        self._text = text
        self._emit = emit
        self._anomalies = anomalies
        self._separator = b""
        self._patience = _PATIENCE_BYTES
        self._events: list[Event] = []  # read one by one, with their texts
        self._pieces: list[bytes] = []

    def read(self) -> bool:
        """Read to the end of the list; False if the file ends before it."""
        text = self._text
        wanted = 0  # unread bytes below which another try would fail as the last one did
        while True:
            text.skip(GAP)
            size = text.unread
            if size < wanted and text.more(wanted):
                continue
            if not size and text.ended:
                return False
            if text.text[text.at] == CLOSE_BRACKET:
                text.at += 1
                return True
            cut = text.text.rfind(self._separator, text.at) if self._separator else -1
            if cut < 0 and self._separator and size < _UNDIVIDED_BYTES and text.more():
                continue
            before = text.at
            self._chunk(cut + 1) if cut >= 0 else self._undivided()
            wanted = 0 if text.at > before else 2 * size + 1

    def _chunk(self, end: int) -> None:
        """Read the events up to `end`, where one seems to end."""
        text = self._text
        listed = b"".join((b"[", memoryview(text.text)[text.at : end], b"]"))
        try:
            events = events_decoder.decode(listed)
        except DECODE_ERRORS as error:
            if not isinstance(error, msgspec.ValidationError) or not self._loose(listed):
                self._walk(end)
                return
        else:
            self._emit(events, listed)
        text.at = end + len(self._separator) - 2  # the next event's opening brace

    def _loose(self, listed: bytes) -> bool:
        found = Anomalies()
        try:
            events = loose_events(listed, found)
        except DECODE_ERRORS:
            return False
        self._anomalies.merge(found)
        self._emit(events, listed)
        return True

    def _undivided(self) -> None:
        """Read on where no separator is in sight: at the beginning, at the end, after a change."""
        self._walk(len(self._text.text), most=0 if self._text.ended else _LEARN_EVENTS)

    def _walk(self, stop: int, most: int = 0) -> None:
        """Read event by event while they begin before `stop`, and no further than the list.

        `most` bounds the number of events (0: no bound). What is not complete yet is left.
        """
        text = self._text
        while text.at < stop and not (most and len(self._events) >= most):
            gap = GAP.match(text.text, text.at)
            text.at = gap.end() if gap is not None else text.at
            if text.at >= len(text.text) or text.text[text.at] == CLOSE_BRACKET:
                break
            is_object = text.text[text.at] == OPEN_BRACE
            if not (self._one() if is_object else self._junk()):
                break
        if self._events:
            self._emit(self._events, b"[%b]" % b",".join(self._pieces))
            self._events, self._pieces = [], []

    def _one(self) -> bool:
        """Read the event that begins here; False if it is not complete yet."""
        text, at = self._text.text, self._text.at
        cut = text.find(self._separator, at) if self._separator else -1
        limit = cut + 1 if cut >= 0 else len(text)
        if cut >= 0 and self._take(text[at:limit]):
            self._pass(limit)
            return True
        end = balanced_end(text, at, limit)
        beyond = end < 0 <= cut and self._patience > 0
        if beyond:  # the separator may stand inside the event
            end = balanced_end(text, at, len(text))
        if end >= 0 and (self._take(text[at:end]) or self._mend(text[at:end])):
            self._pass(end)
            return True
        if beyond:
            self._patience -= (end if end >= 0 else len(text)) - at
        elif end >= 0:
            self._anomalies.note(Anomaly.UNREADABLE, text[at : min(end, at + _SAMPLE_BYTES)])
            self._pass(end)
            return True
        return self._give_up(cut)

    def _take(self, piece: bytes) -> bool:
        event = _decoded(piece)
        if event is not None:
            self._events.append(event)
            self._pieces.append(piece)
        return event is not None

    def _mend(self, piece: bytes) -> bool:
        mended = mended_event(piece, self._anomalies)
        if mended is not None:
            self._events.append(mended[0])
            self._pieces.append(mended[1])
        return mended is not None

    def _pass(self, end: int) -> None:
        """Go on behind an event, and learn what stands between events."""
        self._text.at = end
        match = _SEPARATOR.match(self._text.text, end)
        if match is not None:
            self._separator = b"}" + match[0]

    def _resynchronises(self, cut: int) -> bool:
        """Tell whether an event stands behind the separator at `cut` or one of the next ones.

        Then the separator is one between events, and an event that is not balanced before it is
        damaged; otherwise the separator may stand inside the event.
        """
        text = self._text.text
        for _ in range(_LAST_TRIES if self._text.ended else _RESYNC_TRIES):
            start = cut + len(self._separator) - 1
            cut = text.find(self._separator, start)
            end = cut + 1 if cut >= 0 else balanced_end(text, start, len(text))
            if end > 0 and _is_event(text[start:end]):
                return True
            if cut < 0:
                return False
        return False

    def _give_up(self, cut: int) -> bool:
        """Leave out an event without an end; False if more text may bring it."""
        text = self._text
        at = text.at
        hopeless = self._patience <= 0 or text.unread >= MAX_VALUE_BYTES
        if cut >= 0 and (hopeless or self._resynchronises(cut)):
            text.at = cut + len(self._separator) - 1
        elif not text.ended and text.unread < MAX_VALUE_BYTES:
            return False
        else:
            text.at = len(text.text)
            if text.ended:
                return True  # cut off in the middle: told as a truncation
        self._anomalies.note(Anomaly.UNREADABLE, text.text[at : at + _SAMPLE_BYTES])
        return True

    def _junk(self) -> bool:
        """Leave out something in the list that is no object; False if it is not complete yet."""
        text, at = self._text.text, self._text.at
        letter = text[at]
        if letter == QUOTE:
            match = TEXT.match(text, at)
            end = match.end() if match is not None else -1
        elif letter == OPEN_BRACKET:
            end = balanced_end(text, at, len(text))
        elif (scalar := SCALAR.match(text, at)) is not None:
            end = scalar.end() if scalar.end() < len(text) or self._text.ended else -1
        else:
            end = at + 1
        if end < 0:
            if not self._text.ended and self._text.unread < MAX_VALUE_BYTES:
                return False
            end = at + 1
        self._anomalies.note(Anomaly.UNREADABLE, text[at : min(end, at + _SAMPLE_BYTES)])
        self._text.at = end
        return True


def _is_event(piece: bytes) -> bool:
    return _decoded(piece) is not None or mended_event(piece, Anomalies()) is not None


def _decoded(piece: bytes) -> Event | None:
    try:
        return event_decoder.decode(piece)
    except DECODE_ERRORS:
        return None
