"""Labelled truth: small training programs with faults that can be switched on.

    python -m trace_analyzer.collectors.faultlab record --budget-s 540 --out OUT --state STATE

A run is one training program with one fault (or two, or none). Healthy and faulty steps alternate
in the same minute on the same GPUs, timed without a profiler; what the fault costs is the
difference. The faulty state is then recorded once with torch.profiler or nsys. `label.json` beside
the recording holds the truth.
"""

from __future__ import annotations
