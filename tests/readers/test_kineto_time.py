"""Microseconds as decimal text become exact integer nanoseconds."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer.readers import kineto_time
from trace_analyzer.schema import NA_INT64


def _convert(tokens: list[str], decimals: int = 3) -> list[int]:
    times = kineto_time.nanoseconds(" ".join(tokens).encode(), len(tokens), decimals)
    return [int(value) for value in times.ns]


def test_tokens_of_every_writer() -> None:
    assert _convert(
        ["5131672191591.327", "1712195495519695.8", "1712195495519689.0", "1623142623460111", "0"]
    ) == [
        5131672191591327,
        1712195495519695800,
        1712195495519689000,
        1623142623460111000,
        0,
    ]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("-12.5", -12500),
        ("1.5e3", 1_500_000),
        ("1E+2", 100_000),
        ("-0.001", -1),
        ("0.0005", 0),  # half to even
        ("0.0015", 2),
        ("7.12345678", 7123),
        ("9223372036854775.807", 2**63 - 1),
        ("9223372036854775.808", NA_INT64),
        ("1e400", NA_INT64),
        ("1e999999999", NA_INT64),
        ("1e-999999999", 0),
        ("NaN", NA_INT64),
        ("null", NA_INT64),
        ('""', NA_INT64),
        ("[1]", NA_INT64),
    ],
)
def test_odd_tokens_among_regular_ones(token: str, expected: int) -> None:
    assert _convert([token]) == [expected]
    assert _convert(["1.250", token, "3"]) == [1250, expected, 3000]


def test_numbers_in_quotes_are_converted_and_counted() -> None:
    times = kineto_time.nanoseconds(b'"4458676524670.502" 1 "x" "2.5"', 4)
    assert times.ns.tolist() == [4458676524670502, 1000, NA_INT64, 2500]
    assert times.texts == 2


def test_nanosecond_stamps() -> None:
    assert _convert(["1712195495519689123", "17.5"], decimals=0) == [1712195495519689123, 18]


def test_empty_and_mismatched() -> None:
    assert kineto_time.nanoseconds(b"", 0).ns.tolist() == []
    with pytest.raises(ValueError, match="3 tokens, not 2"):
        kineto_time.nanoseconds(b"1 2 3", 2)


_NUMBERS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.decimals(-(10**14), 10**14, places=3, allow_nan=False).map(str),
    st.decimals(0, 10**14, places=1, allow_nan=False).map(lambda value: f"{value:f}"),
    st.floats(0, 1e13, allow_nan=False).map(repr),
    st.floats(0, 1e16, allow_nan=False).map(lambda value: f"{value:e}"),
)


@given(st.lists(_NUMBERS, min_size=1, max_size=30))
def test_equals_decimal(tokens: list[str]) -> None:
    expected = []
    for token in tokens:
        scaled = Decimal(token) * 1000
        value = int(scaled.to_integral_value(ROUND_HALF_EVEN))
        expected.append(value if abs(value) < 2**63 else NA_INT64)
    assert _convert(tokens) == expected


def test_stays_exact_where_float64_is_not() -> None:
    tokens = [f"{1712195495519689 + i}.{i % 1000:03d}" for i in range(5000)]
    expected = [(1712195495519689 + i) * 1000 + i % 1000 for i in range(5000)]
    assert _convert(tokens) == expected
    as_float = np.rint(np.array(tokens, dtype=np.float64) * 1000).astype(np.int64)
    assert np.count_nonzero(as_float != expected) > 4000
