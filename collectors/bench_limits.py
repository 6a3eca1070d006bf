"""What the links between this host's GPUs can carry, as the driver describes them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

# usable GB/s a lane and direction by PCIe generation (after line coding)
PCIE_GBS_PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
QUERY_TIMEOUT_S = 20.0
_LINK = re.compile(r"Link \d+:\s*([\d.]+)\s*GB/s")
_NVLINK = re.compile(r"NV(\d+)")


@dataclass(frozen=True, slots=True)
class Limit:
    """GB/s in one direction, and where the number comes from."""

    gbs: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links of one host: speeds of each GPU's NVLinks, the connection matrix, and PCIe."""

    nvlinks_gbs: tuple[tuple[float, ...], ...]
    connections: tuple[tuple[str, ...], ...]
    pcie: tuple[tuple[int, int], ...]  # generation, lanes

    def of_gpu(self, gpu: int) -> Limit | None:
        """Return what one GPU can send to all others together."""
        if gpu < len(self.nvlinks_gbs) and self.nvlinks_gbs[gpu]:
            return _nvlink_limit(self.nvlinks_gbs[gpu])
        return self._pcie_limit(gpu)

    def of_pair(self, source: int, target: int) -> Limit | None:
        """Return what one GPU can send to another one."""
        if max(source, target) >= len(self.connections):
            return None
        match = _NVLINK.fullmatch(self.connections[source][target])
        if match and source < len(self.nvlinks_gbs):
            return _nvlink_limit(self.nvlinks_gbs[source][: int(match.group(1))])
        limits = [limit for gpu in (source, target) if (limit := self._pcie_limit(gpu)) is not None]
        return min(limits, key=lambda limit: limit.gbs, default=None)

    def _pcie_limit(self, gpu: int) -> Limit | None:
        if gpu >= len(self.pcie):
            return None
        generation, lanes = self.pcie[gpu]
        per_lane = PCIE_GBS_PER_LANE.get(generation)
        if per_lane is None:
            return None
        return Limit(round(per_lane * lanes, 1), f"nvidia-smi: PCIe {generation}.0 x{lanes}")


def read_links() -> Links | None:
    """Return the links as nvidia-smi shows them, or None where it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return None
    return parse_links(
        _query("nvlink", "--status"),
        _query("topo", "-m"),
        _query("--query-gpu=pcie.link.gen.max,pcie.link.width.max", "--format=csv,noheader"),
    )


def parse_links(nvlink: str, topology: str, pcie: str) -> Links:
    """Return the links from the text of `nvlink --status`, `topo -m` and a PCIe query."""
    parts = re.split(r"^GPU \d+:.*$", nvlink, flags=re.MULTILINE)[1:]
    speeds = [tuple(float(value) for value in _LINK.findall(part)) for part in parts]
    rows = []
    for line in re.sub(r"\x1b\[[\d;]*m", "", topology).splitlines():
        cells = line.split()
        if "X" in cells and re.fullmatch(r"GPU\d+", cells[0]):
            rows.append(cells[1:])
    count = len(rows)
    numbers = [re.findall(r"\d+", line) for line in pcie.splitlines()]
    return Links(
        nvlinks_gbs=tuple(speeds),
        connections=tuple(tuple(row[:count]) for row in rows),
        pcie=tuple((int(pair[0]), int(pair[1])) for pair in numbers if len(pair) == 2),
    )


def gpu_count() -> int:
    """Return how many GPUs nvidia-smi lists; 0 where it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return 0
    return sum(line.startswith("GPU ") for line in _query("--list-gpus").splitlines())


def _nvlink_limit(speeds: tuple[float, ...]) -> Limit:
    each = speeds[0] if speeds else 0.0
    return Limit(
        round(sum(speeds), 1), f"nvidia-smi: {len(speeds)} NVLinks of {each:g} GB/s a direction"
    )


def _query(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            ["nvidia-smi", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=QUERY_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
