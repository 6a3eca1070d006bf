"""Runs of equal keys in sorted columns."""

from __future__ import annotations

import numpy as np

from trace_analyzer.schema import AnyArray, Int64Array


def place_in_run(*keys: AnyArray) -> Int64Array:
    """Return how many entries with the same keys come before each; equal keys must be neighbours."""
    count = len(keys[0])
    changed = np.zeros(count, dtype=np.bool_)
    changed[:1] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    begin = np.maximum.accumulate(np.where(changed, np.arange(count), 0))
    return (np.arange(count) - begin).astype(np.int64)
