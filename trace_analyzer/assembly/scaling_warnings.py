"""What to know about the runs of a scaling document before believing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trace_analyzer.analyses.unprofiled import unprofiled_step
from trace_analyzer.assembly.header import steps_doc, warning_docs
from trace_analyzer.findings import WarningDoc
from trace_analyzer.scaling_document import Difference, ScalingPoint

if TYPE_CHECKING:
    from trace_analyzer.analyses.study import Study
    from trace_analyzer.assembly.scaling_input import ScalingInput

_PERTURBED = (
    "of the parts of its step, waiting and late launches are cut down to what the timed step leaves "
    "room for"
)
_ORDER = ("error", "warning", "note")


def scaling_warnings(
    inputs: Sequence[ScalingInput], docs: Sequence[ScalingPoint], *, profiled: bool
) -> list[WarningDoc]:
    """Return the warnings of the comparison, then those of every run, worst first."""
    found: list[WarningDoc] = []
    for doc in docs:
        found += comparability_warnings(
            doc.differences, f"{docs[0].ranks} and {doc.ranks} ranks", "no efficiency is given"
        )
    if any(doc.comparable is None for doc in docs):
        found.append(
            _warning(
                "TRC013",
                "note",
                "whether the runs do the same work is not checked: there is no trace of both",
                "batch, precision, versions and program are taken to be the same",
            )
        )
    if profiled:
        found.append(
            _warning(
                "TRC003",
                "warning",
                "the steps were taken under the profiler",
                "it slows ranks unevenly, so that several lose more than one: the efficiency without "
                "it is higher",
            )
        )
    for item in inputs:
        if item.study is not None:
            found += study_warnings(item.name, item.study, _PERTURBED)
        found += [
            _warning(w.code, w.severity.value, f"{w.message} ({item.name})", w.effect)
            for w in item.warnings
        ]
    return sorted(found, key=lambda item: _ORDER.index(item.severity))


def study_warnings(name: str, study: Study, perturbed: str) -> list[WarningDoc]:
    """Return the data warnings of a run that are more than notes, with its name.

    `perturbed` says what the profiler's cost changes in this document.
    """
    from msgspec.structs import replace

    plain = unprofiled_step(study.run.unprofiled)
    found = []
    for item in warning_docs(study, steps_doc(study, plain)):
        if item.severity != "note":
            effect = perturbed if item.code == "TRC003" else item.effect
            found.append(replace(item, message=f"{item.message} ({name})", effect=effect))
    return found


def comparability_warnings(
    differences: Sequence[Difference], runs: str, effect: str
) -> list[WarningDoc]:
    """Return TRC013: an error that names what refuses, a note that names the rest."""
    refusing = [item for item in differences if item.refuses]
    others = [item for item in differences if not item.refuses]
    found = []
    if refusing:
        named = "; ".join(f"{item.what}: {item.base} against {item.other}" for item in refusing)
        found.append(_warning("TRC013", "error", f"not comparable ({runs}): {named}", effect))
    if others:
        named = "; ".join(f"{item.what}: {item.base} against {item.other}" for item in others)
        found.append(
            _warning(
                "TRC013",
                "note",
                f"the runs ({runs}) differ in {named}",
                "it may explain a difference",
            )
        )
    return found


def _warning(code: str, severity: str, message: str, effect: str) -> WarningDoc:
    return WarningDoc(
        code=code,
        severity=severity,  # type: ignore[arg-type]
        message=message,
        effect=effect,
        count=1,
        ranks=[],
    )
