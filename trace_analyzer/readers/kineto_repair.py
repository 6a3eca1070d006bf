"""One event that strict decoding refuses: mend its text, loosen its types, or give it up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from trace_analyzer.rank_facts import UNKNOWN_SIZE
from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_events import (
    LEFT_OUT_PHASES,
    NO_ARGS,
    NO_DURATION,
    NO_TIME,
    Args,
    Complete,
    Details,
    Event,
    Instant,
    Metadata,
    MetadataArgs,
)
from trace_analyzer.readers.kineto_json import DECODE_ERRORS
from trace_analyzer.readers.kineto_values import decimal, stream_number, triple, whole


class LooseEvent(Struct, gc=False):
    """An event of which nothing is demanded but to be a JSON object."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Raw = NO_TIME
    dur: Raw = NO_TIME
    args: Any = None


_loose_event = msgspec.json.Decoder(LooseEvent)
_loose_events = msgspec.json.Decoder(list[LooseEvent])

_PIECES = re.compile(
    r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'  # a text
    r"|,(\s*+)(?=[}\]])"  # a comma before a closing bracket
    r"|([^\s\",:{}\[\]]++)",  # a bare token
    re.DOTALL,
)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(
    r"\\(?:"
    r"(?P<good>[\"\\/bfnrt])"
    r"|(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|(?P<unit>u[0-9a-fA-F]{4})"
    r"|(?P<bad>.))",
    re.DOTALL,
)

_Fields = dict[str, tuple[str, Callable[[Any], Any]]]  # key → field and conversion

_PHASES: Final[dict[str, type[Event]]] = {
    str(kind.__struct_config__.tag): kind for kind in LEFT_OUT_PHASES
}


def loose_events(text: bytes, anomalies: Anomalies) -> list[Event]:
    """Decode a list of events whose JSON is sound but whose types are not as expected.

    Objects that are no events are counted and left out. Raises one of `DECODE_ERRORS` where the
    text is not a list of objects.
    """
    events: list[Event] = []
    for loose in _loose_events.decode(text):
        event = _tighten(loose, anomalies)
        if event is None:
            anomalies.note(Anomaly.UNREADABLE, f"an event of phase {loose.ph!r}")
        else:
            events.append(event)
    return events


def mended_event(text: bytes, anomalies: Anomalies) -> tuple[Event, bytes] | None:
    """Decode one event after mending its text, and return that too; None if it cannot be done."""
    found = Anomalies()
    mended = mend(text, found)
    try:
        event = _tighten(_loose_event.decode(mended), found)
    except DECODE_ERRORS:
        return None
    if event is None:
        return None
    anomalies.merge(found)
    return event, mended


def mend(text: bytes, anomalies: Anomalies) -> bytes:
    """Return the text with everything replaced that is not JSON but has a clear meaning.

    Values such as NaN become null, bytes that are not UTF-8 and halves of surrogate pairs become
    replacement characters, control characters are escaped, unknown escapes keep their backslash,
    commas before closing brackets go.
    """
    try:
        letters = text.decode("utf-8")
    except UnicodeDecodeError:
        letters = text.decode("utf-8", "replace")
        anomalies.note(Anomaly.INVALID_UTF8, text)

    def replace(match: re.Match[str]) -> str:
        if match[1] is not None:
            return f'"{_mend_text(match[1], anomalies)}"'
        if match[2] is not None:
            return match[2]
        return _mend_bare(match[3], anomalies)

    return _PIECES.sub(replace, letters).encode("utf-8", "replace")


def _mend_text(text: str, anomalies: Anomalies) -> str:
    if "\\" in text:
        replaced = _ESCAPE.sub(_mend_escape, text)
        if replaced != text:
            anomalies.note(Anomaly.BAD_ESCAPE, text)
        text = replaced
    if _CONTROL.search(text):
        anomalies.note(Anomaly.CONTROL_CHARACTER, text)
        text = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text


def _mend_escape(match: re.Match[str]) -> str:
    if match["half"] is not None:
        return "\\ufffd"
    if match["bad"] is not None:
        return "\\\\" + match["bad"]
    return match[0]


def _mend_bare(token: str, anomalies: Anomalies) -> str:
    if token in {"true", "false", "null"} or _NUMBER.fullmatch(token):
        return token
    anomalies.note(Anomaly.NOT_JSON, token)
    return "null"


def _tighten(loose: LooseEvent, anomalies: Anomalies) -> Event | None:
    """Return the event with the types that the columns need; None where it is no event."""
    if loose.ph != "X":
        return _tighten_other(loose)
    return Complete(
        cat=_text(loose.cat),
        name=_text(loose.name),
        pid=_identity(loose.pid),
        tid=_identity(loose.tid),
        ts=loose.ts,
        dur=_duration(loose.dur, anomalies),
        args=_args(loose.args, anomalies),
    )


def _tighten_other(loose: LooseEvent) -> Event | None:
    kind = _PHASES.get(loose.ph) if isinstance(loose.ph, str) else None
    if kind is None:
        return None
    if kind is Metadata:
        name = loose.args.get("name") if isinstance(loose.args, dict) else None
        return Metadata(
            name=_text(loose.name),
            pid=_identity(loose.pid),
            tid=_identity(loose.tid),
            args=MetadataArgs(name=_text(name)),
        )
    if kind is Instant:
        return Instant(name=_text(loose.name))
    return kind()


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _identity(value: object) -> int | str | None:
    if isinstance(value, bool):
        return str(value)
    if value is None or isinstance(value, int | str):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else str(value)


def _duration(token: Raw, anomalies: Anomalies) -> float:
    text = bytes(token).decode("utf-8", "replace")
    bare = text.strip('"').strip()
    try:
        value = float(bare)
    except ValueError:
        return NO_DURATION
    if bare != text:
        anomalies.note(Anomaly.TEXT_NUMBER, text)
    return value


def _args(given: object, anomalies: Anomalies) -> Args:
    values = _converted(given, _ARGS_FIELDS, anomalies)
    return Args(**values) if values else NO_ARGS


def loose_details(text: bytes) -> list[tuple[str | None, Details]]:
    """Return category and details of every complete event of a list, whatever their types are.

    Values that cannot be used are left out without counting them: those that matter were
    counted when the events themselves were decoded.
    """
    ignored = Anomalies()
    return [
        (_text(event.cat), Details(**_converted(event.args, _DETAILS_FIELDS, ignored)))
        for event in _loose_events.decode(text)
        if event.ph == "X"
    ]


def _converted(given: object, fields: _Fields, anomalies: Anomalies) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in given.items() if isinstance(given, dict) else ():
        field = fields.get(key)
        if field is None or value is None:
            continue
        name, convert = field
        converted = convert(value)
        if converted is None:
            anomalies.note(Anomaly.UNUSABLE, f"{key} = {value!r}")
        else:
            values[name] = converted
    return values


def _ranks(value: object) -> str | list[int] | None:
    if isinstance(value, list) and all(isinstance(rank, int) for rank in value):
        return value
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | int | str | None:
    return value if isinstance(value, bool | int | str) else None


def _size(value: object) -> int | str | None:
    return UNKNOWN_SIZE if value == UNKNOWN_SIZE else whole(value)


def _fields(struct: type[Struct]) -> _Fields:
    special: dict[str, Callable[[Any], Any]] = {
        "stream": stream_number,
        "grid": triple,
        "block": triple,
        "occupancy_pct": decimal,
        "collective": _text,
        "dtype": _text,
        "group_name": _text,
        "group_description": _text,
        "group_ranks": _ranks,
        "is_async": _flag,
        "sync_kind": _text,
        "message_bytes": _size,
    }
    return {
        field.encode_name: (field.name, special.get(field.name, whole))
        for field in msgspec.structs.fields(struct)
    }


_ARGS_FIELDS: Final = _fields(Args)
_DETAILS_FIELDS: Final = _fields(Details)
