"""How numbers are written, in one place, so that every output writes them alike.

Unknown values (None, NaN, infinities) are the word "unknown", never 0 and never blank. A value
that is not zero never reads as zero: it reads "< 0.01". Minus is U+2212.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "unknown"
NOT_APPLICABLE = "–"
NBSP = "\N{NO-BREAK SPACE}"


def known(value: float | None) -> bool:
    """Return whether there is a number to write."""
    return value is not None and math.isfinite(value)


def decimal(value: float | None, digits: int) -> str:
    """Return a number with `digits` decimals and thousands commas."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    least = 0.5 * 10.0**-digits
    if value and abs(value) < least:
        return ("< " if value > 0 else "> −") + f"{10.0**-digits:.{digits}f}"
    return f"{value:,.{digits}f}".replace("-", "−")


def ms(value_ms: float | None) -> str:
    """Return milliseconds for prose: one decimal, without unit."""
    return decimal(value_ms, 1)


def ms_cell(value_ms: float | None) -> str:
    """Return milliseconds for a table: two decimals, without unit."""
    return decimal(value_ms, 2)


def us(value_us: float | None) -> str:
    """Return microseconds without decimals (one below 10), without unit."""
    if value_us is not None and 0 < abs(value_us) < 10:
        return decimal(value_us, 1)
    return decimal(value_us, 0)


def gb_per_s(value_gbs: float | None) -> str:
    """Return decimal GB/s: no decimals from 10 on, else as many as the size needs."""
    if value_gbs is None or not math.isfinite(value_gbs):
        return UNKNOWN
    magnitude = abs(value_gbs)
    return decimal(value_gbs, 0 if magnitude >= 10 else 1 if magnitude >= 1 else 2)


def percent(fraction: float | None) -> str:
    """Return a fraction of 1 as percent without decimals (one below 10 %), with the sign %."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    value = 100.0 * fraction
    digits = 1 if 0 < abs(value) < 9.95 else 0
    return f"{decimal(value, digits)}{NBSP}%"


def signed_percent(fraction: float) -> str:
    """Return a change as percent with its sign: "+59 %", "−3 %", "±0 %"."""
    value = round(100.0 * fraction)
    sign = "±" if value == 0 else "+" if value > 0 else "−"
    return f"{sign}{abs(value):,}{NBSP}%"


def interval(bounds: Sequence[float] | None, digits: int = 1) -> str:
    """Return an interval in brackets: "[7.9, 10.1]"; empty where there is none."""
    if bounds is None or len(bounds) != 2 or not all(math.isfinite(bound) for bound in bounds):
        return ""
    return f"[{decimal(bounds[0], digits)}, {decimal(bounds[1], digits)}]"


def integer(value: float | None) -> str:
    """Return a count with thousands commas; one decimal where it is not whole."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return decimal(value, 0 if abs(value - round(value)) < 0.05 else 1)


def megabytes(value_bytes: float | None) -> str:
    """Return decimal MB without unit: one decimal from 1 MB on, else as many as it needs."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return UNKNOWN
    value = value_bytes / 1e6
    if value == 0 or abs(value) >= 1:
        return decimal(value, 1)
    return decimal(value, 3 if abs(value) >= 0.001 else 6)


def kibibytes(value_bytes: float | None) -> str:
    """Return KiB without unit, as shared memory is measured."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return UNKNOWN
    value = value_bytes / 1024
    return decimal(value, 0 if value >= 2 or value == round(value) else 1)


def size(value_bytes: float | None) -> str:
    """Return a size with the decimal unit that suits it: "910 kB", "1.3 GB"."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return UNKNOWN
    for limit, divisor, unit in (
        (1e3, 1.0, "B"),
        (1e6, 1e3, "kB"),
        (1e9, 1e6, "MB"),
        (1e12, 1e9, "GB"),
    ):
        if abs(value_bytes) < limit:
            value = value_bytes / divisor
            return f"{decimal(value, 0 if divisor == 1.0 or value >= 100 else 1)}{NBSP}{unit}"
    return f"{decimal(value_bytes / 1e12, 1)}{NBSP}TB"


def shape(extent: Sequence[int] | None) -> str:
    """Return a grid or block without trailing ones: [24, 1, 1] → "24", [264, 3, 1] → "264 × 3"."""
    if not extent:
        return UNKNOWN
    sizes = list(extent)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return f"{NBSP}×{NBSP}".join(str(part) for part in sizes)


def launch_shape(grid: Sequence[int] | None, block: Sequence[int] | None) -> str:
    """Return grid × block of a communication kernel: "24 × 544"; brackets where either has more axes."""
    if not grid or not block:
        return UNKNOWN
    parts = [shape(grid), shape(block)]
    if any("×" in part for part in parts):
        parts = [f"({part})" if "×" in part else part for part in parts]
    return f"{NBSP}×{NBSP}".join(parts)


def plural(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: "1 step", "5 steps"."""
    return f"{count:,}{NBSP}{one if count == 1 else many or one + 's'}"


def ranks(numbers: Sequence[int], world: int | None = None, limit: int = 3) -> str:
    """Name ranks: "rank 1", "both ranks", "ranks 3, 7 and 6 more", "all 8 ranks"."""
    ordered = sorted(set(numbers))
    if not ordered:
        return NOT_APPLICABLE
    if world is not None and world > 1 and len(ordered) == world:
        return "both ranks" if world == 2 else f"all {world} ranks"
    if len(ordered) == 1:
        return f"rank{NBSP}{ordered[0]}"
    if ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > limit:
        return f"ranks {ordered[0]}–{ordered[-1]}"
    if len(ordered) > limit:
        shown = ", ".join(str(rank) for rank in ordered[: limit - 1])
        return f"ranks {shown} and {len(ordered) - limit + 1} more"
    return f"ranks {', '.join(str(rank) for rank in ordered[:-1])} and {ordered[-1]}"


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers with runs folded: "3–7, 9"."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    first = 0
    for position, number in enumerate(ordered):
        if position + 1 < len(ordered) and ordered[position + 1] == number + 1:
            continue
        run = ordered[first : position + 1]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}")
        first = position + 1
    return ", ".join(parts)


def nice_ticks(largest: float, least: int = 4, most: int = 7) -> list[float]:
    """Return tick positions from 0 to the first round number at or above `largest`.

    There are `least` to `most` of them where a step of 1, 2, 2.5, 4 or 5 × 10^k allows it.
    """
    if not math.isfinite(largest) or largest <= 0:
        return [0.0, 1.0]
    exponent = math.floor(math.log10(largest)) - 1
    best: list[float] = []
    for power in (exponent, exponent + 1):
        for factor in (1.0, 2.0, 2.5, 4.0, 5.0):
            width = factor * 10.0**power
            count = math.ceil(largest / width - 1e-9)
            if not least <= count + 1 <= most:
                continue
            ticks = [round(width * index, 10) for index in range(count + 1)]
            if not best or (ticks[-1], -len(ticks)) < (best[-1], -len(best)):
                best = ticks
    return best or [0.0, largest]


def tick_label(value: float, step: float) -> str:
    """Return the label of an axis tick: as many decimals as the step between ticks needs."""
    if value == 0:
        return "0"
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if step > 0 and abs(step * 10**digits - round(step * 10**digits)) > 1e-6:
        digits += 1
    return f"{value:,.{digits}f}".replace("-", "−")
