"""Symptoms that users reported of links, reductions and NCCL: their cause comes first."""

from __future__ import annotations

import pytest

from tests.rules.loop import all_codes, context_of
from tests.rules.ranks import Ranks
from tests.rules.reported import FULL, MB, ddp, fsdp, logged, whole
from trace_analyzer.model import Run


def assert_reduced_once(run: Run, fixed: Run) -> None:
    """The first finding is the accumulation, and gives back what the fixed program takes less."""
    slow, fast = context_of(run), context_of(fixed)
    finding = whole(slow).findings[0]
    assert (finding.code, finding.ranks) == ("COMM005", [0, 1])
    assert [item.code for item in whole(fast).findings] == []
    less_ms = (slow.step_ns - fast.step_ns) / 1e6
    assert finding.recoverable_ms == pytest.approx(less_ms, rel=0.03)


def test_accumulation_that_reduces_every_micro_batch_over_hosts() -> None:
    # Two hosts over InfiniBand: no sockets in the log, and no reference for the network.
    run = logged(ddp(4, gbs=20.0), "NET", "IB", nodes=2)
    once = logged(ddp(4, gbs=20.0, each=False), "NET", "IB", nodes=2)
    assert_reduced_once(run, once)


def test_accumulation_of_fsdp2_whose_no_sync_does_nothing() -> None:
    # Four micro-batches take four times as long as one: the context was ignored.
    run = fsdp(4, gbs=40.0, gpu="no NVLink", layer=96 * MB)
    assert_reduced_once(run, fsdp(4, gbs=40.0, gpu="no NVLink", layer=96 * MB, each=False))


def test_three_hosts_over_10_gigabit_ethernet() -> None:
    run = logged(ddp(gbs=1.1, world=3, channels=2), "NET", "Socket", nodes=3)
    assert all_codes(run)[0] == ("COMM004", [0, 1, 2])


def test_two_hosts_without_infiniband() -> None:
    run = logged(fsdp(gbs=2.0, world=4, channels=2), "NET", "Socket", nodes=2)
    found = whole(run)
    assert (found.findings[0].code, found.findings[0].ranks) == ("COMM004", [0, 1, 2, 3])
    assert "TCP sockets" in found.findings[0].title


@pytest.mark.parametrize(
    ("gpu", "way"), [("NVIDIA A10G", "PHB"), ("NVIDIA GeForce RTX 3090", "SYS")]
)
def test_sharded_model_over_pcie(gpu: str, way: str) -> None:
    """The same script is fast on one GPU, and NCCL fills the profile on several."""
    found = whole(logged(fsdp(gbs=5.0, world=4, gpu=gpu, channels=2), "SHM", path=way))
    assert (found.findings[0].code, found.findings[0].ranks) == ("COMM004", [0, 1, 2, 3])
    assert "over PCIe at 5.0 GB/s" in found.findings[0].title
    assert found.findings[0].basis == "ceiling"


def test_two_gpus_over_pcie_gain_nothing() -> None:
    """Copies between GPUs over PCIe were slower than through host memory: either way PCIe is named."""
    for kind, gbs in (("P2P", 6.0), ("SHM", 9.0)):
        run = logged(ddp(gbs=gbs, gpu="Quadro RTX 8000", channels=2), kind, path="PHB")
        found = whole(run)
        assert (found.findings[0].code, found.findings[0].ranks) == ("COMM004", [0, 1])
        assert "NCCL_P2P_DISABLE=1" in " ".join(found.findings[0].actions)


def test_copies_between_gpus_that_access_control_sends_through_the_cpu() -> None:
    run = logged(ddp(gbs=1.5, gpu="NVIDIA RTX 5880 Ada Generation", channels=2), "P2P", path="PHB")
    finding = whole(run).findings[0]
    assert (finding.code, finding.ranks) == ("COMM004", [0, 1])
    assert "ACS" in " ".join(finding.actions)


def test_nvlink_that_is_not_used_is_no_matter_of_pcie() -> None:
    # Without peer-to-peer copies NCCL's log has no NVLink, but the GPU's name has.
    finding = whole(logged(ddp(gbs=20.0, channels=4, bucket=128 * MB), "SHM", path="SYS")).findings[
        0
    ]
    assert finding.code == "COMM004"
    assert "of 323 GB/s over host memory (SHM)" in finding.title


def test_links_over_pcie_that_backward_hides_cost_nothing() -> None:
    run = ddp(gbs=20.0, gpu="NVIDIA A10G", channels=2, bucket=1 * MB)
    assert all_codes(logged(run, "P2P", path="PIX")) == []


def contended(operation: str, channels: int, block: int = 544) -> Run:
    """Return ranks whose kernels run beside communication in one step, and alone in the next."""
    ranks = Ranks()
    for number in range(8):
        ranks.step()
        if number % 2:
            ranks.kernels(12, 100, grid=FULL)
        ranks.collective(600 * MB, operation=operation, channels=channels, block=block)
        ranks.kernels(12, 190, grid=FULL)
        ranks.join()
        if not number % 2:
            ranks.kernels(12, 100, grid=FULL)
        ranks.kernels(1, 100, "adam", grid=FULL)
    return ranks.run()


def test_send_and_receive_beside_matrix_products_slow_both() -> None:
    """One block of a grid takes little of the GPU: memory is what both want, and no setting is wrong."""
    found = whole(contended("sendrecv", 1, 512))
    assert [item.code for item in found.findings] == []
    (check,) = [item for item in found.checks if item.code == "COMM008"]
    assert "matrix products 1.90 times as long; no group has channels to spare" in check.reason


def test_more_channels_than_needed_slow_what_runs_beside() -> None:
    finding = whole(contended("allreduce", 32)).findings[0]
    assert (finding.code, finding.kind) == ("COMM008", "opportunity")
