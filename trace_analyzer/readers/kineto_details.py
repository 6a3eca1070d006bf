"""The arguments that only a few events have, decoded a second time from the text of a batch.

Events that communicate carry a dozen arguments more than others. Were these fields of every
event, all events would pay for them; here only the arguments of those few are decoded again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from trace_analyzer.readers.kineto_events import Args, Complete, Details
from trace_analyzer.readers.kineto_json import DECODE_ERRORS
from trace_analyzer.readers.kineto_repair import loose_details

_ARGS_KEY: Final = b'"args"'
_NESTED_OBJECTS: Final = 4  # closing braces to try; arguments are seldom nested

_Call = tuple[int, int, str | None]


class _DetailedEvent(Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    args: Details = Details()


_details = msgspec.json.Decoder(Details)
_detailed_events = msgspec.json.Decoder(list[_DetailedEvent])


def all_details(text: bytes) -> list[tuple[str | None, Details]]:
    """Return category and details of every complete event of a batch, in order."""
    try:
        events = _detailed_events.decode(text)
        return [(event.cat, event.args) for event in events if event.ph == "X"]
    except DECODE_ERRORS:
        return loose_details(text)


class CallDetails:
    """Finds the details of communicating events of one batch, whose text this is."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._begins: int | None = None  # its address, found at the first question
        self._asked: Counter[_Call] = Counter()
        self._all: dict[_Call, list[Details]] | None = None

    def of(self, event: Complete) -> Details:
        """Return the details of an event; to be asked once an event, in their order."""
        call = _call(event.args)
        self._asked[call] += 1
        details = self._behind(event)
        if details is not None and _call(details) == call:
            return details
        if self._all is None:
            self._all = defaultdict(list)
            for _, given in all_details(self._text):
                self._all[_call(given)].append(given)
        alike = self._all[call]
        place = self._asked[call] - 1
        return alike[place] if place < len(alike) else Details(collective=event.args.collective)

    def _behind(self, event: Complete) -> Details | None:
        """Decode the arguments that stand behind the event's time stamp, where writers put them.

        The time stamp is a view into the text, so that its address tells where the event is.
        """
        if self._begins is None:
            self._begins = _address(self._text)
        at = _address(event.ts) - self._begins
        if not 0 <= at < len(self._text):
            return None
        start = self._text.find(b"{", self._text.find(_ARGS_KEY, at))
        end = start
        for _ in range(_NESTED_OBJECTS):  # the object ends where it can be decoded
            end = self._text.find(b"}", end) + 1
            if end == 0:
                return None
            try:
                return _details.decode(memoryview(self._text)[start:end])
            except DECODE_ERRORS:
                continue
        return None


def _address(view: bytes | msgspec.Raw) -> int:
    address: int = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]
    return address


def _call(args: Args | Details) -> _Call:
    return args.external_id, args.correlation, args.collective
