"""What a rule is, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trace_analyzer.findings import Evidence, Range

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.rules.context import Context

Kind = Literal["fault", "opportunity"]
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause that a rule saw, before it is known what fixing it gives back.

    `title` is one sentence that names what is wrong and where, without the gain. `ranks` are those
    on which the cause sits, not those that wait for it. `ceiling_ns` is the time a step, on the
    worst rank, that intervals attribute to the cause. `edit` makes the fix in the replay and
    `edit_text` says what it changed; without an edit the cause is reported on evidence alone.
    `mean` asks for mean steps: for causes that come and go. `kind` overrides the rule's.
    `explains_late` says that the cause makes its ranks late for their peers, so that it
    explains a RANK finding about them. `size` 0…1 orders causes without milliseconds.
    `limits_of_gain` are edits for the least and the most that the fix may give, where a rule knows
    what it cannot know: the interval of the gain reaches to both.
    """

    title: str
    ranks: tuple[int, ...]
    ceiling_ns: float | None
    proof: str
    actions: tuple[str, ...]
    edit: Callable[[Edit], None] | None = None
    edit_text: str = ""
    limits_of_gain: tuple[Callable[[Edit], None], Callable[[Edit], None]] | None = None
    rival: str = ""
    limits: str = ""
    evidence: tuple[Evidence, ...] = ()
    ranges: tuple[Range, ...] = ()
    mean: bool = False
    kind: Kind | None = None
    explains_late: bool = True
    confidence: Confidence = "high"
    confidence_reason: str = ""
    size: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The rule looked and found nothing; `reason` says what it saw, with numbers."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """The rule could not look; `needs` says what would let it."""

    reason: str
    needs: str = ""


Answer = Passed | NotApplicable | list[Cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the catalogue. Its module's docstring has the sections that `explain` shows.

    `needs` says in words what the recording must hold. `opportunity_below` is the share of the
    step under which a fault counts as an opportunity only.
    """

    code: str
    name: str
    kind: Kind
    status: Literal["stable", "experimental"]
    needs: str
    find: Callable[[Context], Answer]
    opportunity_below: float = 0.0
    evidence_only: bool = False
