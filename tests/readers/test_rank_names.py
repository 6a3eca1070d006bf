"""Ranks from names: what is a rank, and what only looks like one."""

from __future__ import annotations

import pytest

from trace_analyzer.readers.rank_names import rank_from_name, ranks_from_template


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank0.pt.trace.json.gz", 0),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("rank_12.json", 12),
        ("trace.rank=7.json", 7),
        ("global_rank_9_local_rank_1.json", 9),
        ("worker3_step_12.1694128201545.pt.trace.json", 3),
        ("run_r5.json", 5),
        ("rank_3/trace.json", 3),
        ("rank_3/rank_4.json", 4),
        ("node1_2345.1694128201545.pt.trace.json", None),
        ("local_rank_1.json", None),
        ("frank3.json", None),
        ("trace.json", None),
        ("iteration_10/trace.json", None),
    ],
)
def test_rank_from_name(path: str, rank: int | None) -> None:
    assert rank_from_name(path) == rank


@pytest.mark.parametrize(
    ("paths", "ranks"),
    [
        (["a_1.json", "a_0.json"], [1, 0]),
        (["x2/t_0.v3.json", "x2/t_1.v3.json"], [0, 1]),
        (["a_3.json", "a_7.json"], None),
        (["a_0_0.json", "a_1_1.json"], None),
        (["a_0.json", "b_1.json"], None),
        (["a_0.json"], None),
        (["a_0.json", "a_0.json"], None),
    ],
)
def test_ranks_from_template(paths: list[str], ranks: list[int] | None) -> None:
    assert ranks_from_template(paths) == ranks
