"""One process of NCCL's log, as its lines build it up.

Most lines do not name their communicator. While a thread initialises one, what it says is of
that one (versions before 2.18 name it only at the end); later lines belong to the only
communicator of the device that fits them, and to none where several do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from trace_analyzer.allowlist import allowed
from trace_analyzer.nccl_facts import (
    NcclCall,
    NcclChoice,
    NcclCommunicator,
    NcclDevice,
    NcclGraph,
    NcclLines,
    NcclLog,
    NcclRing,
    NcclTransport,
    NcclTree,
)

# A log has a line a call: what is kept grows with the different ones only, and up to here.
MAX_DIFFERENT = 50_000


@dataclass(slots=True, eq=False)
class Building:
    """A communicator so far; `position` is None until a line has named it.

    `routes` are transports without their channels, and the channels that take them.
    """

    position: int | None = None
    device: int | None = None
    number: int | None = None
    rank: int | None = None
    size: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # fields of NcclCommunicator
    parent: Building | None = None
    complete: bool = False
    graphs: list[NcclGraph] = field(default_factory=list)
    rings: dict[int, NcclRing] = field(default_factory=dict)
    trees: dict[int, NcclTree] = field(default_factory=dict)
    routes: dict[NcclTransport, set[int]] = field(default_factory=dict)

    def take(self, other: Building) -> None:
        """Add what was said before the communicator was named."""
        self.facts = {**other.facts, **self.facts}
        self.graphs = other.graphs + self.graphs
        self.rings = {**other.rings, **self.rings}
        self.trees = {**other.trees, **self.trees}
        for route, channels in other.routes.items():
            self.routes.setdefault(route, set()).update(channels)

    def only_peer_routes(self) -> Building:
        """Move the transports of send and receive out; initialisation connects none."""
        peer = [route for route in self.routes if route.connection == 1]
        return Building(routes={route: self.routes.pop(route) for route in peer})

    def fits(self, device: int, ranks: tuple[int, ...]) -> bool:
        """Tell whether a line of this device about these ranks can be of this communicator."""
        if self.device is not None and self.device != device:
            return False
        if not ranks:
            return True
        return self.rank in ranks and self.size is not None and max(ranks) < self.size


@dataclass(slots=True, eq=False)
class Process:
    """A process so far."""

    host: str
    pid: int
    version: str = ""
    cuda: str = ""
    networks: list[str] = field(default_factory=list)
    devices: dict[tuple[str, int], NcclDevice] = field(default_factory=dict)
    no_ib_device: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    communicators: list[Building] = field(default_factory=list)
    live: dict[str, Building] = field(default_factory=dict)  # by address
    starting: dict[int, Building] = field(default_factory=dict)  # by thread, while it initialises
    unnamed: dict[int, Building] = field(default_factory=dict)  # by thread
    loose: Building = field(default_factory=Building)  # what fits several communicators
    says_start: bool = False
    choices: dict[NcclChoice, int] = field(default_factory=dict)  # lines a choice
    calls: dict[NcclCall, int] = field(default_factory=dict)
    used: int = 0
    unused: int = 0
    malformed: int = 0
    interleaved: int = 0
    warnings: int = 0
    beyond_limit: int = 0

    @property
    def messages(self) -> int:
        """Messages that this process wrote."""
        return self.used + self.unused + self.malformed + self.interleaved + self.warnings

    def owner(self, tid: int, device: int, ranks: tuple[int, ...] = ()) -> Building:
        """Return what a line of this thread is about."""
        if tid in self.starting:
            return self.starting[tid]
        if not self.says_start:
            return self.unnamed.setdefault(tid, Building(device=device))
        fitting = [found for found in self.live.values() if found.fits(device, ranks)]
        return fitting[0] if len(fitting) == 1 else self.loose

    def communicator(self, address: str) -> int | None:
        """Return the position of the communicator that has this address now."""
        found = self.live.get(address)
        return None if found is None else found.position

    def only_communicator(self, device: int) -> int | None:
        """Return the position of the only communicator that a call of this device can use."""
        fitting = [found for found in self.live.values() if found.fits(device, ())]
        return fitting[0].position if len(fitting) == 1 else None

    def named(self, address: str, tid: int, *, starts: bool) -> Building:
        """Return the communicator at an address, a new one where `starts` or not known yet."""
        found = self.live.get(address)
        if found is None or (starts and found.complete):
            found = self.live[address] = Building(position=len(self.communicators))
            self.communicators.append(found)
        if starts:
            self.says_start = True
            self.starting[tid] = found
        return found

    def completed(self, building: Building, tid: int) -> None:
        """Note that a thread has initialised a communicator."""
        building.complete = True
        self.starting.pop(tid, None)
        if not self.says_start and tid in self.unnamed:
            said = self.unnamed.pop(tid)
            if len(self.communicators) > 1:  # an earlier one may have connected its peers since
                self.loose.take(said.only_peer_routes())
            building.take(said)

    def ended(self, address: str) -> None:
        """Note that a communicator was destroyed: its address may come again."""
        self.live.pop(address, None)

    def add_choice(self, choice: NcclChoice) -> None:
        """Count a choice of the tuner."""
        if choice in self.choices or len(self.choices) < MAX_DIFFERENT:
            self.choices[choice] = self.choices.get(choice, 0) + 1
        else:
            self.beyond_limit += 1

    def add_call(self, call: NcclCall) -> None:
        """Count a call."""
        if call in self.calls or len(self.calls) < MAX_DIFFERENT:
            self.calls[call] = self.calls.get(call, 0) + 1
        else:
            self.beyond_limit += 1

    def finish(self, path: str) -> NcclLog:
        """Return the process as the model holds it."""
        for left in self.unnamed.values():
            (self.communicators[0] if len(self.communicators) == 1 else self.loose).take(left)
        transports = [
            transport for building in self.communicators for transport in _transports(building)
        ]
        return NcclLog(
            path=path,
            host=self.host,
            pid=self.pid,
            version=self.version,
            cuda=self.cuda,
            communicators=tuple(self._communicator(item) for item in self.communicators),
            transports=(*transports, *_transports(self.loose)),
            choices=tuple(replace(item, count=count) for item, count in self.choices.items()),
            calls=tuple(replace(item, count=count) for item, count in self.calls.items()),
            networks=tuple(self.networks),
            devices=tuple(self.devices[key] for key in sorted(self.devices)),
            no_ib_device=self.no_ib_device,
            settings=allowed(self.settings),
            lines=NcclLines(
                used=self.used,
                unused=self.unused,
                malformed=self.malformed,
                interleaved=self.interleaved,
                warnings=self.warnings,
                beyond_limit=self.beyond_limit,
            ),
        )

    @staticmethod
    def _communicator(building: Building) -> NcclCommunicator:
        return NcclCommunicator(
            id=building.number,
            rank=building.rank or 0,
            size=building.size or 0,
            cuda_device=building.device,
            parent=None if building.parent is None else building.parent.position,
            complete=building.complete,
            graphs=tuple(building.graphs),
            rings=tuple(building.rings[channel] for channel in sorted(building.rings)),
            trees=tuple(building.trees[channel] for channel in sorted(building.trees)),
            **building.facts,
        )


def _transports(building: Building) -> list[NcclTransport]:
    return [
        replace(route, communicator=building.position, channels=tuple(sorted(channels)))
        for route, channels in building.routes.items()
    ]


__all__ = ["Building", "Process"]
