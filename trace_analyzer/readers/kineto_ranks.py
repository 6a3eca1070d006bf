"""Which rank an event belongs to: the file's only one, or in an exported file that of its process.

Ranks stand one after the other in an exported file, so that nearly every batch has one owner.
The others are divided, and their parts decoded again from their own text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.rank_facts import EXPORT_KEY, RankFacts, decode
from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_columns import EventColumns
from trace_analyzer.readers.kineto_events import Complete, Event, Metadata, events_decoder
from trace_analyzer.readers.kineto_json import DECODE_ERRORS
from trace_analyzer.readers.kineto_repair import loose_events

_pieces: Final = msgspec.json.Decoder(list[msgspec.Raw])
_HINT: Final = "export the run again"


class RankEvents:
    """Takes the events of a file, batch by batch. `header` is filled before the first one comes.

    Afterwards `columns` holds those of every rank that has any event, and `facts` what the file
    says of them, None for a trace that was not exported. `anomalies` is what concerns the file as
    a whole; a single rank shares it.
    """

    def __init__(self, header: Mapping[str, bytes], shown: str) -> None:
        self.anomalies = Anomalies()
        self.columns: list[EventColumns] = []
        self.facts: list[RankFacts | None] = []
        self._header = header
        self._shown = shown
        self._begun = False
        self._ranks: dict[object, RankFacts] = {}  # by process of the track
        self._by_number: dict[int, RankFacts] = {}
        self._columns_of: dict[int, EventColumns] = {}
        self._last: RankFacts

    def add(self, events: list[Event], text: bytes) -> None:
        """Append a batch; `text` is the JSON list that the events were decoded from."""
        if not self._begun:
            self._begin()
        if not self._ranks:
            self.columns[0].add(events, text)
            return
        owners = {event.pid for event in events if isinstance(event, _OWNED)}
        if owners <= {self._last.pid}:  # also a batch of arrows, which have no owner
            self._of(self._last).add(events, text)
        else:
            self._divide(text)

    def finish(self) -> None:
        """Say what concerns the whole file, once all events are there.

        Raises `UnreadableInputError` where the file tells of its ranks too late.
        """
        if not self._begun:
            self._begin()
        elif not self._ranks and EXPORT_KEY in self._header:
            raise UnreadableInputError(
                self._shown, "what it says of its ranks stands behind its events", _HINT
            )
        if not self._ranks:
            return
        found = [pair for pair in zip(self.columns, self.facts, strict=True) if pair[0].kept] or [
            (EventColumns(self.anomalies), None)
        ]
        self.columns = [columns for columns, _ in found]
        self.facts = [facts for _, facts in found]
        last = self.columns[-1].shared.anomalies
        if last is not self.anomalies:
            # A cut or damaged file lacks events of the last rank that it holds, if any.
            last.merge(self.anomalies)

    def _begin(self) -> None:
        self._begun = True
        text = self._header.get(EXPORT_KEY)
        if text is None:
            self.columns, self.facts = [EventColumns(self.anomalies)], [None]
            return
        try:
            facts = decode(text)
        except ValueError as error:
            raise UnreadableInputError(self._shown, str(error), _HINT) from error
        self._ranks = {rank.pid: rank for rank in facts.ranks}
        self._by_number = {rank.rank: rank for rank in facts.ranks}
        self._last = facts.ranks[0]
        if not len(self._ranks) == len(self._by_number) == len(facts.ranks):
            raise UnreadableInputError(self._shown, "two of its ranks are the same", _HINT)

    def _of(self, facts: RankFacts) -> EventColumns:
        columns = self._columns_of.get(facts.rank)
        if columns is None:
            columns = self._columns_of[facts.rank] = EventColumns(Anomalies())
            self.columns.append(columns)
            self.facts.append(facts)
        return columns

    def _divide(self, text: bytes) -> None:
        parts: dict[int, list[bytes]] = {}
        for piece in _pieces.decode(text):
            for event in _decoded(b"[%b]" % bytes(piece)):
                owner = self._last
                if isinstance(event, _OWNED):
                    found = self._ranks.get(event.pid)
                    if found is None:
                        self.anomalies.note(Anomaly.UNREADABLE, f"an event of process {event.pid}")
                        continue
                    owner = found
                self._last = owner
                parts.setdefault(owner.rank, []).append(bytes(piece))
        for rank, pieces in parts.items():
            listed = b"[%b]" % b",".join(pieces)
            # Decoded again: what a time stamp lies in tells where its event's arguments are.
            self._of(self._by_number[rank]).add(_decoded(listed), listed)


def _decoded(listed: bytes) -> list[Event]:
    try:
        return events_decoder.decode(listed)
    except DECODE_ERRORS:
        return loose_events(listed, Anomalies())  # counted when they were first decoded


_OWNED: Final = (Complete, Metadata)

__all__ = ["RankEvents"]
