"""Pickles of plain data: the same result as pickle's own, and nothing else is ever done."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trace_analyzer.readers.plain_pickle import NotPlainError, read_plain_pickle

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 100), 1 << 100)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 1 << 40), inner, max_size=5)
    ),
    max_leaves=30,
)


@settings(max_examples=150, deadline=None)
@given(plain, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_reads_what_pickle_reads(value: Any, protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(value, protocol=protocol)) == value


def test_shared_and_cyclic_lists() -> None:
    shared: list[Any] = [1]
    found = read_plain_pickle(pickle.dumps([shared, shared, {"a": shared}], protocol=2))
    assert found == [[1], [1], {"a": [1]}]
    shared.append(shared)
    cyclic: Any = read_plain_pickle(pickle.dumps(shared, protocol=2))
    assert cyclic[1] is cyclic


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(NotPlainError):
        read_plain_pickle(b"\x80\x02" + data)


def test_every_cut_is_refused() -> None:
    whole = pickle.dumps({"a": [1, 2.5, "text", (None, True)], "b": 1 << 70}, protocol=4)
    for length in range(len(whole)):
        with pytest.raises(NotPlainError):
            read_plain_pickle(whole[:length])


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    data = pickle.dumps({"entries": [Evil(target)]}, protocol=protocol)
    with pytest.raises(NotPlainError, match="does more than hold data"):
        read_plain_pickle(data)
    assert not target.exists()
    pickle.loads(data)
    assert target.exists()  # the pickle does what it is feared to do


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict(a=1),
        {1, 2},
        frozenset({1}),
        b"bytes",
        bytearray(b"x"),
        complex(1, 2),
        Path("x"),
    ],
)
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(NotPlainError):
        read_plain_pickle(pickle.dumps([value], protocol=5))


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",  # GLOBAL, REDUCE
        b"\x80\x02(X\x02\x00\x00\x00lsios\nsystem\n.",  # INST
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02X\x01\x00\x00\x00aQ.",  # BINPERSID
        b"\x80\x02}}b.",  # BUILD
        b"cos\nsystem\n(S'ls'\ntR.",  # protocol 0
    ],
)
def test_instructions_that_look_up_or_call(data: bytes) -> None:
    with pytest.raises(NotPlainError, match="instruction 0x"):
        read_plain_pickle(data)


def test_only_instructions_that_hold_data_are_known() -> None:
    from trace_analyzer.readers.plain_pickle import _INSTRUCTIONS, _MARK, _RECALL, _STOP

    known = {chr(code) for code in (*_INSTRUCTIONS, _MARK, _RECALL, _STOP)}
    names = {item.name for item in pickletools.opcodes if item.code in known}
    assert len(names) == len(known)
    assert not names & {
        "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX",
        "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "FROZENSET", "ADDITEMS", "NEXT_BUFFER",
    }  # fmt: skip


def test_deep_keys_are_refused() -> None:
    deep = b"\x80\x02}" + b")" + b"\x85" * 300_000 + b"Ns."
    with pytest.raises(NotPlainError, match="a key is neither text nor a number"):
        read_plain_pickle(deep)


def test_deep_values_do_no_harm() -> None:
    found = read_plain_pickle(b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".")
    assert isinstance(found, list)


def test_a_large_memo_number_costs_nothing() -> None:
    data = (
        b"\x80\x02]r" + struct.pack("<I", 0xFFFFFFFF) + b"j" + struct.pack("<I", 0xFFFFFFFF) + b"a."
    )
    found: Any = read_plain_pickle(data)
    assert found[0] is found


def test_lengths_beyond_the_file_are_refused() -> None:
    for head in (b"X" + struct.pack("<I", 1 << 31), b"\x8d" + struct.pack("<Q", 1 << 62)):
        with pytest.raises(NotPlainError, match="ends in the middle"):
            read_plain_pickle(b"\x80\x02" + head + b"abc.")
    with pytest.raises(NotPlainError, match="too large"):
        read_plain_pickle(b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".")


def test_containers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.readers.plain_pickle._MAX_CONTAINERS", 10)
    assert read_plain_pickle(pickle.dumps([[]] * 9, protocol=2)) == [[]] * 9
    with pytest.raises(NotPlainError, match="more than 10"):
        read_plain_pickle(pickle.dumps([[] for _ in range(10)], protocol=2))
