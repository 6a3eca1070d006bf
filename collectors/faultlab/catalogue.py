"""Which rule codes count as which cause of the taxonomy.

D6 and A-row causes that two rules share are told apart by a suffix, as the catalogue does.
"""

from __future__ import annotations

CODES_OF_CAUSE: dict[str, tuple[str, ...]] = {
    "D1": ("DATA001",),
    "D2": ("DATA001",),
    "D3": ("DATA001",),
    "D4": ("DATA002",),
    "D5": ("DATA002",),
    "D6-small": ("HOST002",),
    "D6-large": ("DATA003",),
    "D7": ("DATA001",),
    "D8": ("DATA001",),
    "D9": ("DATA004",),
    "L1": ("HOST001",),
    "L2": ("HOST001",),
    "L3": ("HOST004",),
    "L4": ("HOST003",),
    "L5": ("HOST007",),
    "L6": ("HOST003", "HOST007"),
    "L7": ("HOST003",),
    "L8": ("COMM009",),
    "L9": ("HOST002",),
    "L10": ("HOST005",),
    "L11": ("HOST006",),
    "L12": ("HOST001",),
    "A1": ("MEM001",),
    "A2": ("GPU005",),
    "A3": ("DATA003",),
    "C1": ("GPU001",),
    "C2": ("GPU002",),
    "C3": ("GPU003",),
    "C4": ("GPU005",),
    "C5": ("GPU005",),
    "C6": ("HOST006",),
    "C7": ("GPU006",),
    "C8": ("GPU004",),
    "C9": ("GPU004",),
    "N1": ("COMM001",),
    "N2": ("COMM001",),
    "N3": ("COMM002",),
    "N4": ("COMM001",),
    "N5": ("COMM006",),
    "N6": ("COMM005",),
    "N7": ("COMM003",),
    "N8": ("COMM010",),
    "N9": ("COMM004",),
    "N10": ("COMM004",),
    "N11": ("COMM008",),
    "N12-host": ("RANK001",),
    "N12-device": ("RANK002",),
    "N13": ("RANK003",),
    "N14": ("COMM007",),
    "N15": ("COMM002",),
    "N16": ("COMM009",),
    "N17": ("COMM009",),
    "N18": ("COMM007",),
    "N19": ("COMM012",),
    "N20": ("COMM008",),
    "S2": ("STEP001",),
    "S3": ("STEP001",),
    "S4": ("STEP002",),
}

# Nothing is broken where these lead; HOST001 and HOST004 only below a tenth of the step.
OPPORTUNITIES = frozenset({"GPU001", "GPU002", "GPU003", "GPU005", "GPU006", "COMM002", "COMM008"})
OPPORTUNITIES_IF_SMALL = frozenset({"HOST001", "HOST004"})
SMALL_SHARE = 0.10


def codes_of(causes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rule codes that count as any of these causes, in order, each once."""
    return tuple(dict.fromkeys(code for cause in causes for code in CODES_OF_CAUSE[cause]))


def kind_of(codes: tuple[str, ...], share: float) -> str:
    """Return "fault", "opportunity" or "control" for codes and the cost's share of the step."""
    if not codes:
        return "control"
    easy = OPPORTUNITIES | OPPORTUNITIES_IF_SMALL if share < SMALL_SHARE else OPPORTUNITIES
    return "opportunity" if easy.issuperset(codes) else "fault"
