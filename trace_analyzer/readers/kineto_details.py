"""The arguments that only a few events have, decoded a second time from the text of a batch.

Events that communicate carry a dozen arguments more than others. Were these fields of every
event, all events would pay for them; here only the objects around the telling key are decoded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from trace_analyzer.readers.kineto_events import Args, Details
from trace_analyzer.readers.kineto_json import DECODE_ERRORS
from trace_analyzer.readers.kineto_repair import loose_details

_KEY: Final = b'"Collective name"'
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
        self._found: dict[_Call, deque[Details]] = _by_call(_around_key(text))
        self._complete = False

    def of(self, args: Args) -> Details:
        """Return the details of an event; to be asked once an event, in their order."""
        call = (args.external_id, args.correlation, args.collective)
        if not self._found[call] and not self._complete:
            self._found = _by_call(details for _, details in all_details(self._text))
            self._complete = True
        waiting = self._found[call]
        return waiting.popleft() if waiting else Details(collective=args.collective)


def _by_call(found: Iterable[Details]) -> dict[_Call, deque[Details]]:
    calls: dict[_Call, deque[Details]] = defaultdict(deque)
    for details in found:
        if details.collective is not None:
            calls[details.external_id, details.correlation, details.collective].append(details)
    return calls


def _around_key(text: bytes) -> list[Details]:
    """Return the details in the objects that hold the key; what is unusual is passed over."""
    found: list[Details] = []
    view = memoryview(text)
    at = text.find(_KEY)
    while at >= 0:
        start = text.find(b"{", text.rfind(_ARGS_KEY, 0, at))
        end = at
        for _ in range(_NESTED_OBJECTS):  # the object ends where it can be decoded
            end = text.find(b"}", end) + 1
            if end == 0 or not 0 <= start < at:
                return found
            try:
                found.append(_details.decode(view[start:end]))
            except DECODE_ERRORS:
                continue
            break
        at = text.find(_KEY, end)
    return found
