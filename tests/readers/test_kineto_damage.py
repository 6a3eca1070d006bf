"""Damaged and unusual traces: what is kept, what is counted, what is refused."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.readers.kineto_documents import (
    START_US,
    codes,
    document,
    event,
    kernel,
    launch,
    names,
    read,
    write,
)
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import Rank, Severity
from trace_analyzer.readers import kineto, kineto_stream
from trace_analyzer.schema import is_na

FIRST = kernel(START_US, 5, name="first", correlation=1)
LAST = kernel(START_US + 100, 5, name="last", correlation=3)
BETWEEN = 50


def _with(piece: str, *, indent: int | None = 1) -> str:
    """A trace of three events: the one between is given as text."""
    text = json.dumps(document([FIRST, {"placeholder": 1}, LAST]), indent=indent)
    old = json.dumps({"placeholder": 1}, indent=indent)
    if indent is not None:
        old = old.replace("\n", "\n  ")
    assert old in text
    return text.replace(old, piece)


def _odd(more: str = '"correlation": 2', **keys: str) -> str:
    fields = {
        "ph": '"X"',
        "cat": '"kernel"',
        "name": '"odd"',
        "pid": "0",
        "tid": "7",
        "ts": str(START_US + BETWEEN),
        "dur": "5",
        "args": f'{{"device": 0, "stream": 7, {more}}}',
    }
    fields.update(keys)
    return "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items() if value) + "}"


# (what is odd, the event, expected name, expected anomaly in the warnings or "")
KEPT = [
    ("NaN", _odd('"bytes": NaN, "x": 1'), "odd", "not JSON"),
    ("Infinity", _odd('"x": Infinity'), "odd", "not JSON"),
    ("minus infinity", _odd('"x": -Infinity'), "odd", "not JSON"),
    ("inf", _odd('"x": inf'), "odd", "not JSON"),
    ("nan", _odd('"x": nan'), "odd", "not JSON"),
    ("MSVC's nan", _odd('"x": -nan(ind)'), "odd", "not JSON"),
    ("N/A", _odd('"x": N/A, "y": N/A'), "odd", "not JSON"),
    ("nothing odd", _odd(), "odd", ""),
    ("raw line feed", _odd(name='"o\ndd"'), "o\ndd", "control characters"),
    ("raw tab", _odd(name='"o\tdd"'), "o\tdd", "control characters"),
    ("unknown escape", _odd(name='"C:\\lib\\u12"'), "C:\\lib\\u12", "escapes"),
    ("lone surrogate", _odd(name='"o\\ud800dd"'), "o\ufffddd", "surrogate"),
    ("surrogate pair", _odd(name='"\\ud83d\\ude00"'), "\U0001f600", ""),
    ("null name", _odd(name="null"), "unknown", "without a name"),
    ("no name", _odd(name=""), "unknown", "without a name"),
    ("number as name", _odd(name="17"), "17", ""),
    ("null args", _odd(args="null"), "odd", "stream"),
    ("list as args", _odd(args="[1]"), "odd", "stream"),
    ("duplicate keys", _odd('"correlation": 9, "correlation": 2'), "odd", ""),
    ("trailing comma", _odd('"correlation": 2,'), "odd", ""),
    ("nested objects", _odd('"x": {"y": [{"z": {}}]}'), "odd", ""),
    ("text with braces", _odd(name='"{[\\"}],"'), '{[\\"}],'.replace("\\", ""), ""),
    ("ts as text", _odd(ts=f'"{START_US + BETWEEN}.5"'), "odd", "written as text"),
    ("dur as text", _odd(dur='"5.5"'), "odd", "written as text"),
    ("ts with exponent", _odd(ts="5.13167200005e12"), "odd", ""),
    ("External id as text", _odd('"External id": "5"'), "odd", ""),
    ("stream as float", _odd('"stream": 7.0'), "odd", ""),
    ("stream as address", _odd('"stream": "0x7"'), "odd", ""),
    ("stream in words", _odd('"stream": "stream 7"'), "odd", ""),
    ("grid as text", _odd('"grid": "[24, 1, 1]", "block": "(544,1,1)"'), "odd", ""),
    ("bytes as text", _odd('"bytes": "64"'), "odd", ""),
    ("pid as text", _odd(pid='"0"', tid='"stream 7"'), "odd", ""),
    ("float pid", _odd(pid="0.0", tid="7.0"), "odd", ""),
    ("bytes beyond int64", _odd('"bytes": 99999999999999999999'), "odd", "cannot hold"),
    ("device beyond int16", _odd('"context": 4294967295123'), "odd", ""),
    ("fraction as id", _odd('"correlation": 2.5'), "odd", "cannot hold"),
    ("huge float", _odd('"x": 1e400'), "odd", ""),
]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    ("piece", "name", "told"), [pytest.param(*case[1:], id=case[0]) for case in KEPT]
)
def test_odd_event_is_kept(
    piece: str, name: str, told: str, indent: int | None, tmp_path: Path
) -> None:
    rank = read(tmp_path, _with(piece, indent=indent))
    assert names(rank) == ["first", name, "last"]
    start_us = [int(start) // 1000 for start in rank.operations.start_ns]
    assert start_us == [START_US, START_US + BETWEEN, START_US + 100]
    assert rank.operations.stream.tolist() == [7, 7, 7]
    assert rank.operations.device.tolist() == [0, 0, 0]
    if told:
        (warning,) = rank.warnings
        assert told in warning.message
    else:
        assert rank.warnings == ()


def test_values_of_odd_events(tmp_path: Path) -> None:
    rank = read(
        tmp_path,
        _with(_odd('"grid": "[24, 1, 1]", "block": "(544,1,1)", "bytes": "64", "stream": 7.0')),
    )
    assert rank.operations.bytes[1] == 64
    row = rank.operations.launch_config[1]
    assert (rank.configs.grid_x[row], rank.configs.block_x[row]) == (24, 544)
    rank = read(tmp_path, _with(_odd(ts=f'"{START_US + BETWEEN}.5"', dur='"5.5"')))
    assert rank.operations.start_ns[1] == (START_US + BETWEEN) * 1000 + 500
    assert rank.operations.end_ns[1] == (START_US + BETWEEN) * 1000 + 6000
    (warning,) = rank.warnings
    assert warning.count == 2


# (what is wrong, the text in the place of the event, code)
DROPPED = [
    ("unescaped quote", _odd(name='"a"b"'), "TRC009"),
    ("unescaped quotes", _odd(name='"a"b"c"'), "TRC009"),
    ("missing value", _odd(ts=" "), "TRC009"),
    ("unclosed object", _odd()[:-1], "TRC009"),
    ("null", "null", "TRC009"),
    ("a number", "17", "TRC009"),
    ("a text", '"},\\n  {"', "TRC009"),
    ("a list", '[{"ph": "X"}]', "TRC009"),
    ("an empty object", "{}", "TRC009"),
    ("an unknown phase", _odd(ph='"Z"'), "TRC009"),
    ("phase is a number", _odd(ph="1"), "TRC009"),
    ("no ts", _odd(ts=""), "TRC009"),
    ("null ts", _odd(ts="null"), "TRC009"),
    ("ts is a list", _odd(ts="[1, 2]"), "TRC009"),
    ("ts is not a number", _odd(ts='"now and then"'), "TRC009"),
    ("NaN ts", _odd(ts="NaN"), "TRC009"),
    ("ts = dur = 0", _odd(ts="0", dur="0"), "TRC007"),
    ("ts far away", _odd(ts="17"), "TRC007"),
    ("ts in the far future", _odd(ts="7.4e14"), "TRC007"),
]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    ("piece", "code"), [pytest.param(*case[1:], id=case[0]) for case in DROPPED]
)
def test_unusable_event_is_dropped_and_counted(
    piece: str, code: str, indent: int | None, tmp_path: Path
) -> None:
    rank = read(tmp_path, _with(piece, indent=indent))
    assert names(rank) == ["first", "last"]
    assert code in codes(rank)
    assert not rank.truncated


@pytest.mark.parametrize("dur", ["-5", "null", "", "7.4e18", "1e400", "NaN", '"long"'])
def test_corrupt_duration_counts_as_none(dur: str, tmp_path: Path) -> None:
    rank = read(tmp_path, _with(_odd(dur=dur)))
    assert names(rank) == ["first", "odd", "last"]
    assert (rank.operations.end_ns - rank.operations.start_ns).tolist() == [5000, 0, 5000]
    assert codes(rank)["TRC007"] == 1


def test_several_damaged_events_one_warning_a_kind(tmp_path: Path) -> None:
    good = [kernel(START_US + i, 1, name=f"k{i}", correlation=i + 1) for i in range(200)]
    text = json.dumps(document(good), indent=1)
    for i in (3, 50, 51, 120):
        text = text.replace(f'"name": "k{i}"', f'"name": "k"{i}"')
    for i in (20, 21):
        text = text.replace(f'"name": "k{i}"', f'"name": "k{i}", "x": NaN')
    rank = read(tmp_path, text)
    assert len(rank.operations) == 196
    counts = {warning.message.split(":")[0]: warning.count for warning in rank.warnings}
    assert counts == {
        "pieces of the event list that are not readable as events": 4,
        "values that are not JSON, such as NaN, Infinity or N/A": 2,
    }
    assert all("first: " in warning.message for warning in rank.warnings)


@pytest.mark.parametrize("indent", [None, 1])
def test_damaged_event_among_odd_ones(indent: int | None, tmp_path: Path) -> None:
    odd = [kernel(START_US + i, f"{i % 7}.5", name=f"k{i}", correlation=i + 1) for i in range(500)]
    text = json.dumps(document(odd), indent=indent)
    for i in (3, 250):
        text = text.replace(f'"name": "k{i}"', f'"name": "k"{i}"')
    rank = read(tmp_path, text, block_bytes=4096)
    assert len(rank.operations) == 498
    assert not rank.truncated
    # A damaged last event looks like a text that ends inside it.
    last = read(tmp_path, text.replace('"name": "k499"', '"name": "k"499"'), block_bytes=4096)
    assert len(last.operations) == 497
    assert last.truncated


def test_invalid_utf8(tmp_path: Path) -> None:
    text = _with(_odd(name='"o@dd"')).encode().replace(b"o@dd", b"o\xff\xfedd")
    rank = read(tmp_path, text)
    assert names(rank)[1] == "o\ufffd\ufffddd"
    assert codes(rank) == {"TRC009": 1}


def test_damage_in_the_header(tmp_path: Path) -> None:
    events = json.dumps([FIRST, LAST])
    rank = read(
        tmp_path,
        '{"schemaVersion": 1, "distributedInfo": {"rank": 2, "world_size": 4, "x": NaN}, '
        f'"record_shapes": inf, "traceEvents": {events}}}',
    )
    assert (rank.rank, rank.world_size) == (2, 4)
    assert codes(rank) == {"TRC009": 2}
    broken = read(tmp_path, f'{{"a": "b" "c", oops, "traceEvents": {events}, "rest": 1}}')
    assert len(broken.operations) == 2
    assert {w.severity for w in broken.warnings} == {Severity.NOTE}
    garbage = read(tmp_path, f'{{"traceEvents": {events}}} and more {{')
    assert len(garbage.operations) == 2
    assert codes(garbage) == {"TRC009": len("and more {")}


def test_repeated_event_lists_are_all_read(tmp_path: Path) -> None:
    one, other = json.dumps([FIRST]), json.dumps([LAST])
    rank = read(tmp_path, f'{{"traceEvents": {one}, "x": 1, "traceEvents": {other}}}')
    assert names(rank) == ["first", "last"]


# -- truncation and compression ---------------------------------------------------------------------

MANY = [
    item
    for i in range(400)
    for item in (
        launch(START_US + 10 * i, 1, i + 1),
        kernel(START_US + 10 * i + 2, 5, name=f"kernel_{i}", correlation=i + 1),
    )
]
MANY_TEXT = json.dumps(document(MANY, rank=1), indent=1).encode()


def _truncated(rank: Rank) -> int:
    assert rank.truncated
    warning = rank.warnings[0]
    assert warning.code == "TRC001"
    assert warning.severity is Severity.ERROR
    return len(rank.calls) + len(rank.operations)


def test_truncated_text(tmp_path: Path) -> None:
    ends = [at + 1 for at in range(len(MANY_TEXT)) if MANY_TEXT.startswith(b"}\n  }", at)]
    assert len(ends) == len(MANY)
    for share in (0.1, 0.333, 0.5, 0.8, 0.999):
        size = int(len(MANY_TEXT) * share)
        rank = read(tmp_path, MANY_TEXT[:size])
        assert _truncated(rank) == sum(end + 4 <= size for end in ends)
        assert f"complete events kept: {len(rank.calls) + len(rank.operations)}" in (
            rank.warnings[0].message
        )


def test_truncated_behind_the_events(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": MANY, "distributedInfo": {"rank": 1}})
    rank = read(tmp_path, whole[:-8])
    assert not rank.truncated
    assert len(rank.operations) == 400
    (warning,) = rank.warnings
    assert warning.code == "TRC001"
    assert warning.severity is Severity.WARNING


def test_truncated_gzip_keeps_what_was_written(tmp_path: Path) -> None:
    data = gzip.compress(MANY_TEXT)
    rank = read(tmp_path, data[: len(data) // 2])
    kept = _truncated(rank)
    assert 300 < kept < 800
    assert any("gzip stream ends early" in warning.message for warning in rank.warnings)


def test_wrong_checksum_keeps_everything(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(MANY_TEXT))
    data[-8] ^= 0xFF
    rank = read(tmp_path, bytes(data))
    assert not rank.truncated
    assert len(rank.operations) == 400
    (warning,) = rank.warnings
    assert warning.code == "TRC001"
    assert "gzip stream is damaged" in warning.message


def test_flipped_bits_in_the_middle(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(MANY_TEXT, 1))
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff" * 8
    rank = read(tmp_path, bytes(data))
    assert 0 < len(rank.operations) <= 400
    assert "TRC001" in codes(rank)


def test_data_behind_a_gzip_stream(tmp_path: Path) -> None:
    rank = read(tmp_path, gzip.compress(MANY_TEXT) + b"garbage")
    assert len(rank.operations) == 400
    assert not rank.truncated
    assert codes(rank) == {"TRC001": 1}


def test_truncated_zstd(tmp_path: Path) -> None:
    data = zstandard.ZstdCompressor(level=1, write_checksum=True).compress(MANY_TEXT * 1)
    rank = read(tmp_path, data[: len(data) - 20])
    assert rank.truncated
    assert codes(rank)["TRC001"] == 1
    rank = read(tmp_path, data[:-1] + bytes([data[-1] ^ 0xFF]))
    assert any("zstd stream is damaged" in warning.message for warning in rank.warnings)
    assert 300 < len(rank.operations) <= 400


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_stream, "_BOMB_FROM_BYTES", 1 << 20)
    text = json.dumps(document([FIRST]))[:-2].encode() + b"," + b" " * (8 << 20)
    for data in (gzip.compress(text), zstandard.compress(text)):
        with pytest.raises(UnreadableInputError, match="expands to more than 400 times"):
            read(tmp_path, data)


def test_deep_nesting_is_no_traceback(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    rank = read(tmp_path, _with(_odd(f'"x": {deep}'), indent=None))
    assert {"first", "last"} <= set(names(rank))


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b" \n ", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"hello", "neither a JSON object nor a list"),
        (b"17", "neither a JSON object nor a list"),
        (b"\x00\xff" * 100, "neither a JSON object nor a list"),
        (b'"text"', "neither a JSON object nor a list"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (gzip.compress(MANY_TEXT, mtime=0)[:12], "the file is empty"),
        (b"{}", "without a list of traceEvents"),
        (b'{"a": 1', "without a list of traceEvents"),
        (b'{"traceEvents": null}', "without a list of traceEvents"),
        (b'{"traceEvents": []}', "is empty: nothing was recorded"),
        (b"[]", "is empty: nothing was recorded"),
        (b'{"traceEvents": [', "ends before its first complete event"),
        (b'{"traceEvents": [{"ph": "X", "na', "ends before its first complete event"),
        (b'[{"ph": "M", "name": "process_name"}]', "none of its 1 events"),
        (b'[{"ph": "X", "cat": "kernel", "ts": "now"}]', "none of its events can be used"),
        (b"[1, 2, 3]", "none of its events can be used"),
    ],
)
def test_nothing_to_read_is_one_clear_line(content: bytes, problem: str, tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", content)
    with pytest.raises(UnreadableInputError) as caught:
        kineto.read(path, display="shown.json")
    line = str(caught.value)
    assert line.startswith("shown.json: ")
    assert problem in line
    assert "\n" not in line


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInputError, match="no such file"):
        kineto.read(tmp_path / "absent.json")
    with pytest.raises(UnreadableInputError, match="directory"):
        kineto.read(tmp_path)


# -- random damage ----------------------------------------------------------------------------------


def test_random_damage_never_is_a_traceback(tmp_path: Path) -> None:
    dice = random.Random(7)
    events: list[Any] = [
        event("user_annotation", "ProfilerStep#1", START_US, 900),
        event("cpu_op", "record_param_comms", START_US + 1, 2, args={"Collective name": "send"}),
        launch(START_US + 2, 1, 5),
        kernel(START_US + 4, 9, correlation=5, **{"Collective name": "allreduce", "dtype": "Half"}),
        event("cuda_sync", "Stream Sync", START_US + 20, 3, args={"stream": 7, "correlation": 6}),
    ]
    for indent in (None, 1):
        text = json.dumps(document(events * 3), indent=indent).encode()
        for _ in range(300):
            damaged = bytearray(text)
            for _ in range(dice.randint(1, 6)):
                at = dice.randrange(len(damaged))
                if dice.random() < 0.5:
                    damaged[at] = dice.choice(b'"{}[]:,\\0N\xff\n ')
                else:
                    del damaged[at : at + dice.randint(1, 30)]
            with suppress(UnreadableInputError):
                rank = read(tmp_path, bytes(damaged), block_bytes=dice.choice([64, 1 << 18]))
                assert not is_na(rank.operations.start_ns).any()
                assert (rank.operations.end_ns >= rank.operations.start_ns).all()
