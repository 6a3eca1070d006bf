"""Which rank every process of an export is, and which communicators they share.

Our own recorder says it by a mark. Otherwise NCCL's initialisation calls do, where the recording
covers them: rank and number of ranks of each communicator. The largest communicator is then taken
for the world, if nothing speaks against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trace_analyzer.readers.nsys_payload import Payload

_MPI_RANK = re.compile(r"^MPI Rank (\d+)$")  # how nsys names the main thread of an MPI process


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A process's place in a communicator; None where the payload does not hold it."""

    communicator: str
    size: int | None
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What bears on the rank of one process."""

    key: int
    told: tuple[int, int] | None = None  # rank and world size, as our recorder marked them
    memberships: tuple[Membership, ...] = ()
    used: tuple[str, ...] = ()  # communicators of its calls, in order of first use
    thread_titles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ranks of an export's processes (by process key), and its communicators.

    `members` gives the global ranks of a communicator in order of its own ranks; it holds only
    communicators of which every member is in this export and of known rank.
    """

    ranks: Mapping[int, int]
    basis: str
    size: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    world: frozenset[str] = frozenset()  # communicators that span the world

    def global_rank(self, communicator: str, rank: int) -> int | None:
        """Return the global rank of a communicator's member, or None where it is not known."""
        members = self.members.get(communicator)
        if members is not None:
            return members[rank] if 0 <= rank < len(members) else None
        return rank if communicator in self.world else None


def memberships(payloads: Sequence[Payload]) -> tuple[Membership, ...]:
    """Return what initialisation (and destruction) calls say of communicators, each once."""
    found: dict[str, Membership] = {}
    for payload in payloads:
        if payload.communicator is None or payload.ranks is None:
            continue
        known = found.get(payload.communicator)
        if known is None or known.rank is None:
            found[payload.communicator] = Membership(
                communicator=payload.communicator, size=payload.ranks, rank=payload.rank
            )
    return tuple(found.values())


def find_world(processes: Sequence[ProcessFacts], settings: Mapping[str, str]) -> World:
    """Return the ranks of these processes, which are in order of process id.

    `settings` is the environment of what nsys launched. It is the process's own only where there
    is one process, and LOCAL_RANK beside RANK tells that a launcher of ranks has set it: job
    systems set RANK alone to the number of the node.
    """
    sizes = {
        place.communicator: place.size
        for process in processes
        for place in process.memberships
        if place.size is not None
    }
    return (
        _from_marks(processes, sizes)
        or _from_payload(processes, sizes)
        or _from_thread_names(processes, sizes)
        or _from_environment(processes, settings, sizes)
        or World(
            ranks={process.key: order for order, process in enumerate(processes)},
            basis="order",
            sizes=sizes,
        )
    )


def _from_marks(processes: Sequence[ProcessFacts], sizes: Mapping[str, int]) -> World | None:
    told = {process.key: process.told for process in processes if process.told is not None}
    ranks = {key: rank for key, (rank, _) in told.items()}
    world_sizes = {size for _, size in told.values()}
    if len(told) < len(processes) or len(set(ranks.values())) < len(ranks) or len(world_sizes) != 1:
        return None
    size = world_sizes.pop()
    members = _members(processes, ranks, sizes)
    # Initialisation mostly lies before the recording. A communicator that every rank of the world
    # uses is the world's, and torch numbers those in order of rank.
    used = [set(process.used) for process in processes]
    spanning = set.intersection(*used) if len(processes) == size else set()
    spanning = {name for name in spanning if sizes.get(name, size) == size}
    return World(
        ranks=ranks,
        basis="content",
        size=size,
        sizes={**sizes, **dict.fromkeys(spanning, size)},
        members={**dict.fromkeys(spanning, tuple(range(size))), **members},
        world=frozenset(spanning | {name for name, count in sizes.items() if count == size}),
    )


def _from_payload(processes: Sequence[ProcessFacts], sizes: Mapping[str, int]) -> World | None:
    size = max(sizes.values(), default=0)
    if size < len(processes) or any(
        name not in sizes for process in processes for name in process.used
    ):
        return None  # a communicator whose beginning was not recorded may be a larger one
    ranks: dict[int, int] = {}
    for process in processes:
        places = [place for place in process.memberships if place.size == size]
        if not places or places[0].rank is None:
            return None
        ranks[process.key] = places[0].rank
    if len(set(ranks.values())) < len(ranks):
        return None
    return World(
        ranks=ranks,
        basis="payload",
        size=size,
        sizes=sizes,
        members=_members(processes, ranks, sizes),
        world=frozenset(name for name, count in sizes.items() if count == size),
    )


def _members(
    processes: Sequence[ProcessFacts], ranks: Mapping[int, int], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    members: dict[str, dict[int, int]] = {}
    for process in processes:
        for place in process.memberships:
            if place.rank is not None:
                members.setdefault(place.communicator, {})[place.rank] = ranks[process.key]
    return {
        name: tuple(known[rank] for rank in range(sizes[name]))
        for name, known in members.items()
        if set(known) == set(range(sizes[name]))
    }


def _from_thread_names(processes: Sequence[ProcessFacts], sizes: Mapping[str, int]) -> World | None:
    ranks: dict[int, int] = {}
    for process in processes:
        told = {
            int(match[1]) for title in process.thread_titles if (match := _MPI_RANK.match(title))
        }
        if len(told) != 1:
            return None
        ranks[process.key] = told.pop()
    if not ranks or len(set(ranks.values())) < len(ranks):
        return None
    return World(ranks=ranks, basis="content", sizes=sizes)


def _from_environment(
    processes: Sequence[ProcessFacts], settings: Mapping[str, str], sizes: Mapping[str, int]
) -> World | None:
    rank = settings.get("RANK", "")
    if len(processes) != 1 or not rank.isdecimal() or "LOCAL_RANK" not in settings:
        return None
    count = settings.get("WORLD_SIZE", "")
    size = int(count) if count.isdecimal() and int(count) > int(rank) else None
    return World(ranks={processes[0].key: int(rank)}, basis="content", size=size, sizes=sizes)
