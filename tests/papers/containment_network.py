"""Containment trees under the simulator's clock, judged by `interests`.

Each peer of the paper is a node `p0`, `p1`, ... with one subscription. Which edges there are is
read from the members; who should receive a message is worked out here, from those edges and from
the interests as sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from papers.interests import Interest
from peersub.overlays.containment.converged import converge
from peersub.overlays.containment.messages import Forwarded
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.causes import Publish, Received, Subscribe, Unsubscribe
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.settings import settings_from
from peersub.simulator.engine import Simulation
from peersub.simulator.hosts import BareNode
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step, TraceRecord

__all__ = ["STEADY", "ContainmentNetwork", "Edge"]

STEADY = NetworkSettings(latency_ms=10, jitter_ms=0)


@dataclass(frozen=True, slots=True)
class Edge:
    """The edge up from a peer."""

    above: str
    kind: EdgeKind


class ContainmentNetwork:
    """Peers of one tree."""

    def __init__(
        self, seed: int = 1, *, network: NetworkSettings = STEADY, **settings: Any
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        chosen = {"reorganise": "never", **settings}
        self.settings = settings_from(ContainmentSettings, chosen)
        self.simulation = Simulation(seed, self._make_node, network, [self])
        self.interests: dict[str, Interest] = {}
        """Of the peers that are there."""
        self.received: dict[str, Counter[str]] = {}
        """Per message who got a copy over a link, and how many."""
        self.forwarded: dict[str, Counter[str]] = {}
        """Per message who sent how many copies over links."""
        self.delivered: dict[str, Counter[str]] = {}
        self.hops: dict[str, int] = {}
        """Per message the links on the longest way to anybody."""
        self.messages: Counter[tuple[str, type[Message]]] = Counter()
        """Per node and kind, what came."""
        self._published = 0

    @classmethod
    def of(cls, interests: Sequence[Interest], seed: int = 1, **more: Any) -> ContainmentNetwork:
        """Peers that joined one after the other, each when all was quiet."""
        made = cls(seed, **more)
        for interest in interests:
            made.join(interest)
        return made

    @classmethod
    def converged(
        cls, interests: Sequence[Interest], seed: int = 1, **more: Any
    ) -> ContainmentNetwork:
        """Peers that have their best places from the start."""
        made = cls(seed, **more)
        peers = [made.simulation.add(f"p{number}").overlay for number in range(len(interests))]
        made.interests = {f"p{number}": each for number, each in enumerate(interests)}
        given = {name: {f"{name}/s": each.filter} for name, each in made.interests.items()}
        converge(peers, given)
        made.simulation.link_all()
        for peer in peers:
            for other in peer.links():
                peer.peer_offers(other, ())
                made.peer(other.node).peer_offers(peer.me, ())
        return made

    def _make_node(self, name: str, incarnation: int) -> BareNode:
        return BareNode(ContainmentPeer(PeerId(name, incarnation), self.settings, self.seed))

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        if isinstance(record.cause, Received):
            for message in record.cause.messages:
                self.messages[record.node, type(message)] += 1
                if isinstance(message, Forwarded):
                    event = message.publication.id
                    self.received.setdefault(event, Counter())[record.node] += 1
                    self.hops[event] = max(self.hops.get(event, 0), message.hops)
                    sender = record.cause.peer.node
                    self.forwarded.setdefault(event, Counter())[sender] += 1
        for effect in record.effects:
            if isinstance(effect, Deliver):
                found = self.delivered.setdefault(effect.publication.id, Counter())
                found.update(name.split("/")[0] for name in effect.subscriptions)

    # --- what is done --------------------------------------------------------------------------

    def join(self, interest: Interest, contact: str | None = None, *, settles: bool = True) -> str:
        """A new peer, over some others, or a certain one."""
        name = f"p{len(self.simulation.hosts)}"
        living = self.nodes
        if living:
            some = self.random.sample(living, min(3, len(living)))
            self.simulation.join(name, [contact] if contact else some)
        else:
            self.simulation.start(name)
        if settles:
            # A node first finds its way in, then it subscribes.
            self.settle()
        self.interests[name] = interest
        self.simulation.cause(name, Subscribe(f"{name}/s", interest.filter))
        if settles:
            self.settle()
        return name

    def unsubscribe(self, name: str) -> None:
        """The peer leaves the tree; its node stays."""
        del self.interests[name]
        self.simulation.cause(name, Unsubscribe(f"{name}/s"))

    def leave(self, name: str) -> None:
        self.interests.pop(name, None)
        self.simulation.leave(name)

    def crash(self, names: Iterable[str]) -> None:
        gone = list(names)
        for name in gone:
            self.interests.pop(name, None)
        self.simulation.crash(gone)

    def publish(self, name: str, message: float) -> str:
        self._published += 1
        event = f"e{self._published}"
        self.simulation.cause(name, Publish((Publication(event, {"x": message}),)))
        return event

    def settle(self, limit_ms: int = 400_000) -> None:
        assert self.simulation.run_until_quiet(limit_ms), "the network does not come to rest"

    # --- what there is -------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        return [host.name for host in self.simulation.living()]

    def peer(self, name: str) -> ContainmentPeer:
        found: ContainmentPeer = self.simulation.hosts[name].overlay
        return found

    def member(self, name: str) -> Any:
        """The only one on a node that wants something."""
        (found,) = (
            member
            for member in self.peer(name).hosting.members.values()
            if member.seat.wanted is not None
        )
        return found

    def edges(self) -> dict[str, Edge | None]:
        """Per peer its edge up; None for the crown."""
        found: dict[str, Edge | None] = {}
        for name in self.interests:
            seat = self.member(name).seat
            assert seat.is_seated, f"{name} has no place"
            found[name] = None if seat.up is None else Edge(seat.up.peer.node, seat.up.kind)
        return found

    def children(self, name: str) -> list[str]:
        """The peers of contained classes right below one."""
        seat = self.member(name).seat
        return [peer.node for peer in seat.below(EdgeKind.CHILD)]

    def parents(self) -> dict[str, str | None]:
        """Per root of a class the root of the one above it; None at the top level."""
        return {
            name: edge.above if edge is not None and edge.kind is EdgeKind.CHILD else None
            for name, edge in self.edges().items()
            if edge is None or edge.kind is not EdgeKind.EQUAL
        }

    def depth(self, name: str) -> int:
        edges, depth = self.edges(), 1
        while (edge := edges[name]) is not None and edge.kind is not EdgeKind.TOP:
            name, depth = edge.above, depth + (edge.kind is EdgeKind.CHILD)
        return depth

    # --- what is expected ----------------------------------------------------------------------

    def wants(self, name: str) -> frozenset[float]:
        return self.interests[name].wants if name in self.interests else frozenset()

    def interested(self, message: float) -> set[str]:
        return {name for name, interest in self.interests.items() if message in interest.wants}

    def expected(self, publisher: str, message: float) -> set[str]:
        """Those who want it, roots below them, the top level, and who it climbs over."""
        edges, interested = self.edges(), self.interested(message)
        receivers = set(interested)
        for name, edge in edges.items():
            is_top = edge is None or edge.kind is EdgeKind.TOP
            if is_top or (edge.kind is EdgeKind.CHILD and edge.above in interested):
                receivers.add(name)
        climbed: str | None = publisher
        if publisher not in edges:
            # A node that wants nothing publishes through the member that its keeper stands below.
            climbed = self.peer(publisher).keeper.seat.up.peer.node
        while climbed is not None:
            receivers.add(climbed)
            edge = edges[climbed]
            goes_on = climbed not in interested and edge is not None
            climbed = edge.above if goes_on and edge.kind is not EdgeKind.TOP else None
        return receivers

    def check(self, messages: Iterable[float], publishers: Iterable[str] | None = None) -> None:
        """Messages reach whom they should, once, and are handed to who wants them, once."""
        sent = {}
        for message in messages:
            publisher = self.random.choice(self.nodes)
            for name in [publisher] if publishers is None else publishers:
                sent[self.publish(name, message)] = name, message
        self.simulation.run_for(20_000)
        for event, (publisher, message) in sent.items():
            copies = self.received.get(event, Counter())
            expected = self.expected(publisher, message)
            if self.settings.sibling_threshold and message not in self.wants(publisher):
                # Those whom it climbed over get it once more, to pass it along their lists.
                assert copies.keys() | {publisher} == expected | {publisher}
                assert max(copies.values(), default=0) <= 2
            else:
                assert copies == Counter(expected - {publisher}), f"{message} from {publisher}"
            assert self.delivered.get(event, Counter()) == Counter(self.interested(message))
