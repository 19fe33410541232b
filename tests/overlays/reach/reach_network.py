"""Networks of Reach under the simulator's clock, and what is seen of them from outside."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Publish, Received, Subscribe, Unsubscribe
from peersub.overlays.core.effects import Deliver, Drop, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.reach.converged import converge
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.reach.invariants import check_quiet
from peersub.overlays.reach.messages import Rendezvous, Spread
from peersub.overlays.reach.peer import ReachPeer
from peersub.overlays.reach.settings import ReachSettings
from peersub.overlays.settings import settings_from
from peersub.simulator.engine import Simulation
from peersub.simulator.hosts import BareNode
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Observer, Step, TraceRecord

STEADY = NetworkSettings(latency_ms=10, jitter_ms=0)
LETTERS = "abcdefgh"
"""Attributes of all events and filters here: each has a bit."""
QUIET_MS = 120_000


class ReachNetwork:
    """Nodes `n0`, `n1`, ... whose subscriptions demand letters."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        self.seed = seed
        self.random = Random(seed)
        chosen = {"identifier_bits": 8, "attributes": "; ".join(LETTERS), **settings}
        self.settings = settings_from(ReachSettings, chosen)
        self.simulation = Simulation(seed, self._make_node, STEADY, [self])
        self.wanted: dict[str, tuple[str, Filter]] = {}
        self.ready: dict[str, None] = {}
        self.delivered: dict[str, Counter[str]] = {}
        self.visited: dict[str, Counter[Place]] = {}
        """Per event the places that it was sent down to."""
        self.ways: Counter[str] = Counter()
        """Per event the links to its rendezvous."""
        self.dropped = 0
        """Messages that a node gave up, and said so."""
        self.watchers: list[Observer] = []
        """Who else looks at what happens."""
        self._numbers = 0

    def _make_node(self, name: str, incarnation: int) -> BareNode:
        return BareNode(ReachPeer(PeerId(name, incarnation), self.settings, self.seed))

    def observe(self, record: TraceRecord) -> None:
        for watcher in self.watchers:
            watcher.observe(record)
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Received):
            for message in record.cause.messages:
                if isinstance(message, Spread):
                    event = message.publication.id
                    self.visited.setdefault(event, Counter())[message.place] += 1
                elif isinstance(message, Rendezvous):
                    self.ways[message.publication.id] += 1
        for effect in record.effects:
            if isinstance(effect, Deliver):
                found = self.delivered.setdefault(effect.publication.id, Counter())
                found.update(effect.subscriptions)
            elif isinstance(effect, SubscriptionReady):
                self.ready[effect.subscription] = None
            elif isinstance(effect, Drop):
                self.dropped += 1

    @classmethod
    def joined(cls, nodes: int, seed: int = 1, **settings: Any) -> ReachNetwork:
        made = cls(seed, **settings)
        for _ in range(nodes):
            made.join()
        made.settle()
        return made

    @classmethod
    def converged(cls, nodes: int, seed: int = 1, **settings: Any) -> ReachNetwork:
        made = cls(seed, **settings)
        converge([made.simulation.add(f"n{number}").overlay for number in range(nodes)], {})
        made.simulation.link_all()
        return made

    # --- what is done --------------------------------------------------------------------------

    def join(self) -> str:
        name = f"n{len(self.simulation.hosts)}"
        if self.nodes:
            self.simulation.join(name, [self.random.choice(self.nodes)])
        else:
            self.simulation.start(name)
        return name

    def subscribe(self, node: str, letters: str) -> str:
        """A subscription that demands some letters, by a comparison each."""
        self._numbers += 1
        name = f"s{self._numbers}"
        text = " AND ".join(f"{letter} > 0" for letter in letters) or "TRUE"
        self.wanted[name] = (node, Filter(text))
        self.simulation.cause(node, Subscribe(name, self.wanted[name][1]))
        return name

    def unsubscribe(self, name: str) -> None:
        node, _ = self.wanted.pop(name)
        self.simulation.cause(node, Unsubscribe(name))

    def publish(self, node: str, letters: str) -> str:
        self._numbers += 1
        event = f"e{self._numbers}"
        publication = Publication(event, dict.fromkeys(letters, 1))
        self.delivered[event] = Counter()
        self.visited[event] = Counter()
        self.simulation.cause(node, Publish((publication,)))
        return event

    def crash(self, *nodes: str) -> None:
        self.simulation.crash(list(nodes))
        self.wanted = {name: each for name, each in self.wanted.items() if each[0] not in nodes}

    def leave(self, node: str) -> None:
        self.simulation.leave(node)
        self.wanted = {name: each for name, each in self.wanted.items() if each[0] != node}

    def settle(self) -> None:
        assert self.simulation.run_until_quiet(QUIET_MS), "the network does not get quiet"

    # --- what is seen --------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        return [host.name for host in self.simulation.living() if not host.is_leaving]

    @property
    def peers(self) -> list[ReachPeer]:
        return [host.overlay for host in self.simulation.living()]

    def peer(self, name: str) -> ReachPeer:
        return self.simulation.hosts[name].overlay

    def places(self) -> dict[Place, ReachPeer]:
        return {place: peer for peer in self.peers for place in peer.holdings.seats}

    def holder(self, identifier: int) -> ReachPeer:
        (found,) = [peer for place, peer in self.places().items() if place.hosts(identifier)]
        return found

    def complaints(self) -> list[str]:
        return check_quiet(self.peers)

    def wanting(self, letters: str) -> Counter[str]:
        """Brute force: who wants an event with these letters."""
        event = dict.fromkeys(letters, 1)
        return Counter(name for name, (_, wanted) in self.wanted.items() if wanted.matches(event))


def bits_of(letters: str) -> int:
    return sum(1 << LETTERS.index(letter) for letter in letters)
