"""What a process of the benchmark is asked, whichever system it runs.

A run: all members are opened, hosts subscribe, then any number of trials: hosts are armed with what
they have to expect, the publisher publishes, hosts report. A member lives on the loop of its
process.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from peersub.bench.network.tally import HostReport
from peersub.bench.network.workload import Subscription, Workload

__all__ = [
    "COLUMNS",
    "MEMBERS",
    "ONE_BY_ONE",
    "Arm",
    "Member",
    "Opening",
    "PublisherReport",
    "Publishing",
    "load_member",
    "nats_server",
]

COLUMNS: Final = "columns"
"""Events are handed over as Arrow tables, and travel so."""
ONE_BY_ONE: Final = "one by one"
"""Each event is a message."""

PUBLISHER: Final = "publisher"
RELAY: Final = "relay"
HOST: Final = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a member takes part.

    Args:
        role: publisher, relay or host.
        contact: the address to turn to; empty for the first.
        key: its place on the circle (peersub).
        subscriptions: of a host; made when all take part.
        form: COLUMNS or ONE_BY_ONE.
        workload: which events there will be.
        copies: on so many disks before an event is acknowledged; 0: on none.
    """

    role: str
    contact: str
    key: int = -1
    subscriptions: tuple[Subscription, ...] = ()
    form: str = ONE_BY_ONE
    workload: Workload
    copies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What a host has to expect of a trial, whose events' names begin with the label."""

    label: str
    expected: int
    keep_latencies: bool = False
    lose_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """What the publisher does in a trial.

    Args:
        label: tells the events of this trial from those of others.
        workload: which events.
        events: how many, from the first.
        form: COLUMNS or ONE_BY_ONE.
        at_least_once: under which promise.
        batch_rows: events of one table.
        per_second: how many, spread evenly; None: as many as go.
    """

    label: str
    workload: Workload
    events: int
    form: str
    at_least_once: bool = False
    batch_rows: int = 4_096
    per_second: float | None = None


@dataclass(frozen=True, slots=True)
class PublisherReport:
    """When publishing began and ended, by the machine's monotonic clock."""

    begin_ns: int
    end_ns: int
    """The last event was handed over; under a promise: the last one was confirmed."""
    failures: tuple[str, ...] = ()
    late_ns_max: int = 0
    """How far behind its timetable an event was published, where there is one."""


class Member(Protocol):
    """A process's part in one system. Which methods are called depends on its role."""

    async def open(self, opening: Opening) -> str:
        """Take part; by what address others can turn to it."""
        ...

    async def subscribe(self) -> None:
        """Make the host's subscriptions; returns when they are there."""
        ...

    async def prepare(self, publishing: Publishing) -> None:
        """Make the events: this is not measured."""
        ...

    async def publish(self, publishing: Publishing) -> PublisherReport:
        """Publish what was prepared."""
        ...

    async def arm(self, arm: Arm) -> None:
        """A trial begins."""
        ...

    async def complete(self, timeout_s: float) -> bool:
        """Wait for what is expected; False if it does not come in time."""
        ...

    async def report(self) -> HostReport:
        """What came, what came too often included."""
        ...

    async def bytes_out(self) -> int | None:
        """What it has written to its connections so far, if it counts that."""
        ...

    async def counters(self) -> dict[str, int]:
        """What it has counted that may explain a loss."""
        ...

    async def close(self) -> None:
        """Take leave at once."""
        ...


MEMBERS: Final = {
    "peersub": "live_member:LiveMember",
    "zenoh": "zenoh_member:ZenohMember",
    "nats": "nats_member:NatsMember",
}
"""The systems. Their modules are loaded where they are used."""


def nats_server() -> str | None:
    """The program, on the PATH or beside this Python; None if there is none."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("nats-server") or shutil.which("nats-server", path=beside)


def load_member(system: str) -> Member:
    """A member of a system that has not taken part yet."""
    module, _, name = MEMBERS[system].partition(":")
    made: Member = getattr(import_module(f"peersub.bench.network.{module}"), name)()
    return made
