"""A toy overlay that only takes notes, and simulations of such toys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.protocol import Overlay
from peersub.simulator.engine import Simulation
from peersub.simulator.settings import NetworkSettings


@dataclass(frozen=True, slots=True)
class Numbered(Message):
    """A message with a number."""

    number: int


class Toy(Overlay):
    """Notes each cause with its time, and asks for nothing. Stands for its node as well."""

    name = "toy"
    takes_part = True
    is_joining = False
    features = ()

    def __init__(self, name: str, incarnation: int) -> None:
        self.me = PeerId(name, incarnation)
        self.seen: list[tuple[int, Any]] = []
        self.answers: dict[type, list[Any]] = {}
        """Effects to answer a kind of cause with."""

    def handle(self, cause, now_ms):
        self.seen.append((now_ms, cause))
        return self.answers.get(type(cause), [])

    @property
    def overlay(self):
        return self

    def adopt_link(self, peer, greeting=b"", features=None):
        pass

    def waiting_links(self):
        return []

    def links(self):
        return []

    def describe(self):
        return {"seen": len(self.seen)}

    def causes(self, *kinds):
        return [cause for _, cause in self.seen if isinstance(cause, kinds)]

    def times(self, *kinds):
        return [now_ms for now_ms, cause in self.seen if isinstance(cause, kinds)]

    def numbers(self):
        return [m.number for _, cause in self.seen for m in getattr(cause, "messages", ())]


def simulate_toys(*names, seed=1, observers=(), **settings) -> Simulation:
    """Toys that have started, on a network with these settings."""
    network = NetworkSettings(**{"latency_ms": 10, "jitter_ms": 0, **settings})
    simulation = Simulation(seed, Toy, network, observers)
    for name in names:
        simulation.start(name)
    return simulation


def toy(simulation, name) -> Toy:
    return simulation.hosts[name].node


class Recorder:
    """An observer that keeps all it is told."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def observe(self, record) -> None:
        self.records.append(record)
