"""The lines a call: what NCCL's tuner chose for it, and the call itself."""

from __future__ import annotations

from collections.abc import Sequence
from re import Match

from trace_analyzer.nccl_facts import NcclCall, NcclChoice
from trace_analyzer.readers import nccl_log_lines as lines
from trace_analyzer.readers.nccl_log_lines import Message
from trace_analyzer.readers.nccl_process import Process


def choice_or_call(process: Process, message: Message) -> bool:
    """Count a call or a choice; return False where the line is neither to its end."""
    text = message.text
    if match := lines.CALL.match(text):
        _call(process, match)
        return True
    choice = _choice(text, process.only_communicator(message.device))
    if choice is not None:
        process.add_choice(choice)
    return choice is not None


def _call(process: Process, match: Match[str]) -> None:
    number = int(match["type"])
    process.add_call(
        NcclCall(
            communicator=process.communicator(match["comm"]),
            operation=match["coll"].lower(),
            elements=int(match["count"]),
            dtype=lines.TYPES[number] if number < len(lines.TYPES) else str(number),
            size=int(match["n"]),
            count=0,
        )
    )


def _choice(text: str, communicator: int | None) -> NcclChoice | None:
    if match := lines.CHOICE.match(text):
        return NcclChoice(
            communicator=communicator,
            operation=match["coll"].lower(),
            bytes=int(match["bytes"]),
            algorithm=match["algo"],
            protocol=match["proto"],
            channels=int(match["hi"]) - int(match["lo"]) + 1,
            count=0,
        )
    if match := lines.OLD_CHOICE.match(text):
        algorithm, protocol = int(match["algo"]), int(match["proto"])
        return NcclChoice(
            communicator=communicator,
            operation=(match["coll"] or "").lower(),
            bytes=int(match["bytes"]),
            algorithm=_named(lines.ALGORITHMS, algorithm),
            protocol=_named(lines.PROTOCOLS, protocol),
            count=0,
        )
    if match := lines.SYMMETRIC_CHOICE.match(text):
        return NcclChoice(
            communicator=communicator,
            operation=match["coll"].lower(),
            bytes=int(match["bytes"]),
            algorithm="SYMMETRIC",
            channels=int(match["channels"]),
            kernel=match["kernel"],
            count=0,
        )
    if match := lines.COPY_CHOICE.match(text):
        return NcclChoice(
            communicator=communicator,
            operation=match["coll"].lower(),
            bytes=int(match["bytes"]),
            algorithm="COPY_ENGINE",
            count=0,
        )
    return None


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else str(number)


__all__ = ["choice_or_call"]
