"""Clocks, power, temperature and traffic of the GPUs beside a run, ten times a second.

A process of its own, so that nothing of it takes time from the ranks: `start_process` and
`stop_process`, or `python -m trace_analyzer.collectors.sampler FOLDER`. Needs nvidia-ml-py, and
writes one row a sample and GPU to `gpu{g}.csv` at once; at the end the files become Parquet where
pyarrow is installed. `g` counts the GPUs as the driver does.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from trace_analyzer.bundle import Role, default_name
from trace_analyzer.collectors.options import package_root
from trace_analyzer.collectors.processes import descends_from

HERTZ = 10.0
SLOW_EVERY = 10  # samples: PCIe counters take the driver 20 ms, process lists a few
STOP_SECONDS = 20.0

# Column → what it holds. Empty where the GPU or the driver does not tell, or not in this sample.
COLUMNS = {
    "time_unix_ns": "when the row was read",
    "sm_clock_mhz": "clock of the multiprocessors",
    "memory_clock_mhz": "clock of the memory",
    "clock_limit_reasons": "bits of nvmlClocksEventReasons: why the clock is not higher",
    "power_w": "board power",
    "temperature_c": "GPU temperature",
    "gpu_utilization_pct": "share of time with any kernel, over the driver's last period",
    "memory_utilization_pct": "share of time with memory traffic, over the same period",
    "memory_used_bytes": "memory in use by all processes",
    "pcie_sent_bytes_per_s": "over the last 20 ms, once a second",
    "pcie_received_bytes_per_s": "over the last 20 ms, once a second",
    "nvlink_sent_bytes": "over all links since the driver started",
    "nvlink_received_bytes": "over all links since the driver started",
    "processes": "processes with memory on this GPU, once a second",
    "foreign_processes": "of these, those that the job did not start; empty where not known",
    "foreign_memory_bytes": "memory of the foreign ones",
}


def available() -> bool:
    """Whether nvidia-ml-py is installed."""
    return importlib.util.find_spec("pynvml") is not None


class GpuReader:
    """Reads one row of `COLUMNS` from one GPU. `nvml` is the initialised pynvml module."""

    def __init__(self, nvml: Any, index: int, root_pid: int) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._root_pid = root_pid
        self._absent: set[tuple[Any, ...]] = set()  # questions that this GPU does not answer

    def read(self, *, slow: bool) -> dict[str, Any]:
        """Return the row of this moment; `slow` adds what takes the driver long."""
        nvml = self._nvml
        use = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        power = self._ask("nvmlDeviceGetPowerUsage")
        row: dict[str, Any] = {
            "time_unix_ns": time.time_ns(),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            # The older name of the question works with every driver.
            "clock_limit_reasons": self._ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
            "power_w": None if power is None else power / 1000.0,
            "temperature_c": self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "gpu_utilization_pct": None if use is None else use.gpu,
            "memory_utilization_pct": None if use is None else use.memory,
            "memory_used_bytes": None if memory is None else int(memory.used),
        }
        row.update(self._nvlink())
        if slow:
            for column, counter in (
                ("pcie_sent_bytes_per_s", nvml.NVML_PCIE_UTIL_TX_BYTES),
                ("pcie_received_bytes_per_s", nvml.NVML_PCIE_UTIL_RX_BYTES),
            ):
                rate = self._ask("nvmlDeviceGetPcieThroughput", counter)
                row[column] = None if rate is None else rate * 1024
            row.update(self._processes())
        return row

    def _ask(self, question: str, *arguments: Any) -> Any:  # noqa: ANN401
        if (question, *arguments) in self._absent:
            return None
        try:
            return getattr(self._nvml, question)(self._handle, *arguments)
        except self._nvml.NVMLError_NotSupported:
            self._absent.add((question, *arguments))
        except self._nvml.NVMLError:
            pass  # this time; the cell stays empty
        return None

    def _nvlink(self) -> dict[str, int]:
        fields = [
            (name, getattr(self._nvml, field, None))
            for name, field in (
                ("nvlink_sent_bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
                ("nvlink_received_bytes", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"),
            )
        ]
        asked = [(name, field) for name, field in fields if field is not None]
        # A field may be narrowed to one link by a scope; all ones mean every link.
        values = self._ask("nvmlDeviceGetFieldValues", tuple((f, 0xFFFFFFFF) for _, f in asked))
        if values is None:
            return {}
        return {
            name: int(value.value.ullVal) * 1024
            for (name, _), value in zip(asked, values, strict=True)
            if value.nvmlReturn == self._nvml.NVML_SUCCESS
        }

    def _processes(self) -> dict[str, int]:
        running = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if running is None:
            return {}
        foreign = [item for item in running if not descends_from(item.pid, self._root_pid)]
        counts = {"processes": len(running)}
        # In a container the driver's process ids are the host's: then none of them is ours.
        if len(foreign) < len(running):
            counts["foreign_processes"] = len(foreign)
            counts["foreign_memory_bytes"] = sum(int(p.usedGpuMemory or 0) for p in foreign)
        return counts


def sample(folder: Path, root_pid: int, stopped: Callable[[], bool], hertz: float = HERTZ) -> int:
    """Write rows until `stopped()`, then turn the files into Parquet; return the rows a GPU."""
    import pynvml

    pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        readers = [GpuReader(pynvml, index, root_pid) for index in range(count)]
        rows = 0
        with _tables(folder, count) as tables:
            due = time.monotonic()
            while not stopped():
                for index, (reader, (writer, stream)) in enumerate(
                    zip(readers, tables, strict=True)
                ):
                    writer.writerow(reader.read(slow=(rows + index) % SLOW_EVERY == 0))
                    stream.flush()
                rows += 1
                due = max(due + 1.0 / hertz, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
    finally:
        pynvml.nvmlShutdown()
    for index in range(count):
        to_parquet(folder / f"gpu{index}.csv")
    return rows


@contextlib.contextmanager
def _tables(folder: Path, count: int) -> Iterator[list[tuple[csv.DictWriter[str], TextIO]]]:
    with contextlib.ExitStack() as stack:
        tables: list[tuple[csv.DictWriter[str], TextIO]] = []
        for index in range(count):
            path = folder / f"gpu{index}.csv"
            # Not over another node's samples, where several record into one shared folder.
            stream = stack.enter_context(path.open("x", encoding="ascii", newline=""))
            writer = csv.DictWriter(stream, list(COLUMNS))
            writer.writeheader()
            tables.append((writer, stream))
        yield tables


def to_parquet(table: Path) -> Path:
    """Replace a CSV of samples by Parquet with the same columns; keep it without pyarrow."""
    if importlib.util.find_spec("pyarrow") is None:
        return table
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    reals = {"power_w"}
    types = {name: pa.float64() if name in reals else pa.int64() for name in COLUMNS}
    rows = arrow_csv.read_csv(
        table, convert_options=arrow_csv.ConvertOptions(column_types=types, null_values=[""])
    )
    target = table.with_name(default_name(Role.SAMPLER, table.stem.removeprefix("gpu")))
    parquet.write_table(rows, target)
    table.unlink()
    return target


def start_process(folder: Path, root_pid: int | None = None) -> subprocess.Popen[bytes] | None:
    """Start sampling into `folder`; None where nvidia-ml-py is missing or there is no GPU.

    `root_pid` is the process whose descendants are the job's own, this one by default.
    """
    if not available() or not Path("/dev/nvidiactl").exists():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (package_root(), environment.get("PYTHONPATH", "")) if part
    )
    root = str(root_pid or os.getpid())
    return subprocess.Popen(  # noqa: S603  # this program's own module
        [sys.executable, "-m", "trace_analyzer.collectors.sampler", str(folder), root],
        env=environment,
        start_new_session=True,  # Ctrl-C is for training; the sampler is told when it has ended
    )


def stop_process(process: subprocess.Popen[bytes] | None) -> bool:
    """Stop sampling; return whether it ended well."""
    if process is None:
        return False
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_SECONDS) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def main(arguments: list[str]) -> int:
    """Sample until SIGTERM, or until the process that asked for it is gone."""
    folder, root = Path(arguments[0]), int(arguments[1])
    asked_by = os.getppid()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:
        sample(folder, root, lambda: bool(ended) or os.getppid() != asked_by)
    except OSError as error:
        print(f"trace-analyzer: GPU samples end here: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
