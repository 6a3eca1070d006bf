"""How often the 95 % interval of a scaling efficiency holds the truth, and how often levels are cut.

python -m tests.benchmarks.bench_scaling [--repetitions 2000] [--resamples 500]

Every repetition draws two series of step times, log-normal, AR(1) in their logarithms, 3 % of the
steps 1.5 times as long; cleans them, resamples them, and asks whether the interval of the ratio
holds the true one. Both series go through what `scaling` does, segmentation included. Half-widths are
medians, in percent of the efficiency. "verdict" counts only repetitions that would get one.
"""

from __future__ import annotations

import argparse
import time
from math import sqrt

import numpy as np

from tests.comparisons import series
from trace_analyzer.analyses.scaling import resampling
from trace_analyzer.analyses.scaling.efficiency import Measurement, efficiency, points
from trace_analyzer.analyses.scaling.series import clean

TRUTH = 0.8
OUTLIERS = 0.03


def measure(
    count: int, correlation: float, variation: float, repetitions: int, shift: float = 0.0
) -> dict[str, float]:
    """Return coverage where there is an interval, its half-width, and the shares of cuts and verdicts."""
    generator = np.random.default_rng(int(1e6 * correlation + 1e3 * variation + count))
    covered, widths, cut, judged, covered_judged, refused = 0, [], 0, 0, 0, 0
    for _ in range(repetitions):
        measured = []
        for ranks, median_ms in ((1, 50.0), (2, 25.0 / TRUTH)):
            values = series(
                generator,
                count,
                median_ms=median_ms,
                variation=variation,
                correlation=correlation,
                outliers=OUTLIERS,
            )
            if shift:
                values[: count // 3] *= 1.0 + shift  # the longer stretch behind it is what counts
            measured.append(Measurement(ranks=ranks, basis="unprofiled", series=clean(values)))
        base, other = points(measured)
        bounds = efficiency(base, other, "strong").steady_interval
        cut += sum(len(run.series.segments) > 1 for run in measured if run.series is not None)
        if bounds is None:
            refused += 1  # fewer than ten steady steps are left
            continue
        holds = bounds[0] <= TRUTH <= bounds[1]
        covered += holds
        widths.append(50.0 * (bounds[1] - bounds[0]) / TRUTH)
        if not base.lacking() and not other.lacking():
            judged += 1
            covered_judged += holds
    return {
        "coverage": covered / (repetitions - refused),
        "half-width %": float(np.median(widths)),
        "cut": cut / 2 / repetitions,
        "verdicts": judged / repetitions,
        "coverage of verdicts": covered_judged / judged if judged else float("nan"),
    }


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return middle - half, middle + half


def main() -> None:
    """Print one row a setting."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=500)
    given = parser.parse_args()
    resampling.RESAMPLES = given.resamples
    settings = [(count, 0.0, 0.03, 0.0) for count in (12, 30, 60, 120)]
    settings += [(60, 0.0, variation, 0.0) for variation in (0.01, 0.08)]
    settings += [(60, correlation, 0.03, 0.0) for correlation in (0.3, 0.5, 0.7, 0.9)]
    settings += [(60, 0.5, variation, 0.0) for variation in (0.01, 0.08)]
    settings += [(120, correlation, 0.03, 0.0) for correlation in (0.5, 0.9)]
    settings += [(90, correlation, 0.01, 0.1) for correlation in (0.0, 0.5)]
    print(
        f"{given.repetitions} repetitions, {given.resamples} resamples, 3 % outliers of 1.5 times"
    )
    print("steps  corr  CV %  shift  coverage [95 %]        half-width %  cut    verdicts  theirs")
    for count, correlation, variation, shift in settings:
        begun_s = time.monotonic()
        found = measure(count, correlation, variation, given.repetitions, shift)
        low, high = wilson(found["coverage"], given.repetitions)
        print(
            f"{count:5d}  {correlation:4.1f}  {100 * variation:4.0f}  {100 * shift:4.0f} %  "
            f"{found['coverage']:.3f} [{low:.3f}, {high:.3f}]  {found['half-width %']:11.2f}  "
            f"{found['cut']:.3f}  {found['verdicts']:8.2f}  {found['coverage of verdicts']:6.3f}"
            f"   {time.monotonic() - begun_s:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
