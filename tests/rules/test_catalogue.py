"""The catalogue: one file a rule, documented in fixed sections."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from trace_analyzer import rules as package
from trace_analyzer.findings import DATA_WARNING_NAMES
from trace_analyzer.rules.catalogue import MODULES, chosen, module_of, rules
from trace_analyzer.rules.rule import Rule
from trace_analyzer.rules.sections import SECTIONS, entries, entry, sections_of

FOLDER = Path(package.__file__).parent
# What the contract says is an opportunity as long as nothing else is said of a finding.
OPPORTUNITIES = {"GPU001", "GPU002", "GPU003", "GPU005", "GPU006", "COMM002", "COMM008"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_every_rule_is_documented_in_its_own_file(rule: Rule) -> None:
    sections = sections_of(rule)
    assert tuple(sections) == SECTIONS
    for title, body in sections.items():
        assert body.endswith((".", "?")), title
    assert re.fullmatch(r"(DATA|HOST|MEM|GPU|COMM|RANK|STEP)\d{3}", rule.code)
    assert rule.name.replace("-", "_").replace("_or_mismatched", "") in MODULES
    assert rule.needs
    assert not rule.needs.endswith(".")


def test_every_file_with_a_rule_is_in_the_catalogue() -> None:
    having = {path.stem for path in FOLDER.glob("*.py") if "\nRULE = Rule(" in path.read_text()}
    assert having == set(MODULES)
    assert len(MODULES) == len(set(MODULES)) == len({rule.code for rule in rules()})


def test_kinds_are_those_of_the_contract() -> None:
    found = {rule.code for rule in rules() if rule.kind == "opportunity"}
    assert found - {"HOST001", "HOST004"} == OPPORTUNITIES & {rule.code for rule in rules()}


def test_codes_are_chosen_by_their_beginning() -> None:
    assert {rule.code for rule in chosen(["GPU"], ["GPU001", "GPU002"])} == {
        code for code in (rule.code for rule in rules()) if code.startswith("GPU")
    } - {"GPU001", "GPU002"}
    assert chosen([], []) == rules()
    assert all(not rule.code.startswith("COMM") for rule in chosen([], ["COMM"]))


def test_entries_hold_rules_and_data_warnings() -> None:
    found = entries()
    assert [item.code for item in found][-len(DATA_WARNING_NAMES) :] == list(DATA_WARNING_NAMES)
    assert len(found) == len(rules()) + len(DATA_WARNING_NAMES)
    for item in found:
        assert item.first_sentence.endswith(".")
        assert item.first_sentence.count("\n") == 0


def test_an_entry_is_found_by_code_and_by_name() -> None:
    by_code, by_name = entry(" gpu004"), entry("Slow-Device")
    assert by_code is not None
    assert by_code == by_name
    assert entry("trc005") is not None
    assert entry("GPU999") is None


def test_a_docstring_out_of_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = rules()[0]
    text = module_of(rule)
    parts = re.split(r"(?=\n## )", text)
    for bad in (text.replace(rule.name, "other", 1), "".join([parts[0], *parts[:0:-1]]), parts[0]):
        monkeypatch.setattr("trace_analyzer.rules.sections.module_of", lambda _, bad=bad: bad)
        with pytest.raises(ValueError, match=rule.code):
            sections_of(replace(rule))
