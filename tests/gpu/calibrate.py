"""What the profiler costs here, Triton launches included: `python -m tests.gpu.calibrate OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from trace_analyzer.collectors import calibration
from trace_analyzer.collectors.options import Options

torch.compile(lambda x: (x + 1).sin())(torch.zeros(64, device="cuda"))  # a process that compiles
results = {}
for name in ("plain", "shapes", "stacks"):
    options = Options(folder=".", record_shapes=name == "shapes", with_stack=name == "stacks")
    results[name] = calibration.document(options, 0, calibration.measure(options))
    for cost in results[name]["classes"]:
        print(
            name,
            cost["name"],
            cost["unprofiled_us"],
            cost["delta_us"],
            cost["delta_interval_us"],
            cost["cpu_ops_per_call"],
            cost["runtime_calls_per_call"],
        )
Path(sys.argv[1]).write_text(json.dumps(results, indent=1))
