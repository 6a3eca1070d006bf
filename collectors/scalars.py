"""Step times as TensorBoard scalars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SHOWN = ("step_ms", "host_ms", "memory_peak_bytes")


class Scalars:
    """Writes records of steps to a log folder, one curve a rank.

    Raises `ModuleNotFoundError` without the tensorboard package.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._writer = _writer(folder)
        self._rank = rank

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a step."""
        for name in _SHOWN:
            if name in record:
                self._writer.add_scalar(f"{name}/rank{self._rank}", record[name], record["index"])

    def close(self) -> None:
        """Write everything."""
        self._writer.close()


def _writer(folder: Path) -> Any:  # noqa: ANN401
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(log_dir=str(folder))
