"""How well a kernel's blocks fill the multiprocessors: few blocks, and last waves that are hardly full."""

from __future__ import annotations

import numpy as np

from trace_analyzer.model import Device, Rank
from trace_analyzer.schema import Float64Array, Int64Array

MOST_BLOCKS_PER_SM = 32  # of every architecture since Volta but Turing (16), where few matter too
WARP = 32
REGISTER_UNIT = 256  # registers are handed out to a warp in these
SHARED_OVERHEAD_BYTES = 1024  # the driver's own of each block, since Ampere
# Kernels with more waves lose less than a tenth to the last one.
MOST_WAVES = 10


def device_of(rank: Rank) -> Device | None:
    """Return the GPU whose multiprocessors are known, None where none is."""
    return next((item for item in rank.devices if item.sm_count), None)


def blocks(rank: Rank) -> Int64Array:
    """Return the number of blocks of each launch shape."""
    shape = rank.configs
    total = np.ones(len(shape), dtype=np.int64)
    for side in (shape.grid_x, shape.grid_y, shape.grid_z):
        total *= np.maximum(side.astype(np.int64), 1)
    return total


def resident_blocks(rank: Rank, device: Device) -> Int64Array:
    """Return how many blocks of each launch shape fit on one multiprocessor at once, at least 1."""
    shape = rank.configs
    threads = np.ones(len(shape), dtype=np.int64)
    for side in (shape.block_x, shape.block_y, shape.block_z):
        threads *= np.maximum(side.astype(np.int64), 1)
    warps = -(-threads // WARP)
    fit = np.full(len(shape), MOST_BLOCKS_PER_SM, dtype=np.int64)
    if device.max_threads_per_sm:
        fit = np.minimum(fit, device.max_threads_per_sm // (warps * WARP))
    if device.registers_per_sm:
        each = np.maximum(shape.registers.astype(np.int64), 1) * WARP
        each = -(-each // REGISTER_UNIT) * REGISTER_UNIT
        fit = np.minimum(fit, device.registers_per_sm // (each * warps))
    if device.shared_bytes_per_sm:
        shared = np.maximum(shape.shared_bytes, 0) + SHARED_OVERHEAD_BYTES
        fit = np.minimum(fit, device.shared_bytes_per_sm // shared)
    return np.maximum(fit, 1)


def with_blocks(rank: Rank, device: Device) -> Float64Array:
    """Return the share of multiprocessors that get a block of each launch shape."""
    assert device.sm_count is not None
    found: Float64Array = np.clip(blocks(rank) / device.sm_count, 1e-6, 1.0)
    return found


def fill(rank: Rank, device: Device) -> Float64Array:
    """Return the share of multiprocessor time that a launch shape's blocks fill, 0 < share <= 1.

    Below one block a multiprocessor that is blocks over multiprocessors; above, waves over the
    waves that are begun. Kernels that bring as many blocks as there are multiprocessors fill them.
    """
    assert device.sm_count is not None
    waves = blocks(rank) / (device.sm_count * resident_blocks(rank, device))
    found = np.where(waves > MOST_WAVES, 1.0, waves / np.maximum(np.ceil(waves), 1.0))
    # Less than one wave: what matters is whether every multiprocessor has a block.
    found = np.where(waves <= 1.0, with_blocks(rank, device), found)
    shared: Float64Array = np.clip(found, 1e-6, 1.0)
    return shared
