"""The catalogue in words: what `explain`, the list of rules and the documentation are made of.

A rule's text is the docstring of its module, in fixed sections; a data warning's stands below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trace_analyzer.findings import DATA_WARNING_NAMES
from trace_analyzer.rules.catalogue import module_of, rules
from trace_analyzer.rules.rule import Rule

SECTIONS = (
    "What it finds",
    "Why it costs",
    "How it is measured",
    "When it is wrong",
    "What to do",
    "References",
)
WARNING_SECTIONS = ("What it says", "What it changes", "What to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One code of the catalogue. `kind` is fault, opportunity or warning (about the data)."""

    code: str
    name: str
    kind: str
    status: str
    needs: str
    sections: Mapping[str, str]

    @property
    def first_sentence(self) -> str:
        """The first sentence of the first section, on one line."""
        text = " ".join(next(iter(self.sections.values())).split())
        return text.partition(". ")[0].rstrip(".") + "."


def entries() -> tuple[Entry, ...]:
    """Return all codes: rules by code, then data warnings. Raises `ValueError` on a bad docstring."""
    found = [
        Entry(
            code=rule.code,
            name=rule.name,
            kind=rule.kind,
            status=rule.status,
            needs=rule.needs,
            sections=sections_of(rule),
        )
        for rule in rules()
    ]
    found += [
        Entry(
            code=code,
            name=name,
            kind="warning",
            status="stable",
            needs="",
            sections=dict(zip(WARNING_SECTIONS, _WARNINGS[code], strict=True)),
        )
        for code, name in DATA_WARNING_NAMES.items()
    ]
    return tuple(found)


def entry(code: str) -> Entry | None:
    """Return what is known of a code or a name, in any case; None where there is none."""
    wanted = code.strip().lower()
    return next(
        (item for item in entries() if wanted in (item.code.lower(), item.name.lower())), None
    )


def sections_of(rule: Rule) -> dict[str, str]:
    """Return a rule's sections, in order. Raises `ValueError` where they are not the fixed ones."""
    text = module_of(rule)
    head, *parts = text.split("\n## ")
    if head.strip() != f"{rule.code} {rule.name}.":
        raise ValueError(f'{rule.code}: the docstring begins with "{head.strip()}"')
    found: dict[str, str] = {}
    for part in parts:
        title, _, body = part.partition("\n")
        found[title.strip()] = body.strip()
    if tuple(found) != SECTIONS or not all(found.values()):
        raise ValueError(f"{rule.code}: the sections are {', '.join(found) or 'missing'}")
    return found


# What a data warning says, what it changes in the report, and what to do.
_WARNINGS: Mapping[str, tuple[str, str, str]] = {
    "TRC001": (
        "A file ends before its recording does: cut off while it was written or copied, or damaged.",
        (
            "Everything up to the damage is used. What was recorded last is missing, so the last step "
            "is not complete."
        ),
        (
            "Copy the file again from where it was written. If it was cut there, let the program end "
            "before the disk is full or the job is killed, or record fewer steps."
        ),
    ),
    "TRC002": (
        "Some ranks of the run have no readable recording.",
        (
            "Waiting for these ranks cannot be told from transfer, and a late one among them cannot be "
            "named."
        ),
        "Record every rank (`trace-analyzer collect` does), and give the folder that holds all files.",
    ),
    "TRC003": (
        "Steps take longer under the profiler than without it, or the measured times disagree.",
        (
            "Parts of a step, waits and late ranks are those of the profiled run. What fixing a cause "
            "gives back is computed for the run without the profiler."
        ),
        (
            "Record without `with_stack` and `record_shapes`, and let the recorder time some steps without "
            "the profiler; or give their time with `--unprofiled-step-ms`."
        ),
    ),
    "TRC004": (
        (
            "Events are missing: the profiler's buffers overflowed, a kind of event was not recorded, or "
            "kernels hide what they do."
        ),
        "What depends on the missing events is left out or counted elsewhere; the warning says which.",
        "Record fewer steps, or with larger buffers; record CPU and CUDA activities.",
    ),
    "TRC005": (
        "The clocks of ranks differ.",
        (
            "Times are moved by what the ends of matched collectives tell. No order of events on two ranks "
            "is claimed below the error that is left."
        ),
        "Nothing, if the error is small against what is asked. Else synchronise the hosts' clocks.",
    ),
    "TRC006": (
        "Ranks were not recorded over the same time, or their communication does not match.",
        "Collectives without a counterpart are not divided into waiting and transfer.",
        "Start and stop recording at the same step on all ranks.",
    ),
    "TRC007": (
        "Some events have times that cannot be: zero, negative, or days away.",
        "Without a time they are dropped; with a bad duration they count with their start only.",
        "Nothing for a few events. For many, update driver and profiler: the times are lost there.",
    ),
    "TRC008": (
        "The kernels inside CUDA graphs were recorded as one piece.",
        (
            "They count as computing, communication inside them included, or are missing. The replay is "
            "withheld."
        ),
        "Record again with `nsys profile --cuda-graph-trace=node`.",
    ),
    "TRC009": (
        "Parts of a file are not written as its format asks.",
        "What could be read was; what was mended, left out or is missing is counted in the warning.",
        (
            "Nothing for a few events. Otherwise tell whoever writes the file; a script may have changed "
            "it."
        ),
    ),
    "TRC010": (
        "No complete step was recorded, or only one, or nothing marks where steps begin.",
        (
            "Numbers are those of the whole window, of a partial step or of one step; confidence is low and "
            "there are no intervals."
        ),
        (
            "Call `profiler.step()` in every step, mark steps with a range and name it with `--step-range`, "
            "and record at least three."
        ),
    ),
    "TRC011": (
        "A recording does not tell which rank it is, or two say the same.",
        "Ranks are numbered by name, content or order; the report says by which.",
        "Put the rank into the file's name (`rank0`), or record with the process group initialised.",
    ),
    "TRC012": (
        "Times are in another unit than the format says.",
        "They were read in the unit that fits the events.",
        "Nothing, if the step's length in the report is right; otherwise tell whoever writes the file.",
    ),
    "TRC013": (
        "Two runs are not comparable, or whether they are cannot be checked.",
        (
            "Differences between the runs are named; a scaling efficiency or a comparison is withheld or "
            "stated under conditions."
        ),
        "Repeat one of the runs with what the warning names set to the other's value.",
    ),
}
