"""What a newcomer tried: options that do not fit, cut files, closed outputs."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.builder import RankBuilder, run_of
from trace_analyzer.assembly import Options, build_report
from trace_analyzer.cli import cli
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.model import Rank
from trace_analyzer.reports.view_context import command

SAMPLE = str(Path(__file__).parents[2] / "samples" / "slow_cpu_rank")


def said(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["analyze", *words, "-q"])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--steps", "100:200"), "--steps 100:200: no such step; complete ones are 3 to 7"),
        (("--step-range", "nosuch"), "'nosuch': no step is cut by it; ranges that repeat: "),
    ],
)
def test_options_that_fit_no_step_are_refused(words: tuple[str, ...], expected: str) -> None:
    code, text = said(SAMPLE, *words)
    assert code == 2
    assert expected in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["ProfilerStep", "ProfilerStep#N", "ProfilerStep#"])
def test_the_boundary_that_the_report_names_can_be_asked_for(name: str) -> None:
    code, text = said(SAMPLE, "--step-range", name)
    assert code == 0
    assert "cut at ProfilerStep#N" in " ".join(text.split())


def test_a_range_that_encloses_no_step_gives_whole_ones_only() -> None:
    code, text = said(SAMPLE, "--step-range", "Optimizer.step#AdamW.step", "--json", "-")
    assert code == 0
    steps = json.loads(text)["steps"]
    assert steps["count"] == 4
    lengths = [row["step_ms"] for row in json.loads(text)["ranks"][0]["steps"]]
    assert min(lengths) > 0.7 * max(lengths)


def test_the_printed_command_repeats_the_options() -> None:
    builder = RankBuilder()
    builder.profiler_steps([0, 100, 200], 300)
    builder.operation("before", -5, 0)
    for start in (0, 100, 200):
        builder.operation("k", start + 10, start + 90, launch=(start + 1, start + 2))
    options = Options(ranks=(0, 3), steps=(1, 2), redact=False)
    words = shlex.split(command(build_report(run_of(builder.build()), options)))
    assert words[words.index("--ranks") + 1] == "0,3"
    assert words[words.index("--steps") + 1] == "1:2"


def test_a_cut_trace_is_called_cut(tmp_path: Path) -> None:
    whole = gzip.decompress((Path(SAMPLE) / "rank0.pt.trace.json.gz").read_bytes())
    for share in (0.25, 0.45):
        cut = tmp_path / f"cut{share}.json"
        cut.write_bytes(whole[: int(len(whole) * share)])
        code, text = said(str(cut))
        assert code == 0
        assert "The trace is cut off" in text
        assert "ProfilerActivity.CUDA" not in text


def test_an_empty_name_and_standard_input_are_refused() -> None:
    for name in ("", "-"):
        code, text = said(name)
        assert code == 2
        assert "standard input" in text


def test_a_closed_stdout_is_no_defect() -> None:
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m trace_analyzer --version >&-",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_redaction_leaves_no_file_name() -> None:
    code, text = said(SAMPLE, "--redact", "--json", "-")
    assert code == 0
    assert "rank0.pt.trace" not in text
    assert "slow_cpu_rank" not in text


def made_rank() -> Rank:
    builder = RankBuilder()
    builder.operation("k", 10, 90, launch=(1, 2))
    return builder.build()


def test_a_range_is_refused_by_the_library_too() -> None:
    with pytest.raises(TraceAnalyzerError, match="ranges that repeat: none"):
        build_report(run_of(made_rank()), Options(step_range="step"))
