"""The documents of `scaling` and `compare`: schemas, meanings, units, and the recorded runs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from tests.traces import ROOT, real_trace
from trace_analyzer import comparison_document, scaling_document
from trace_analyzer.cli import cli
from trace_analyzer.document_meanings import COMPARISON, SCALING

DOCUMENTS = {
    "scaling": (scaling_document.schema, SCALING),
    "compare": (comparison_document.schema, COMPARISON),
}
LAB = ROOT / "tests" / "data" / "faultlab"


def declarations(name: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (kind, field, declared)
        for kind, definition in DOCUMENTS[name][0]()["$defs"].items()
        for field, declared in definition["properties"].items()
    ]


def numbers(declared: dict[str, Any]) -> list[dict[str, Any]]:
    found = [declared] if declared.get("type") in {"number", "integer"} else []
    for key in ("items", "additionalProperties"):
        if isinstance(declared.get(key), dict):
            found += numbers(declared[key])
    for alternative in declared.get("anyOf", ()):
        found += numbers(alternative)
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_says_what_it_means(name: str) -> None:
    described = {(kind, field) for kind, field, _ in declarations(name)}
    meanings = DOCUMENTS[name][1]
    assert described == {(kind, field) for kind, fields in meanings.items() for field in fields}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_number_says_unit_statistic_and_scope(name: str) -> None:
    silent = [
        f"{kind}.{field}"
        for kind, field, declared in declarations(name)
        for number in numbers(declared)
        if not (number.get("statistic") and number.get("scope"))
        or (not number.get("unit") and number["statistic"] != "identifier")
    ]
    assert silent == []
    wrong = [
        f"{kind}.{field}"
        for kind, field, declared in declarations(name)
        if field.endswith("_ms")
        for number in numbers(declared)
        if number["unit"].split()[0] != "ms"
    ]
    assert wrong == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_published_schemas_are_schemas(name: str) -> None:
    path = ROOT / "trace_analyzer" / "data" / "schemas" / f"{name}.schema.json"
    published = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    assert published == json.loads(json.dumps(DOCUMENTS[name][0]()))


@cache
def document(*arguments: str) -> dict[str, Any]:
    """Run a command for its JSON, which must fit its schema and repeat."""
    done = CliRunner().invoke(cli, [*arguments, "--json", "-"])
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, DOCUMENTS[arguments[0]][0]())
    return found


def h200(*names: str) -> list[str]:
    return [str(real_trace(f"h200-ddp/{name}")) for name in names]


# -- scaling of recorded runs


def test_t1_against_healthy() -> None:
    found = document("scaling", *h200("t1", "healthy"))
    assert (found["mode"], found["n"], found["comparable"]) == ("strong", 2, True)
    assert found["mode_basis"] == "grids of kernels"
    assert found["efficiency"] == pytest.approx(0.8415, abs=0.0005)
    low, high = found["efficiency_interval"]
    assert low < 0.8415 < high
    assert high - low < 0.02
    assert found["loss_ms"] == pytest.approx(4.08, abs=0.01)
    assert found["verdict"]["state"] == "no-verdict"
    assert "No verdict: 12 steps" in found["verdict"]["headline"]
    assert found["explained"] is True
    assert abs(found["residual_ms"]) <= 0.15 * found["loss_ms"]
    total = sum(term["ms"] for term in found["loss"]) + found["residual_ms"]
    assert total == pytest.approx(found["loss_ms"], abs=1e-4)
    assert found["interval_scope"] == "within a run"


def test_the_efficiency_without_the_leading_fault() -> None:
    found = document("scaling", *h200("t1", "slow_cpu_rank"))["points"][-1]
    assert found["primary"] in {"HOST003", "RANK001"}
    assert found["efficiency"] == pytest.approx(0.64, abs=0.02)
    # The healthy run has 0.84.
    assert found["efficiency_without_primary"] == pytest.approx(0.84, abs=0.04)


def test_the_same_input_gives_the_same_bytes() -> None:
    arguments = ["scaling", *h200("t1", "healthy"), "--json", "-"]
    first, second = (CliRunner().invoke(cli, arguments).stdout_bytes for _ in range(2))
    assert first == second


def test_another_program_is_refused_by_name() -> None:
    found = document("scaling", *h200("t1", "item_sync"))
    assert found["comparable"] is False
    assert (found["efficiency"], found["loss_ms"], found["loss"]) == (None, None, [])
    assert [item["what"] for item in found["differences"] if item["refuses"]] == [
        "operator sequence"
    ]
    assert found["verdict"]["state"] == "not-comparable"
    assert [w["severity"] for w in found["warnings"] if w["code"] == "TRC013"] == ["error"]


def test_weak_scaling_is_known_by_the_grids_too() -> None:
    lab = [str(LAB / f"gpt-small-{kind}.healthy_1.kineto") for kind in ("single", "ddp")]
    found = document("scaling", *lab)
    assert (found["mode"], found["mode_basis"]) == ("weak", "grids of kernels")
    assert found["efficiency"] == pytest.approx(0.9, abs=0.05)
    runs = {run["name"]: run for run in found["runs"]}
    assert all(run["basis"] == "unprofiled" for run in runs.values())
    total = sum(term["ms"] for term in found["loss"]) + found["residual_ms"]
    assert total == pytest.approx(found["loss_ms"], abs=1e-4)


def test_the_wrong_mode_is_refused_by_the_batch() -> None:
    found = document("scaling", *h200("t1", "healthy"), "--mode", "weak")
    assert found["comparable"] is False
    assert "batch of a rank" in [item["what"] for item in found["differences"]]


# -- comparisons of recorded runs


def test_a_run_against_itself() -> None:
    found = document("compare", *h200("healthy", "healthy"))
    assert found["verdict"]["state"] == "same"
    assert found["step"]["change_ms"] == 0.0
    assert found["step"]["distinguishable"] is False
    assert not any(part["distinguishable"] for rank in found["ranks"] for part in rank["parts"])
    assert all(row["kind"] == "indistinguishable" for row in found["kernels"])
    assert [row["state"] for row in found["findings"] if row["state"] != "unchanged"] == []
    assert "it is compared with itself" in [w["effect"] for w in found["warnings"]]


def test_what_was_done_to_a_run_is_what_changed() -> None:
    found = document("compare", *h200("healthy", "nccl_1ch"))
    assert found["verdict"]["state"] == "slower"
    assert found["step"]["basis"] == "unprofiled"
    assert found["step"]["change_ms"] == pytest.approx(22.49, abs=0.05)
    low, high = found["step"]["change_interval_ms"]
    assert low <= 22.49 <= high
    assert {item["what"]: item["other"] for item in found["environment"]} == {
        "NCCL_MAX_NCHANNELS": "1",
        "NCCL_MIN_NCHANNELS": "1",
    }
    focus = next(rank for rank in found["ranks"] if rank["other_rank"] == found["rank"])
    largest = max(focus["parts"], key=lambda part: abs(part["change_ms"]))
    assert (largest["part"], largest["distinguishable"]) == ("transfer", True)
    assert all(row["base_channels"] == 24 for row in found["collectives"])
    assert all(row["other_channels"] == 1 for row in found["collectives"])


def test_a_late_host_is_seen_on_its_own_rank() -> None:
    found = document("compare", *h200("healthy", "slow_cpu_rank"))
    assert found["rank"] == 1
    focus = next(rank for rank in found["ranks"] if rank["other_rank"] == 1)
    told = [part["part"] for part in focus["parts"] if part["distinguishable"]]
    assert "launch:silent" in told
    assert "compute" not in told


def test_the_loader_is_the_change_of_the_public_pair() -> None:
    runs = [str(real_trace(f"public/kineto/resnet50_num_workers_{n}")) for n in (4, 0)]
    found = document("compare", *runs)
    assert (found["verdict"]["state"], found["comparable"]) == ("slower", True)
    assert found["step"]["basis"] == "profiled"
    (rank,) = found["ranks"]
    assert [part["part"] for part in rank["parts"] if part["distinguishable"]] == [
        "launch:data_loading"
    ]
    assert "data loader" in found["verdict"]["proof"]


def test_two_machines_stand_side_by_side_with_nothing_recoverable() -> None:
    folder = "public/HolisticTraceAnalysis/trace_diff"
    runs = [str(real_trace(f"{folder}/{name}.json.gz")) for name in ("control", "test")]
    found = document("compare", *runs)
    assert found["verdict"]["state"] == "not-comparable"
    refusing = [item["what"] for item in found["differences"] if item["refuses"]]
    assert refusing == ["GPU model", "world size", "kernel set"]
    (warning,) = [
        w for w in found["warnings"] if w["code"] == "TRC013" and w["severity"] == "error"
    ]
    for word in ("A100", "V100", "world size: 8 against 2", "kernel set"):
        assert word in warning["message"]
    assert found["base"]["step_ms"] == pytest.approx(76.8, abs=0.1)
    assert found["other"]["step_ms"] == pytest.approx(116.9, abs=0.1)
    assert all(
        row[key] is None
        for row in found["findings"]
        for key in ("base_recoverable_ms", "other_recoverable_ms", "change_ms")
    )


def test_two_recorders_of_one_program() -> None:
    found = document("compare", *h200("healthy"), str(real_trace("h200-ddp-nsys/healthy.sqlite")))
    assert (found["verdict"]["state"], found["comparable"]) == ("no-verdict", True)
    assert [found["base"]["name"], found["other"]["name"]] == ["healthy (kineto)", "healthy (nsys)"]
    assert all(row["kind"] == "indistinguishable" for row in found["kernels"])
    not_compared = {item["what"] for item in found["not_compared"]}
    assert {
        "step times, waiting and late launches",
        "operators",
        "collectives by size",
    } <= not_compared
    told = {p["part"] for r in found["ranks"] for p in r["parts"] if p["distinguishable"]}
    assert told <= {"transfer", "copy"}


def test_one_gpu_against_two_is_sent_to_scaling() -> None:
    found = document("compare", *h200("t1", "healthy"))
    assert [d["what"] for d in found["differences"] if d["refuses"]] == [
        "batch of a rank",
        "world size",
    ]
    assert "trace-analyzer scaling" in found["verdict"]["do_next"]


@pytest.mark.parametrize(
    ("name", "what", "kind"),
    [
        ("unfused-optimizer_2", "optimizer path", "gone"),
        ("full-precision_2", "data types", "new"),
    ],
)
def test_faults_of_the_lab_are_named(name: str, what: str, kind: str) -> None:
    runs = [str(LAB / f"gpt-small-single.{run}.kineto") for run in ("healthy_1", name)]
    found = document("compare", *runs)
    assert found["comparable"] is True
    assert what in [item["what"] for item in found["differences"]]
    assert found["kernels"][0]["kind"] == kind


def test_a_loader_fault_of_the_lab() -> None:
    runs = [
        str(LAB / f"gpt-small-single.{run}.kineto") for run in ("healthy_1", "loader-in-process_1")
    ]
    found = document("compare", *runs)
    assert found["verdict"]["state"] == "slower"
    (rank,) = found["ranks"]
    grown = max(rank["parts"], key=lambda part: float(part["change_ms"]))
    assert grown["part"] == "launch:data_loading"
    assert all(row["kind"] == "indistinguishable" for row in found["kernels"])


def test_paths_of_this_machine_are_in_the_options_only(tmp_path: Path) -> None:
    found = document("scaling", *h200("t1", "healthy"))
    del found["tool"]
    assert str(real_trace("h200-ddp")) not in json.dumps(found)
