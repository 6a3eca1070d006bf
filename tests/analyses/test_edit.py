"""Edits of one rank leave what other edits changed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loop import context_of
from tests.rules.ranks import Ranks
from trace_analyzer.analyses.replay.replay import Replay


@pytest.fixture
def slow() -> Replay:
    """Return a run in which rank 1's kernels take twice as long and its host pauses."""
    ranks = Ranks()
    for _ in range(5):
        ranks.step()
        ranks.silent(900, 1)
        ranks.kernels(4, 200, rank=0)
        ranks.kernels(4, 400, rank=1)
        ranks.collective(1_000_000)
        ranks.join()
        ranks.kernels(1, 100, "adam")
    found = context_of(ranks.run()).replay
    assert found is not None
    return found


def test_peers_times_are_set_on_one_rank_only(slow: Replay) -> None:
    edit = slow.edit()
    rows = slow.built.parts[0].op_row
    edit.scale_duration(0, rows, 0.5)
    edit.all_host(0, 0.25)
    halved, quartered = edit.column("op_base_ns").copy(), edit.column("node_gap_ns").copy()
    edit.like_peers(1, host=True, device=True)
    mine, nodes = slow.base.op_rank == 0, edit.node_slice(0)
    np.testing.assert_array_equal(edit.column("op_base_ns")[mine], halved[mine])
    np.testing.assert_array_equal(edit.column("node_gap_ns")[nodes], quartered[nodes])
    assert edit.column("op_base_ns")[~mine].sum() < slow.base.op_base_ns[~mine].sum()


def test_balanced_work_is_the_mean_of_the_ranks(slow: Replay) -> None:
    edit = slow.edit()
    edit.balanced()
    base = edit.column("op_base_ns")
    assert {300_000, 100_000} <= set(base.tolist())
    assert 400_000 not in base[slow.base.step_of_operation() >= 0].tolist()
    gain = slow.gain(edit)
    # Rank 1 computes 0.4 ms less, and everybody waited for it.
    assert gain.gain_ns == pytest.approx(400_000, abs=20_000)
