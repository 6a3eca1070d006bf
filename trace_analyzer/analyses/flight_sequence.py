"""Sequence numbers for traced collectives, from the Flight Recorder dump of the same rank.

The recorder notes a collective just before torch launches it, so the entry last created before
the launch is its own. That is accepted for a rank only if no two launches share an entry and the
sizes agree wherever both are known.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trace_analyzer.model import Rank
from trace_analyzer.nccl_facts import FlightRecording
from trace_analyzer.schema import NA_INT64, Int64Array, is_na

# An entry is created 25-99 µs before the launch; one that is older belongs to something else.
LONGEST_DELAY_NS = 5_000_000


def flight_sequences(
    rank: Rank,
    launch_ns: Int64Array,
    group: Int64Array,
    elements: Int64Array,
    dumps: Iterable[FlightRecording],
) -> Int64Array:
    """Return a sequence number for each operation, NA for all where the dump does not fit.

    `launch_ns` (NA where unlinked), `group` (position in the rank's groups, NA where unknown) and
    `elements` have one entry an operation, in any order.
    """
    nothing = np.full(len(launch_ns), NA_INT64, dtype=np.int64)
    dump = next((item for item in dumps if item.rank == rank.rank), None)
    if dump is None or rank.clock_base_ns is None or len(dump.entries) == 0:
        return nothing
    entries = dump.entries
    result = nothing.copy()
    for number, described in enumerate(rank.groups):
        same = [
            k
            for k, item in enumerate(dump.groups)
            if item.name == described.name and set(item.ranks) <= set(described.ranks or item.ranks)
        ]
        rows = np.flatnonzero(
            np.isin(entries.group, same)
            & (entries.is_p2p == 0)
            & ~is_na(entries.created_ns)
            & ~is_na(entries.collective_sequence)
        )
        chosen = np.flatnonzero((group == number) & ~is_na(launch_ns))
        if len(rows) == 0 or len(chosen) == 0:
            continue
        rows = rows[np.argsort(entries.created_ns[rows], kind="stable")]
        at = launch_ns[chosen] + rank.clock_base_ns
        place = np.searchsorted(entries.created_ns[rows], at, side="right") - 1
        if bool(np.any(place < 0)):
            return nothing
        entry = rows[place]
        late = at - entries.created_ns[entry] > LONGEST_DELAY_NS
        size = entries.in_elements[entry]
        differs = ~is_na(size) & ~is_na(elements[chosen]) & (size != elements[chosen])
        if bool(np.any(late | differs)) or len(np.unique(entry)) < len(entry):
            return nothing
        result[chosen] = entries.collective_sequence[entry]
    return result
