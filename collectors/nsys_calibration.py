"""What nsys costs on this host, by kind of event.

The loops of `probes` run twice: at the end of the timing run, whose processes nsys did not start,
and at the end of the recorded window, while nsys collects. A mark tells the reader where the
second ones begin, so that they are not taken for training. The two are different processes, so
the rounds are not paired: the difference is that of the medians, and its interval is made of the
like intervals of both, which is wider than need be.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trace_analyzer.bundle import Role, default_name
from trace_analyzer.calibration_facts import NSYS
from trace_analyzer.capture_marks import CALIBRATION_MARK
from trace_analyzer.collectors import calibration
from trace_analyzer.collectors.contents import CALIBRATION_HALVES
from trace_analyzer.collectors.options import Options
from trace_analyzer.collectors.probes import Probe, probes
from trace_analyzer.collectors.rendezvous import Rendezvous

# Every call is an event in the recording: fewer of them, but as many rounds.
CALLS_DIVISOR = 4
LEAST_CALLS = 2

Rounds = dict[str, list[float]]  # probe → µs a call, one value a round


def plain_path(folder: Path, rank: int) -> Path:
    """Return where the timing run leaves its half until the recorded run comes."""
    return folder / CALIBRATION_HALVES.replace("*", str(rank))


def measure_plain(options: Options, rank: int, *, together: bool) -> None:
    """Run the loops without nsys and keep the times for `measure_recorded`."""
    rounds = _rounds(options, together=together)
    plain_path(options.path, rank).write_text(json.dumps(rounds), encoding="utf-8")


def measure_recorded(options: Options, rank: int, *, together: bool) -> Path | None:
    """Run the loops while nsys collects; return the calibration file.

    Nothing is run and None returned where rank 0 has no times without nsys to compare with. All
    ranks call this together, with nothing left to do on the device.
    """
    plain = plain_path(options.path, rank)
    meeting = Rendezvous("trace-analyzer/nsys-calibration")
    meeting.meet()
    if not meeting.share(int(plain.exists())):
        return None
    torch.cuda.nvtx.mark(CALIBRATION_MARK)
    recorded = _rounds(options, together=together)
    meeting.meet()  # nobody stops nsys before all are through
    if not plain.exists():
        return None
    before: Rounds = json.loads(plain.read_text(encoding="utf-8"))
    plain.unlink()
    path = options.path / default_name(Role.CALIBRATION, rank)
    text = json.dumps(document(options, rank, before, recorded), indent=1) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


def document(options: Options, rank: int, plain: Rounds, recorded: Rounds) -> dict[str, Any]:
    """Return the document of `calibration.schema.json`."""
    return {
        **calibration.head(options, rank, NSYS),
        "rounds": calibration.ROUNDS,
        "classes": [
            _cost(probe, plain[probe.name], recorded[probe.name])
            for probe in _chosen(options)
            if plain.get(probe.name) and recorded.get(probe.name)
        ],
    }


def _rounds(options: Options, *, together: bool) -> Rounds:
    chosen = [probe for probe in _chosen(options) if together or not probe.collective]
    return calibration.rounds_of(chosen, Rendezvous("trace-analyzer/calibration"))


def _chosen(options: Options) -> list[Probe]:
    return [
        dataclasses.replace(probe, calls=max(LEAST_CALLS, probe.calls // CALLS_DIVISOR))
        for probe in probes(options)
    ]


def _cost(probe: Probe, plain: Sequence[float], recorded: Sequence[float]) -> Mapping[str, Any]:
    before, after = statistics.median(plain), statistics.median(recorded)
    low_before, high_before = calibration.median_interval(plain)
    low_after, high_after = calibration.median_interval(recorded)
    return {
        "name": probe.name,
        "calls": probe.calls,
        "unprofiled_us": round(before, 4),
        "profiled_us": round(after, 4),
        "delta_us": round(after - before, 4),
        "delta_interval_us": [
            round(low_after - high_before, 4),
            round(high_after - low_before, 4),
        ],
    }
