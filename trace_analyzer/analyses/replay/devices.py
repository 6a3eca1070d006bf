"""Ranks that drive several GPUs: their streams are told apart by device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trace_analyzer.model import Rank
from trace_analyzer.schema import AnyArray, Int64Array, is_na

# Streams are numbered in each context alone; no context has as many.
_APART = 1 << 32


def own_streams(rank: Rank) -> Rank:
    """Return the rank with streams numbered over all of its devices; one device changes nothing."""
    operations, syncs = rank.operations, rank.syncs
    if len(np.unique(operations.device[~is_na(operations.device)])) < 2:
        return rank

    def apart(stream: Int64Array, device: AnyArray) -> Int64Array:
        known = ~is_na(stream) & ~is_na(device)
        return np.where(known, stream + _APART * device.astype(np.int64), stream)

    return replace(
        rank,
        operations=replace(operations, stream=apart(operations.stream, operations.device)),
        syncs=replace(
            syncs,
            stream=apart(syncs.stream, syncs.device),
            source_stream=apart(syncs.source_stream, syncs.device),
        ),
    )
