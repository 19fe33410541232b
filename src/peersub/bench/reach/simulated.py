"""Loads of simulated peers of Reach, balanced by the protocol itself.

The network is the one that `measure` routes from its structure, with peers in its places. Events
are published one after the other, first in rounds that count for nothing, in which deputies are
found (`deputies`), then once more under other names. Who gets which event is compared with the
compiled index. The load of a node is what `measure` says it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from peersub.bench.reach.measure import Network, Replication
from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Received
from peersub.overlays.core.effects import Deliver, Send
from peersub.overlays.core.identity import PeerId, numbered_node
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.converged import converge
from peersub.overlays.reach.messages import Detour, Handed, Notified, Rendezvous, Spread
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.settings import ReachSettings
from peersub.simulator.engine import Simulation
from peersub.simulator.hosts import BareNode
from peersub.simulator.settings import NetworkSettings
from peersub.simulator.summary import gini
from peersub.trace.schema import Step, TraceRecord

__all__ = ["OVERLOADED", "ROUNDS_BEFORE", "SimulatedLoads", "simulated_loads"]

ROUNDS_BEFORE: Final = 3
EVERY_MS: Final = 20
LOAD_MS: Final = 1_000
OVERLOADED: Final = 2.0
"""Times the mean load of a node without balancing: who has more to do is overloaded."""
QUIET_MS: Final = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoads:
    """What the peers of one network had to do."""

    gini: float
    load_max: int
    mean: float
    messages: int
    """With events, all nodes together."""
    control: int
    """Others, from the first event on: loads, copies for deputies, what goes on anyway."""
    deputies: int
    wrong: tuple[str, ...]


class _Watcher:
    """Counts what peers send for others, and who gets which event."""

    def __init__(self) -> None:
        self.loads: Counter[str] = Counter()
        self.messages = 0
        self.control = 0
        self.delivered: dict[str, Counter[str]] = {}

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Received):
            received = record.cause.messages
            self.loads[record.node] += sum(
                _has_event(each) and not isinstance(each, Notified) for each in received
            )
        for effect in record.effects:
            if isinstance(effect, Send):
                self._count(record.node, effect.messages)
            elif isinstance(effect, Deliver):
                found = self.delivered.setdefault(effect.publication.id, Counter())
                found.update(effect.subscriptions)

    def _count(self, node: str, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if not _has_event(message):
                self.control += 1
                continue
            self.messages += 1
            # The first step of an event is its publisher's own affair.
            self.loads[node] += not (isinstance(message, Rendezvous) and message.hops == 1)


def _has_event(message: Message) -> bool:
    return isinstance(message, Rendezvous | Spread | Detour | Handed | Notified)


def simulated_loads(network: Network, replication: Replication) -> dict[str, SimulatedLoads]:
    """Loads without balancing, and with each kind."""
    plain = ReachSettings(
        identifier_bits=network.bits.identifier_bits,
        attributes=network.attributes,
        summary=network.summary,
        summary_filters=True,
        orders=0,
        replicas=0,
        answer_share=0,
        load_ms=LOAD_MS,
        renew_ms=0,
    )
    heirs = replace(plain, answer_share=replication.share)
    replicated = replace(heirs, orders=replication.orders, replicas=replication.depth)
    before = _measured(network, plain)
    beats = max(len(network.workload.events) * EVERY_MS / LOAD_MS, 1)
    push_above = max(int(OVERLOADED * before.mean / beats), 1)
    return {
        "none": before,
        "push": _measured(network, replace(plain, push_above=push_above)),
        "replicate": _measured(network, replicated),
        "both": _measured(network, replace(replicated, push_above=push_above)),
        "heirs": _measured(network, heirs),
    }


def _measured(network: Network, settings: ReachSettings) -> SimulatedLoads:
    watcher = _Watcher()

    def make(name: str, incarnation: int) -> BareNode:
        return BareNode(ReachPeer(PeerId(name, incarnation), settings, network.seed))

    steady = NetworkSettings(latency_ms=10, jitter_ms=0)
    simulation = Simulation(network.seed, make, steady, [watcher])
    names = [numbered_node(number) for number in range(network.nodes)]
    peers: list[ReachPeer] = [simulation.add(name).overlay for name in names]
    given: dict[str, dict[str, Filter]] = {name: {} for name in names}
    for number, wanted in enumerate(network.workload.filters):
        given[names[number % network.nodes]][str(number)] = wanted
    converge(peers, given)
    simulation.link_all()
    watcher.control = 0
    for number in range(ROUNDS_BEFORE):
        _publish_all(simulation, network, names, f"round{number}-")
    watcher.loads.clear()
    watcher.messages = 0
    _publish_all(simulation, network, names, "")
    loads = [watcher.loads[name] for name in names]
    return SimulatedLoads(
        gini=gini(loads),
        load_max=max(loads),
        mean=sum(loads) / len(loads),
        messages=watcher.messages,
        control=watcher.control,
        deputies=sum(len(seat.deputies) for peer in peers for seat in peer.holdings.seats.values()),
        wrong=tuple(_wrong(network, watcher)),
    )


def _publish_all(
    simulation: Simulation, network: Network, names: Sequence[str], prefix: str
) -> None:
    for number, event in enumerate(network.workload.events):
        publication = Publication(prefix + event.id, event.attributes)
        simulation.cause(names[network.publisher(number)], Publish((publication,)))
        simulation.run_for(EVERY_MS)
    simulation.run_until_quiet(QUIET_MS)


def _wrong(network: Network, watcher: _Watcher) -> Iterator[str]:
    rounds = ("", *(f"round{number}-" for number in range(ROUNDS_BEFORE)))
    for event, wanted in zip(network.workload.events, network.workload.wanted, strict=True):
        expected = Counter(map(str, wanted))
        for prefix in rounds:
            if watcher.delivered.get(prefix + event.id, Counter()) != expected:
                yield f"simulated: {prefix}{event.id} did not come to those who want it"
