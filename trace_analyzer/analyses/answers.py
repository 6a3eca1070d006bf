"""Which questions a recording can answer, and what to record for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.steps import DeviceSteps, device_steps
from trace_analyzer.model import Rank, Run
from trace_analyzer.schema import is_na
from trace_analyzer.tables import HostCategory, WorkClass

YES, PARTIAL, NO = "yes", "partial", "no"

_COLLECT = "`trace-analyzer collect torch -- CMD`"
_MIN_STEPS = 2  # a verdict needs two complete steps
_SHARE_KNOWN = 0.9  # of the launches or sizes, to call them known


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether a question can be answered: `state` is "yes", "partial" or "no".

    `reason` says what there is; `needs` what to record for a full answer, empty for "yes".
    """

    question: str
    state: str
    reason: str
    needs: str = ""


@dataclass(frozen=True, slots=True)
class _Recording:
    """What the questions look at, counted once."""

    run: Run
    steps: Mapping[int, DeviceSteps]  # ranks with GPU operations
    comm: int  # communication operations
    comm_sized: int  # of these with a known size
    comm_grouped: int  # of these with a known group

    @property
    def complete_steps(self) -> int:
        counts = [0 if item.partial else len(item) for item in self.steps.values()]
        return min(counts, default=0)


def answers(run: Run, steps: Mapping[int, DeviceSteps] | None = None) -> tuple[Answer, ...]:
    """Return, question by question, what the recording of this run can answer.

    `steps` are those of the ranks with GPU operations, where they are known already.
    """
    if steps is None:
        steps = {
            rank.rank: found for rank in run.ranks if (found := device_steps(rank)) is not None
        }
    comm = sized = grouped = 0
    for rank in run.ranks:
        operations, collectives = rank.operations, rank.collectives
        rows = operations.collective[operations.work == WorkClass.COMM]
        known = rows[~is_na(rows)]
        comm += len(rows)
        sized += int(np.count_nonzero(~is_na(collectives.message_bytes[known])))
        grouped += int(np.count_nonzero(~is_na(collectives.group[known])))
    recording = _Recording(run, steps, comm, sized, grouped)
    return tuple(question(recording) for question in _QUESTIONS)


def _where_a_step_goes(recording: _Recording) -> Answer:
    question = "Where does a step's time go, per rank?"
    if not recording.steps:
        return Answer(
            question=question,
            state=NO,
            reason="no GPU operation was recorded",
            needs="the whole file: it is cut off"
            if any(rank.truncated for rank in recording.run.ranks)
            else "profile with ProfilerActivity.CUDA, or nsys -t cuda,nvtx",
        )
    found = list(recording.steps.values())
    if recording.complete_steps < _MIN_STEPS:
        return Answer(
            question=question,
            state=PARTIAL,
            reason="the window as a whole; "
            + ("no complete step" if not recording.complete_steps else "only one complete step"),
            needs="call prof.step() once a step (or open an NVTX range) and record 10 steps",
        )
    if any(item.inferred for item in found):
        return Answer(
            question=question,
            state=PARTIAL,
            reason=f"{recording.complete_steps} steps, found by {found[0].basis}",
            needs="call prof.step() once a step, or name the range with --step-range",
        )
    return Answer(
        question=question,
        state=YES,
        reason=f"{recording.complete_steps} complete steps, by {found[0].basis}",
    )


def _why_the_gpu_waits(recording: _Recording) -> Answer:
    question = "Why is the GPU idle: which call came late?"
    shares = [_launched_share(rank) for rank in recording.run.ranks if len(rank.operations)]
    needs = "record CPU activities too (ProfilerActivity.CPU; nsys -t cuda,nvtx)"
    if not shares or max(shares) == 0:
        return Answer(question=question, state=NO, reason="no launch call is known", needs=needs)
    share = min(shares)
    operators = any(_has(rank, HostCategory.OPERATOR) for rank in recording.run.ranks)
    ranges = any(_has(rank, HostCategory.ANNOTATION) for rank in recording.run.ranks)
    known = f"{100 * share:.0f} % of GPU operations have their launch call"
    if share < _SHARE_KNOWN:
        if operators:
            needs = "record more steps: what was launched before the recording has no call in it"
        return Answer(question=question, state=PARTIAL, reason=known, needs=needs)
    if not operators and not ranges:
        return Answer(
            question=question,
            state=PARTIAL,
            reason=known + ", but what the host was doing is not recorded",
            needs="record operators or NVTX ranges",
        )
    return Answer(question=question, state=YES, reason=known)


def _wait_against_transfer(recording: _Recording) -> Answer:
    question = "Do collectives wait for a late rank, or is the transfer slow?"
    run = recording.run
    if not recording.comm:
        single = run.world_size == 1
        return Answer(
            question=question,
            state=NO,
            reason="one rank: there is nobody to wait for" if single else "no communication",
            needs="" if single else "record a window that holds collectives",
        )
    if len(run.ranks) < 2:
        return Answer(
            question=question,
            state=NO,
            reason="one rank was recorded",
            needs="record every rank of the job in the same steps",
        )
    if run.missing_ranks:
        return Answer(
            question=question,
            state=PARTIAL,
            reason=f"{len(run.ranks)} of {run.world_size} ranks were recorded",
            needs="record every rank of the job in the same steps",
        )
    if recording.comm_grouped < _SHARE_KNOWN * recording.comm:
        return Answer(
            question=question,
            state=PARTIAL,
            reason="groups of the collectives are not recorded: they are matched by order",
            needs="a torch of 2.3 or later, or nsys with NCCL payloads (--include-json=true)",
        )
    return Answer(
        question=question,
        state=YES,
        reason=f"every rank was recorded ({len(run.ranks)}), with its groups",
    )


def _sizes_and_bandwidths(recording: _Recording) -> Answer:
    question = "How large are the messages, and how fast do they travel?"
    needs = "a torch of 2.3 or later, or nsys export with --include-json=true"
    if not recording.comm:
        return Answer(question=question, state=NO, reason="no communication was recorded", needs="")
    share = recording.comm_sized / recording.comm
    reason = f"the size of {100 * share:.0f} % of the communication kernels is known"
    if share == 0:
        return Answer(question=question, state=NO, reason=reason, needs=needs)
    if share < _SHARE_KNOWN:
        return Answer(question=question, state=PARTIAL, reason=reason, needs=needs)
    return Answer(question=question, state=YES, reason=reason)


def _recoverable_time(recording: _Recording) -> Answer:
    question = "How much would fixing a cause give back in the unprofiled run?"
    launched = [_launched_share(rank) for rank in recording.run.ranks if len(rank.operations)]
    if recording.complete_steps < _MIN_STEPS or min(launched, default=0.0) < _SHARE_KNOWN:
        return Answer(
            question=question,
            state=NO,
            reason="a replay needs two complete steps and the launch calls",
            needs=f"{_COLLECT}, or torch.profiler with CPU and CUDA activities and prof.step()",
        )
    if not recording.run.unprofiled:
        return Answer(
            question=question,
            state=PARTIAL,
            reason="the unprofiled step time has to be predicted",
            needs="--unprofiled-step-ms, or a step timer beside the traces (steps_rank0.jsonl)",
        )
    count = min(len(item.step_ms) for item in recording.run.unprofiled)
    return Answer(
        question=question, state=YES, reason=f"{count} unprofiled steps are measured beside it"
    )


def _what_the_profiler_costs(recording: _Recording) -> Answer:
    question = "How much did the profiler itself slow the run down?"
    if recording.run.unprofiled:
        return Answer(question=question, state=YES, reason="unprofiled steps are measured")
    return Answer(
        question=question,
        state=NO,
        reason="no step was timed without a profiler",
        needs="time some steps without it, or pass --unprofiled-step-ms",
    )


def _which_link(recording: _Recording) -> Answer:
    question = "Which link between GPUs is slow?"
    run = recording.run
    if "bench" in run.sidecars:
        return Answer(question=question, state=YES, reason="a link benchmark lies beside the run")
    needs = "`trace-analyzer bench links` on the same machines"
    if run.world_size == 1:
        return Answer(question=question, state=NO, reason="one GPU: there is no link", needs="")
    pairs = any(
        group.size == 2 or len(group.ranks) == 2 for rank in run.ranks for group in rank.groups
    )
    sent = any(not is_na(rank.collectives.destination_rank).all() for rank in run.ranks)
    if pairs or sent:
        return Answer(
            question=question,
            state=PARTIAL,
            reason="for pairs of GPUs that form a group of two or send to each other",
            needs=needs,
        )
    return Answer(
        question=question,
        state=NO,
        reason="collectives of larger groups use many links at once",
        needs=needs,
    )


def _why_this_transport(recording: _Recording) -> Answer:
    question = "Why does NCCL use this transport and these channels?"
    if "nccl-log" in recording.run.sidecars:
        return Answer(question=question, state=YES, reason="NCCL's log lies beside the run")
    return Answer(
        question=question,
        state=PARTIAL if recording.comm else NO,
        reason="channels are known from the kernels' grid"
        if recording.comm
        else "no communication was recorded",
        needs="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING NCCL_DEBUG_FILE=nccl_%p.log",
    )


_QUESTIONS: tuple[Callable[[_Recording], Answer], ...] = (
    _where_a_step_goes,
    _why_the_gpu_waits,
    _wait_against_transfer,
    _sizes_and_bandwidths,
    _recoverable_time,
    _what_the_profiler_costs,
    _which_link,
    _why_this_transport,
)


def _launched_share(rank: Rank) -> float:
    return float(np.count_nonzero(~is_na(rank.operations.launch))) / len(rank.operations)


def _has(rank: Rank, category: HostCategory) -> bool:
    return bool((rank.events.category == category).any())


__all__ = ["NO", "PARTIAL", "YES", "Answer", "answers"]
