"""What a user can ask of an analysis."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `analyze`; those that differ from the default are echoed in the report."""

    unprofiled_step_ms: float | None = None
    step_range: str | None = None
    steps: tuple[int, int] | None = None
    ranks: tuple[int, ...] | None = None
    redact: bool = False
    what_if: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str | None = None  # changes the exit code, and nothing in the report

    def echo(self) -> dict[str, Any]:
        """Return the options that were set, for the report."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value not in (None, False, ())
        }
