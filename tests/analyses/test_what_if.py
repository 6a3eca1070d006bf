"""Named changes: what they mean, what they cannot be, and that they only ever go one way."""

from __future__ import annotations

import pytest

from tests.traces import real_trace
from trace_analyzer.analyses.replay.replay import Replay, replay
from trace_analyzer.analyses.replay.what_if import CHANGES, parse, what_if
from trace_analyzer.analyses.study import study
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.readers.discovery import open_run


@pytest.fixture(scope="module")
def late() -> Replay:
    """Return the replay of a run whose rank 1 is late."""
    replayed = replay(study(open_run(str(real_trace("h200-ddp/slow_cpu_rank")))), 34.26e6)
    assert isinstance(replayed, Replay)
    return replayed


@pytest.mark.parametrize("name", [name for name, item in CHANGES.items() if item.takes_factor])
def test_a_factor_of_one_changes_nothing(late: Replay, name: str) -> None:
    assert what_if(late, f"{name}=1").gain.gain_ns == 0.0


def test_less_host_time_is_never_slower(late: Replay) -> None:
    left = [what_if(late, f"host={factor}").gain.left_ns for factor in (1, 0.5, 0)]
    assert left[0] > left[1] >= left[2]


def test_no_straggler_gives_what_the_late_rank_costs(late: Replay) -> None:
    assert what_if(late, "no-straggler").gain.gain_ns == pytest.approx(8.5e6, rel=0.2)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fast", "unknown; it can be"),
        ("bandwidth", "needs a factor"),
        ("bandwidth=0", "needs a factor"),
        ("host=-1", "needs a factor"),
        ("host=nan", "needs a factor"),
        ("kernels=1e-300", "0 or from 0.001 to 1000"),
        ("bandwidth=1e-308", "a factor, from 0.001 to 1000"),
        ("bandwidth=1e9", "from 0.001 to 1000"),
        ("perfect-overlap=2", "takes no factor"),
    ],
)
def test_what_cannot_be_asked_is_refused(spec: str, says: str) -> None:
    with pytest.raises(TraceAnalyzerError, match=says):
        parse(spec)


def test_a_multiplication_sign_may_stand_before_the_factor() -> None:
    assert parse("bandwidth=×2") == parse("bandwidth=x2") == ("bandwidth", 2.0)
