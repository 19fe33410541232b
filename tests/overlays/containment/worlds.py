"""Small networks of the containment tree, grown by joins, and the law of receivers for them."""

from peersub.overlays.containment.invariants import check_quiet
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.causes import Publish, Subscribe, Unsubscribe
from peersub.overlays.core.effects import Deliver, Drop, Send
from peersub.overlays.core.event_keys import key_of_id
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.publication import Publication
from peersub.simulator.engine import Simulation
from peersub.simulator.nodes import node_maker, wire_passage
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step

NETWORK = NetworkSettings(latency_ms=5, jitter_ms=5, detection_ms=50, detection_jitter_ms=20)
QUIET_MS = 300_000
SETTLE_MS = 8_000


class Notes:
    """What subscribers got, how often an event came twice, and which messages were sent."""

    def __init__(self):
        self.got = {}
        self.repeated = {}
        self.sent = {}

    def observe(self, record):
        if not isinstance(record, Step):
            return
        for effect in record.effects:
            if isinstance(effect, Deliver):
                for name in effect.subscriptions:
                    self.got.setdefault(effect.publication.id, []).append(name)
            elif isinstance(effect, Drop) and effect.reason == "seen before":
                self.repeated[effect.event_id] = self.repeated.get(effect.event_id, 0) + 1
            elif isinstance(effect, Send):
                for message in effect.messages:
                    kind = type(unwrapped(message)).__name__
                    self.sent[kind] = self.sent.get(kind, 0) + 1


class World:
    """Nodes n0, n1, ... each of which joins when all is quiet, unless said otherwise."""

    def __init__(self, nodes, seed=1, *, through_wire=False, **settings):
        self.notes = Notes()
        scenario = Scenario(overlay="containment", seed=seed, settings=settings, network=NETWORK)
        passage = wire_passage(lambda: self.simulation.counters) if through_wire else None
        self.simulation = Simulation(
            seed, node_maker(scenario), NETWORK, [self.notes], through_wire=passage
        )
        self.simulation.start("n0")
        for number in range(1, nodes):
            self.simulation.join(f"n{number}", ["n0"])
        self.settle()

    def settle(self):
        assert self.simulation.run_until_quiet(QUIET_MS, SETTLE_MS)
        assert check_quiet(self.peers()) == []

    def peers(self):
        return [host.overlay for host in self.simulation.living()]

    def members(self):
        """All that stand for filters, by address."""
        return {
            member.me: member
            for peer in self.peers()
            for member in peer.hosting.members.values()
            if not member.seat.is_keeper
        }

    def subscribe(self, node, name, wanted, *, settle=True):
        self.simulation.cause(node, Subscribe(name, wanted))
        if settle:
            self.settle()

    def unsubscribe(self, node, name):
        self.simulation.cause(node, Unsubscribe(name))

    def publish(self, node, event):
        self.simulation.cause(node, Publish((Publication.of(event),)))
        self.simulation.run_for(2_000)

    def received(self, event_id):
        return {address for peer in self.peers() for address in peer.receivers(key_of_id(event_id))}

    def matching(self, event):
        members = self.members().values()
        return {member.me for member in members if member.seat.wanted.matches(event)}

    def law(self, node, event):
        """Who is to receive an event that a node publishes, said without following it."""
        members = self.members()
        matching = self.matching(event)
        law = set(matching)
        for address, member in members.items():
            up = member.seat.up
            is_root = up is None or up.kind is not EdgeKind.EQUAL
            is_top = up is None or up.kind is EdgeKind.TOP
            if is_top or (is_root and up.peer in matching):
                law.add(address)
        if not any(address.node == node for address in matching):
            climbed = next(p for p in self.peers() if p.me.node == node).keeper.seat
            while climbed.up is not None and climbed.up.kind is not EdgeKind.TOP:
                climbed = members[climbed.up.peer].seat
                law.add(climbed.me)
                if climbed.me in matching:
                    break
        return law

    def check(self, node, event):
        """Publish, and hold the network to the law and to brute force."""
        self.publish(node, event)
        assert self.received(event.id) == self.law(node, event)
        assert self.notes.repeated.get(event.id, 0) == 0
        wanting = sorted(
            name
            for peer in self.peers()
            for name, wanted in peer.home.subscriptions.items()
            if wanted.matches(event)
        )
        assert sorted(self.notes.got.get(event.id, [])) == wanting
