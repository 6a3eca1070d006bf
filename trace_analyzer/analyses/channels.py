"""What the launch shape of an NCCL kernel says: channels against NCCL's own rule, and threads.

The grid of a collective is its number of channels. NCCL gives a message as many of the
communicator's channels as keep every thread of each busy: while bytes < channels × threads ×
bytes a thread, one channel is dropped (topoGetAlgoInfo in NCCL 2.27). So few channels are normal
for small messages; fewer than this rule gives are not.
"""

from __future__ import annotations

# Bytes a thread and channel must have to do under the Simple protocol; from NCCL's sources.
SIMPLE_BYTES_A_THREAD = 64
# Ring kernels of the Simple protocol carry one more warp than they have working threads.
SIMPLE_BLOCKS = {544: 512, 288: 256, 160: 128}


def block_reading(block_x: int) -> str:
    """Return what a block size tells about a collective kernel of NCCL 2.14 or later."""
    if block_x in SIMPLE_BLOCKS:
        return f"ring, Simple protocol ({SIMPLE_BLOCKS[block_x]} + 32 threads)"
    if block_x in (256, 512):
        return "ring, LL protocol, or a symmetric-memory kernel"
    if block_x in (64, 96, 128):
        return "a small message: threads at their minimum"
    if block_x == 320:
        return "LL128 protocol, shrunk once"
    if block_x == 640:
        return "ambiguous: tree, NVLS, CollNet, PAT, LL128 or send/receive"
    return "unknown"


def expected_channels(message_bytes: int, block_x: int, communicator_channels: int) -> int | None:
    """Return the channels NCCL's rule gives a message; None where the block does not tell a rule.

    `communicator_channels` is what the communicator has: from the NCCL log, else the most that any
    launch of the group used.
    """
    threads = SIMPLE_BLOCKS.get(block_x)
    if threads is None or message_bytes <= 0 or communicator_channels < 1:
        return None
    most = message_bytes // (threads * SIMPLE_BYTES_A_THREAD)
    return max(1, min(communicator_channels, most))
