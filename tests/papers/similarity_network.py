"""Similarity graphs under the simulator's clock, judged by `interests`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import mean
from typing import Any

from papers.containment_network import STEADY
from papers.interests import MESSAGES, Interest
from peersub.events.envelope import Event
from peersub.overlays.core.causes import Publish, Received, Subscribe
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.settings import with_sample
from peersub.overlays.similarity.messages import Routed, Sought
from peersub.overlays.similarity.peer import SimilarityPeer
from peersub.overlays.similarity.settings import PAPER
from peersub.simulator.engine import Simulation
from peersub.simulator.hosts import BareNode
from peersub.trace.schema import Step, TraceRecord

__all__ = ["SimilarityNetwork"]


class SimilarityNetwork:
    """Peers of a similarity graph that joined one by one; all know the same sample."""

    def __init__(self, interests: list[Interest], seed: int = 1, **settings: Any) -> None:
        # What is published does not change the sample: links stay as they are.
        fixed = replace(PAPER.sampling, sample_learns=False)
        chosen = replace(PAPER, sampling=fixed, **settings)
        sample = tuple(Event(f"m{number}", {"x": x}) for number, x in enumerate(MESSAGES))
        self.settings = with_sample(chosen, sample)
        self.seed = seed
        self.random = Random(seed)
        self.interests: dict[str, Interest] = {}
        self.delivered: dict[str, Counter[str]] = {}
        self.received: dict[str, set[str]] = {}
        self.routed = 0
        """Copies of messages that came to somebody."""
        self.simulation = Simulation(seed, self._make_node, STEADY, [self])
        for number, interest in enumerate(interests):
            name = f"p{number}"
            if number:
                self.simulation.join(name, [self.random.choice(list(self.interests))])
            else:
                self.simulation.start(name)
            self.simulation.run_for(500)
            self.interests[name] = interest
            self.simulation.cause(name, Subscribe(name, interest.filter))
            self.simulation.run_for(1_500)

    def _make_node(self, name: str, incarnation: int) -> BareNode:
        return BareNode(SimilarityPeer(PeerId(name, incarnation), self.settings, self.seed))

    def observe(self, record: TraceRecord) -> None:
        if isinstance(record, Step) and isinstance(cause := record.cause, Received):
            for message in cause.messages:
                if isinstance(message, Routed | Sought):
                    self.routed += 1
                    found = self.received.setdefault(message.publication.id, set())
                    found.add(record.node)
        for effect in getattr(record, "effects", ()):
            if isinstance(effect, Deliver):
                found = self.delivered.setdefault(effect.publication.id, Counter())
                found.update(effect.subscriptions)

    def member(self, name: str) -> Any:
        (found,) = self.simulation.hosts[name].overlay.members()
        return found

    def crash(self, names: list[str]) -> None:
        for name in names:
            del self.interests[name]
        self.simulation.crash(names)

    def wanting(self, message: float) -> list[str]:
        return [name for name, each in self.interests.items() if message in each.wants]

    def links(self) -> dict[str, list[str]]:
        return {
            name: [peer.node for peer in self.member(name).neighbours()] for name in self.interests
        }

    def reached_by(self, publisher: str, message: float) -> set[str]:
        """Who receives a message that somebody publishes, the publisher included."""
        self.delivered_of(publisher, message)
        return {publisher} | self.received.get(self._event, set())

    def delivered_of(self, publisher: str, message: float) -> set[str]:
        """Who is handed a message that somebody publishes, once each."""
        event = self._event = f"{self.simulation.now_ms}/{publisher}"
        self.simulation.cause(publisher, Publish((Publication(event, {"x": message}),)))
        self.simulation.run_for(1_000)
        found = self.delivered.get(event, Counter())
        assert max(found.values(), default=1) == 1
        return set(found)

    def closeness(self, name: str) -> tuple[float, float]:
        """f_s of the neighbours that a peer chose, and of the closest there are; on average."""
        mine = self.interests[name]

        def near_to_me(other: Interest) -> float:
            both = len(mine.wants & other.wants) + 0.5
            return (both / (len(mine.wants) + 1) + both / (len(other.wants) + 1)) / 2

        chosen = [near_to_me(self.interests[peer.node]) for peer in self.member(name).near]
        others = [near_to_me(each) for other, each in self.interests.items() if other != name]
        assert len(chosen) == self.settings.nearest
        return mean(chosen), mean(sorted(others, reverse=True)[: self.settings.nearest])

    def missed(self) -> float:
        """The share of those who want a message that do not get it, over all messages."""
        sent = {}
        for number, message in enumerate(MESSAGES):
            wanting = self.wanting(message)
            for name in wanting[:3]:
                event = f"{self.simulation.now_ms}/{number}/{name}"
                self.simulation.cause(name, Publish((Publication(event, {"x": message}),)))
                sent[event] = set(wanting)
        self.simulation.run_for(5_000)
        for event, wanting in sent.items():
            found = self.delivered.get(event, Counter())
            assert found.keys() <= wanting
            assert max(found.values()) == 1
        lost = sum(len(wanting - self.delivered[event].keys()) for event, wanting in sent.items())
        return lost / sum(map(len, sent.values()))
