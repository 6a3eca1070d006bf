"""What the host was doing: NVTX ranges, operating-system calls and the profiler's own work."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_columns import UNKNOWN_NAME, Texts, distinct, row_order
from trace_analyzer.readers.nsys_events import process_of
from trace_analyzer.readers.nsys_labels import split_labels
from trace_analyzer.readers.nsys_payload import NVTX
from trace_analyzer.readers.nsys_schema import Export
from trace_analyzer.schema import (
    NA_INT64,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
)
from trace_analyzer.tables import HostCategory, HostEvents

OSRT = "OSRT_API"
OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
THREAD_NAMES = "ThreadNames"

# Values of NVTX_EVENTS.eventType.
_CATEGORY = 33
_MARK = 34
_THREAD_NAME = 39
_PUSH_POP = 59
_START_END = 60
_DOMAIN = 75
_DOMAIN_END = 76
_RANGES = (_PUSH_POP, _START_END)
_DESCRIPTIONS = (_CATEGORY, _THREAD_NAME, _DOMAIN, _DOMAIN_END)

_NCCL_DOMAIN = "NCCL"
_NCCL_CALL = re.compile(r"^p?nccl[A-Z]")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeTables:
    """The host tables as they stand in the file; names are text ids."""

    nvtx: dict[str, Int64Array]
    nvtx_texts: dict[int, str]  # row id → text, where the text stands in the table itself
    os_calls: dict[str, Int64Array]
    overheads: tuple[dict[str, Int64Array], ...]
    thread_names: dict[str, Int64Array]

    def text_ids(self) -> list[Int64Array]:
        """Return all text ids."""
        return [
            self.nvtx["textId"],
            self.os_calls["nameId"],
            self.thread_names["nameId"],
            *(table["nameId"] for table in self.overheads),
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventRows:
    """Host events of the whole file. `end` is NA for a range that was still open at the end.

    `nccl` marks ranges of NCCL's own domain; `row_id` is the NVTX row id, NA for other events.
    """

    process: Int64Array
    thread: Int64Array
    start: Int64Array
    end: Int64Array
    category: Int64Array
    name: Int64Array
    sequence: Int64Array
    nccl: Int64Array
    row_id: Int64Array
    thread_titles: dict[int, str]  # global thread id → name
    nccl_domains: tuple[int, ...]
    other_nvtx: int  # NVTX rows that are neither range nor mark nor description
    damaged: int


def read_ranges(export: Export) -> RangeTables:
    """Return the host tables of an export."""
    nvtx = export.integers(
        NVTX,
        ["start", "end", "eventType", "globalTid", "textId", "domainId"],
        row_ids=True,
    )
    texts: dict[int, str] = {}
    if export.has(NVTX, "text"):
        rows = export.rows(f"select rowid, text from {NVTX} where text is not null")  # noqa: S608
        texts = {int(str(row)): str(text) for row, text in rows}
    timed = ["start", "end", "globalTid", "nameId"]
    return RangeTables(
        nvtx=nvtx,
        nvtx_texts=texts,
        os_calls=export.integers(OSRT, timed),
        overheads=tuple(export.integers(table, timed) for table in OVERHEADS),
        thread_names=export.integers(THREAD_NAMES, ["globalTid", "nameId"]),
    )


def event_rows(tables: RangeTables, texts: Texts) -> EventRows:
    """Return the host events; names are interned in `texts.names`."""
    nvtx = tables.nvtx
    kind = nvtx["eventType"]
    labels, label = _labels(tables, texts)
    process = process_of(nvtx["globalTid"])
    domain = np.where(nvtx["domainId"] == NA_INT64, 0, nvtx["domainId"])
    parts = split_labels(labels, texts.names)
    nccl = _nccl_rows(kind, process, domain, parts.name[label], texts.names)
    wanted = np.isin(kind, (*_RANGES, _MARK))
    end = np.where(kind == _MARK, nvtx["start"], nvtx["end"])
    chosen = label[wanted]
    columns = {
        "process": process[wanted],
        "thread": nvtx["globalTid"][wanted],
        "start": nvtx["start"][wanted],
        "end": end[wanted],
        "category": parts.category[chosen],
        "name": parts.name[chosen],
        "sequence": parts.sequence[chosen],
        "nccl": nccl[wanted].astype(np.int64),
        "row_id": nvtx["rowid"][wanted],
    }
    parts_of = [columns]
    for table, category in (
        (tables.os_calls, HostCategory.OS),
        *((table, HostCategory.OVERHEAD) for table in tables.overheads),
    ):
        if len(table["start"]):
            parts_of.append(_named_events(table, category, texts))
    joined = {name: np.concatenate([part[name] for part in parts_of]) for name in columns}
    backwards = (joined["end"] != NA_INT64) & (joined["end"] < joined["start"])
    backwards |= joined["start"] == NA_INT64
    if backwards.any():
        joined = {name: values[~backwards] for name, values in joined.items()}
    return EventRows(
        **joined,
        thread_titles=_thread_titles(tables, texts, labels, label),
        nccl_domains=tuple(np.unique(domain[nccl]).tolist()),
        other_nvtx=int(np.count_nonzero(~np.isin(kind, (*_RANGES, _MARK, *_DESCRIPTIONS)))),
        damaged=int(np.count_nonzero(backwards)),
    )


def _column(values: list[int]) -> Int64Array:
    return np.array(values, dtype=np.int64)


def _labels(tables: RangeTables, texts: Texts) -> tuple[list[str], Int64Array]:
    """Return the distinct texts, and for every NVTX row the position of its text in them."""
    found, label = distinct(tables.nvtx["textId"])
    labels = [texts.strings.get(key, UNKNOWN_NAME) for key in found.tolist()]
    if tables.nvtx_texts:
        direct = NameTable()
        positions = [direct.intern(text) for text in tables.nvtx_texts.values()]
        rows = np.searchsorted(tables.nvtx["rowid"], _column(list(tables.nvtx_texts)))
        label[rows] = _column(positions) + len(labels)
        labels += direct.texts
    return labels, label


def _nccl_rows(
    kind: Int64Array,
    process: Int64Array,
    domain: Int64Array,
    name: Int64Array,
    names: NameTable,
) -> BoolArray:
    """Return which NVTX rows are ranges of NCCL's domain.

    Domain ids count per process. Where the domain's creation lies outside the recording, its
    calls tell: they are named nccl…, and stand in another domain than the user's.
    """
    is_range = np.isin(kind, _RANGES)
    found, at = distinct(name)
    titles = [names.texts[position] for position in found.tolist()]
    titled = np.array([text == _NCCL_DOMAIN for text in titles], dtype=np.bool_)[at]
    called = np.array([_NCCL_CALL.match(text) is not None for text in titles], dtype=np.bool_)[at]
    created = (kind == _DOMAIN) & titled
    result = np.zeros(len(kind), dtype=np.bool_)
    for key in np.unique(process).tolist():
        mine = process == key
        domains = np.unique(domain[mine & created])
        if not len(domains):
            domains = np.unique(domain[mine & is_range & called & (domain != 0)])
        result |= mine & is_range & np.isin(domain, domains)
    return result


def _named_events(
    table: dict[str, Int64Array], category: HostCategory, texts: Texts
) -> dict[str, Int64Array]:
    count = len(table["start"])
    missing = np.full(count, NA_INT64, dtype=np.int64)
    return {
        "process": process_of(table["globalTid"]),
        "thread": table["globalTid"],
        "start": table["start"],
        "end": table["end"],
        "category": np.full(count, category.value, dtype=np.int64),
        "name": texts.positions(table["nameId"]).astype(np.int64),
        "sequence": missing,
        "nccl": np.zeros(count, dtype=np.int64),
        "row_id": missing,
    }


def _thread_titles(
    tables: RangeTables, texts: Texts, labels: list[str], label: Int64Array
) -> dict[int, str]:
    """Return thread names: the system's, overruled by what the program itself said by NVTX."""
    names = tables.thread_names
    titles = {
        thread: texts.strings[key]
        for thread, key in zip(names["globalTid"].tolist(), names["nameId"].tolist(), strict=True)
        if key in texts.strings
    }
    own = np.flatnonzero(tables.nvtx["eventType"] == _THREAD_NAME)
    for row in own.tolist():
        titles[int(tables.nvtx["globalTid"][row])] = labels[int(label[row])]
    return titles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderedEvents:
    """Host events of one process in table order: by start, outer before inner."""

    start: Int64Array
    end: Int64Array
    thread: Int64Array
    category: Int8Array
    name: Int32Array
    sequence: Int64Array
    nccl: BoolArray
    row_id: Int64Array
    opened: int  # ranges that were still open and have been closed at the end of the recording

    def table(self, thread_rows: Int32Array, collective: Int32Array) -> HostEvents:
        """Return the table, with the collective that every event issues."""
        return HostEvents.from_columns(
            len(self.start),
            start_ns=self.start,
            end_ns=self.end,
            category=self.category,
            name=self.name,
            thread=thread_rows,
            sequence=self.sequence,
            collective=collective,
        )


def events_of(rows: EventRows, chosen: BoolArray | slice, last_ns: int) -> OrderedEvents:
    """Return the events of one process; open ranges end at its last event.

    `last_ns` is the end of the last GPU operation and call; later events prolong it.
    """
    start, end = rows.start[chosen], rows.end[chosen]
    is_open = end == NA_INT64
    if is_open.any():
        close_ns = int(end[~is_open].max(initial=last_ns))
        end = np.where(is_open, np.maximum(start, close_ns), end)
    order = row_order(start, -end)
    return OrderedEvents(
        start=start[order],
        end=end[order],
        thread=rows.thread[chosen][order],
        category=rows.category[chosen][order].astype(np.int8),
        name=rows.name[chosen][order].astype(np.int32),
        sequence=rows.sequence[chosen][order],
        nccl=rows.nccl[chosen][order].astype(np.bool_),
        row_id=rows.row_id[chosen][order],
        opened=int(np.count_nonzero(is_open)),
    )
