"""What stands beside lateness, links and NCCL."""

from __future__ import annotations

from msgspec.structs import replace

from tests.builder import RankBuilder, run_of
from trace_analyzer.assembly import build_report
from trace_analyzer.findings import ContentionDoc, LateRankDoc, Report, TransportDoc
from trace_analyzer.reports import html
from trace_analyzer.reports.view_beside import late_table, nccl_notes, transport_table


def plain() -> Report:
    builder = RankBuilder()
    builder.operation("gemm", 0, 1000, launch=(-5, -1))
    return build_report(run_of(builder.build()))


def test_nothing_to_say_leaves_nothing() -> None:
    report = plain()
    assert late_table(report) is None
    assert transport_table(report) is None
    assert nccl_notes(report) == []


def test_late_ranks_show_the_parts_that_matter() -> None:
    late = LateRankDoc(
        rank=3,
        last_in=60,
        decided=70,
        persistent=True,
        late_ms=12.5,
        before_ms={"compute": 2.5, "launch_silent": 10.0, "copy": 0.0},
    )
    table = late_table(replace(plain(), late_ranks=[late]))
    assert table is not None
    assert [column.head for column in table.columns] == [
        "Late rank",
        "Others wait",
        "Compute",
        "Silent host",
    ]
    assert [cell.text for cell in table.rows[0]] == ["Rank 3", "12.50", "2.50", "10.00"]


def test_equal_transports_are_joined() -> None:
    ways = [
        TransportDoc(src=a, dst=b, kind="P2P", detail="CUMEM", channels=24)
        for a, b in ((0, 1), (1, 0))
    ]
    ways.append(TransportDoc(src=0, dst=8, kind="NET", detail="IB/GDRDMA", channels=8))
    table = transport_table(replace(plain(), transports=ways))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["P2P/CUMEM", "24", "0 → 1, 1 → 0"],
        ["NET/IB/GDRDMA", "8", "0 → 8"],
    ]


def test_contention_is_a_sentence_in_the_page() -> None:
    found = [
        ContentionDoc(kind="matrix", slowdown=1.62, pairs=60),
        ContentionDoc(kind="other", slowdown=None, pairs=2),
    ]
    notes = nccl_notes(replace(plain(), contention=found))
    expected = (
        "While a collective is on the device, waiting or not, kernels take longer: matrix products "
        "1.62 times."
    )
    assert notes == [expected]
    assert "<html" in html.render(replace(plain(), contention=found))
