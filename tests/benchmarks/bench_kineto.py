"""Speed and memory of the torch.profiler reader.

Run by hand: `python tests/benchmarks/bench_kineto.py [--mb 100] [--repeat 5] [FILE…]`. It writes a
synthetic trace in the layout of libkineto and in the proportions of real ones (about 300 bytes an
event), plain and as gzip, and repeats the events of every FILE, a real trace, up to the same size.
Each is read in fresh processes, of which the fastest by CPU time counts. The bars: 180 MB of JSON
a second of one core, and 150 MB + 0.35 bytes a byte of JSON at peak.

Neighbours on the machine change MB/s by a factor of two. So the last column compares with work that
suffers as much: CPU time over that of only decoding the same chunks into the same structs, in the
same process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

MB = 10**6
BAR_MB_PER_S = 180
BAR_BASE_MB, BAR_BYTES_PER_BYTE = 150, 0.35

_BASE_NS = 1_790_857_026_000_000_000
_START_US = 5_131_672_000_000.0
_STEP_US = 30_000.0
_OPERATORS_A_STEP = 1900
_COLLECTIVES_A_STEP = 14
_ID_STRIDE = 10_000_000
_SHIFT_US = 10_000_000


def synthetic(size_bytes: int) -> Iterator[str]:
    """Yield the text of a trace of about this size: steps of operators, calls, arrows, kernels."""
    yield (
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      "id": 0, '
        '"name": "NVIDIA H200", "numSms": 132\n    }\n  ],\n  "distributedInfo": '
        '{"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", '
        '"pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}]},\n'
        f'  "baseTimeNanoseconds": {_BASE_NS},\n  "traceEvents": ['
    )
    dice = random.Random(1)
    written = step = 0
    mark = "\n"
    while written < size_bytes:
        for event in _step(step, dice):
            text = mark + event
            mark = ",\n"
            written += len(text)
            yield text
        step += 1
    yield '\n  ],\n  "traceName": "rank0.pt.trace.json"\n}\n'


def _step(step: int, dice: random.Random) -> Iterator[str]:
    begin = _START_US + step * _STEP_US
    yield _event("user_annotation", f"ProfilerStep#{step}", 2033, 2033, begin, _STEP_US - 50,
                 f'"External id": {step * 10_000 + 1}')  # fmt: skip
    for number in range(_OPERATORS_A_STEP):
        unique = step * 10_000 + number + 2
        at = begin + number * _STEP_US / _OPERATORS_A_STEP
        yield from _operator(unique, number, at, dice)


def _operator(unique: int, number: int, at: float, dice: random.Random) -> Iterator[str]:
    thread = 2033 if number % 3 else 2078
    kind = number % 90
    yield _event(
        "cpu_op", f"aten::operator_{kind}", 2033, thread, at, 9.123,
        f'"External id": {unique},"Sequence number": {unique}, "Fwd thread id": 0, '
        f'"Record function id": 0, "Concrete Inputs": ["", "{kind}", "", ""], '
        '"Input type": ["c10::BFloat16", "Scalar", "", ""], "Input Strides": [[1024, 1], [], [], []], '
        f'"Input Dims": [[{8 * kind}, 1024], [], [], []], "Ev Idx": {unique}',
    )  # fmt: skip
    if number % 5 == 0:
        yield _event("python_function", f"torch/nn/modules/module_{kind}.py({kind}): forward", 2033,
                     thread, at, 12.5,
                     f'"Python parent id": {number}, "Python id": {number + 1}, "Ev Idx": {unique}')  # fmt: skip
    if number % 3:
        return
    yield _event("cuda_runtime", "cudaLaunchKernel", 2033, thread, at + 2, 4.061,
                 f'"External id": {unique}, "cbid": 211, "correlation": {unique}')  # fmt: skip
    yield _arrow("s", unique, 2033, thread, at + 2)
    is_comm = number % (_OPERATORS_A_STEP // _COLLECTIVES_A_STEP // 3 * 3) == 0
    if is_comm:
        yield _event("cpu_op", "record_param_comms", 2033, thread, at, 8.5,
                     f'"External id": {unique}, {_comms(kind)}, "Ev Idx": {unique}')  # fmt: skip
    stream = 17 if is_comm else 7
    name = (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        if is_comm
        else f"void at::native::vectorized_elementwise_kernel<4, at::native::functor_{kind}<float>, "
        "std::array<char*, 2ul> >(int, at::native::functor<float>, std::array<char*, 2ul>)"
    )
    yield _event(
        "kernel", name, 0, stream, at + dice.uniform(5, 9), dice.uniform(1, 20),
        f'"External id": {unique}, "queued": 0, "device": 0, "context": 1,\n      '
        f'"stream": {stream}, "correlation": {unique},\n      "registers per thread": 32, '
        f'\n      "shared memory": 0,\n      "blocks per SM": 0.765152,\n      "warps per SM": 12.24, '
        f'\n      "grid": [{kind + 1}, 1, 1],\n      "block": [128, 1, 1],\n      '
        f'"est. achieved occupancy %": 19{", " + _comms(kind) if is_comm else ""}',
    )  # fmt: skip
    yield _arrow("f", unique, 0, stream, at + 7)


def _event(category: str, name: str, pid: int, tid: int, ts: float, dur: float, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _arrow(phase: str, unique: int, pid: int, tid: int, ts: float) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}", "id": {unique}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
    )


def _comms(kind: int) -> str:
    elements = 1024 * (kind + 1)
    return (
        f'"Collective name": "allreduce", "In msg nelems": {elements}, "Out msg nelems": {elements}, '
        '"Group size": 2, "dtype": "Float", "In split size": "[]", "Out split size": "[]", '
        '"Process Group Name": "0", "Process Group Description": "default_pg", '
        '"Process Group Ranks": "[0, 1]"'
    )


def repeated(source: Path, size_bytes: int) -> Iterator[bytes]:
    """Yield a real trace whose events are repeated, later and with other ids, up to a size."""
    data = source.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    begins = text.index(b"[", text.index(b'"traceEvents"')) + 1
    ends = begins + _list_ends(text[begins:])
    events = text[begins:ends]
    yield text[:begins]
    written = copy = 0
    while written < size_bytes:
        part = events if copy == 0 else b"," + _shifted(events, copy)
        yield part
        written += len(part)
        copy += 1
    yield text[ends:]


def _list_ends(text: bytes) -> int:
    """Return where the last event of the list ends."""
    letters = text.decode("latin-1")  # a letter a byte
    _, end = json.JSONDecoder(strict=False).raw_decode("[" + letters)
    return letters.rindex("}", 0, end - 1) + 1


def _shifted(events: bytes, copy: int) -> bytes:
    def later(match: re.Match[bytes]) -> bytes:
        return match[1] + str(Decimal(match[2].decode()) + copy * _SHIFT_US).encode()

    def other(match: re.Match[bytes]) -> bytes:
        return match[1] + str(int(match[2]) + copy * _ID_STRIDE).encode()

    moved = re.sub(rb'("ts": ?)([\d.]+)', later, events)
    return re.sub(rb'("(?:correlation|id|[Ee]xternal id)": ?)([1-9]\d*)', other, moved)


_CHILD = """
import sys, time
from pathlib import Path
from trace_analyzer.readers import kineto
cpu_s, wall_s = time.process_time(), time.perf_counter()
rank = kineto.read(Path(sys.argv[1]))
cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
peak_kib = next(line.split()[1] for line in open("/proc/self/status") if "VmHWM" in line)
print(cpu_s, wall_s, peak_kib, len(rank.operations) + len(rank.calls) + len(rank.events))
"""


def measure(path: Path, repeat: int) -> tuple[float, float, float, int]:
    """Return CPU s, wall s and peak MB of the fastest of several fresh processes, and rows read."""
    runs = []
    for _ in range(repeat):
        out = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)], check=True, capture_output=True, text=True
        ).stdout
        cpu_s, wall_s, peak_kib, rows = out.split()
        runs.append((float(cpu_s), float(wall_s), int(peak_kib) * 1024 / MB, int(rows)))
    return min(runs)


def against_decoding(path: Path, repeat: int) -> float:
    """Return CPU time of reading over that of only decoding, both in this process, in turn."""
    from trace_analyzer.readers import kineto
    from trace_analyzer.readers.kineto_anomalies import Anomalies
    from trace_analyzer.readers.kineto_document import read_document
    from trace_analyzer.readers.kineto_stream import TextStream

    ratios = []
    for _ in range(repeat):
        started = time.process_time()
        read_document(iter(TextStream(path, "")), lambda events, text: None, Anomalies())
        decoded = time.process_time()
        kineto.read(path)
        ratios.append((time.process_time() - decoded) / (decoded - started))
    return sorted(ratios)[len(ratios) // 2]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="real traces to repeat")
    parser.add_argument("--mb", type=int, default=100, help="MB of JSON a trace")
    parser.add_argument("--repeat", type=int, default=5, help="processes a trace")
    options = parser.parse_args()
    _say(f"{'trace':44} {'MB':>6} {'B/row':>6} {'CPU s':>6} {'MB/s':>6} {'wall':>6} "
          f"{'peak MB':>8} {'bar MB':>7} {'÷ decode':>9}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "synthetic.json")
        with plain.open("w", encoding="utf-8") as stream:
            stream.writelines(synthetic(options.mb * MB))
        _print_row("synthetic", plain, plain.stat().st_size, options.repeat)
        packed = Path(folder, "synthetic.json.gz")
        packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
        _print_row("synthetic, gzip", packed, plain.stat().st_size, options.repeat)
        for source in options.files:
            with plain.open("wb") as binary:
                binary.writelines(repeated(source, options.mb * MB))
            label = f"{source.parent.name}/{source.name}"[-44:]
            _print_row(label, plain, plain.stat().st_size, options.repeat)


def _print_row(label: str, path: Path, json_bytes: int, repeat: int) -> None:
    cpu_s, wall_s, peak_mb, rows = measure(path, repeat)
    bar_mb = BAR_BASE_MB + BAR_BYTES_PER_BYTE * json_bytes / MB
    ratio = against_decoding(path, repeat)
    _say(f"{label:44} {json_bytes / MB:6.0f} {json_bytes / rows:6.0f} {cpu_s:6.2f} "
          f"{json_bytes / MB / cpu_s:6.0f} {wall_s:6.2f} {peak_mb:8.0f} {bar_mb:7.0f} {ratio:9.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
