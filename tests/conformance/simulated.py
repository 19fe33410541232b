"""The simulator as a driver of the conformance suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.networks import Network, NotInTimeError, Wish
from peersub.bench.resilience.worker import content_of
from peersub.overlays.core.causes import Publish, Subscribe, Unsubscribe
from peersub.overlays.core.effects import (
    Deliver,
    PublishCompleted,
    PublishFailed,
    Send,
    SubscriptionReady,
)
from peersub.overlays.core.identity import PeerId, numbered_node
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.versions import BATCHES_FEATURE
from peersub.overlays.registry import overlay_kind
from peersub.overlays.routing.messages import NotifyBatch
from peersub.runtime.settings import LIVE_LINKS, live_settings
from peersub.simulator.engine import Simulation
from peersub.simulator.nodes import wire_passage
from peersub.trace.schema import Disk, Step, TraceRecord

CONTACTS = 3
LIMIT_MS = 120_000
BRIEFLY_MS = 2_000


class Notes:
    """Observes what subscribers get, and what publishers hear."""

    def __init__(self) -> None:
        self.got: dict[str, Counter[str]] = {}
        self.contents: dict[tuple[str, str], str] = {}
        self.ended: dict[str, str | None] = {}
        self.ready: dict[str, None] = {}
        self.takes_batches: dict[str, bool] = {}

    def observe(self, record: TraceRecord) -> None:
        if not isinstance(record, Step):
            return
        for effect in record.effects:
            match effect:
                case Deliver(publication, subscriptions):
                    for name in subscriptions:
                        self.got.setdefault(name, Counter())[publication.id] += 1
                        self.contents[name, publication.id] = content_of(publication)
                case Send(peer, messages):
                    if any(isinstance(unwrapped(each), NotifyBatch) for each in messages):
                        assert self.takes_batches[peer.node], f"{peer.node} takes no batches"
                case SubscriptionReady(name):
                    self.ready[name] = None
                case PublishCompleted(event_id):
                    self.ended[event_id] = None
                case PublishFailed(event_id, reason):
                    self.ended[event_id] = reason


class SimulatedNetwork(Network):
    """Nodes under a virtual clock; all messages pass through bytes."""

    def __init__(self, overlay: str, nodes_with_columns: int = 0) -> None:
        super().__init__(overlay)
        self._notes = Notes()
        self._differences: dict[str, dict[str, Any]] = {}
        self._simulation = Simulation(
            1,
            self._make,
            observers=(self._notes,),
            through_wire=wire_passage(lambda: self._simulation.counters),
        )
        self._nodes = 0
        self._batches: dict[str, str] = {}

    def _make(self, name: str, incarnation: int) -> Node:
        given = {"overlay": self.overlay, "network": "test", **self._differences.get(name, {})}
        settings = live_settings(given["overlay"], given.get("overlay_settings", {}))
        peer = overlay_kind(given["overlay"]).make(PeerId(name, incarnation), 0, settings)
        links = LinkSettings(**given["links"]) if "links" in given else LIVE_LINKS
        protocol = given.get("protocol", (1, 1))
        features = (BATCHES_FEATURE,) if given.get("columns", True) else ()
        self._notes.takes_batches[name] = bool(features) and protocol >= (1, 1)
        return Node(
            peer, network=given["network"], settings=links, version=protocol, features=features
        )

    def members(self) -> list[str]:
        return [host.name for host in self._simulation.living() if host.overlay.takes_part]

    def _begin(self, differences: dict[str, Any]) -> str:
        name = numbered_node(self._nodes)
        self._nodes += 1
        self._differences[name] = differences
        contacts = self.members()[:CONTACTS]
        if contacts:
            self._simulation.join(name, contacts)
        else:
            self._simulation.start(name)
        return name

    def join(self, **differences: Any) -> str:
        name = self._begin(differences)
        self._takes_part(name)
        return name

    def _takes_part(self, name: str) -> None:
        host = self._simulation.hosts[name]
        self.until(lambda: bool(host.overlay.takes_part), f"{name} takes part")

    def refusal(self, **differences: Any) -> str:
        name = self._begin(differences)
        node = self._simulation.hosts[name].node
        self.until(lambda: bool(node.refusals), f"{name} is refused")
        assert not node.overlay.takes_part
        self._simulation.crash([name])
        return str(next(iter(node.refusals.values())))

    def leave(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self._simulation.leave(node)
        self.until(lambda: not any(map(self._simulation.is_on, nodes)), "nodes have left")
        self.forget(nodes)

    def crash(self, nodes: Sequence[str]) -> None:
        self._simulation.crash(nodes)
        self.forget(nodes)

    def restart(self, node: str) -> str:
        self._simulation.restart(node, self.members()[:CONTACTS], Disk.LOST)
        self._takes_part(node)
        return node

    def subscribe_all(self, node: str, wishes: Mapping[str, Wish]) -> None:
        for name, wish in wishes.items():
            self._notes.got.setdefault(name, Counter())
            # An earlier subscription of this name was ready as well.
            self._notes.ready.pop(name, None)
            self._simulation.cause(node, Subscribe(name, wish.filter))
        self.until(lambda: all(name in self._notes.ready for name in wishes), f"{wishes} are ready")

    def unsubscribe_one(self, node: str, name: str) -> None:
        self._simulation.cause(node, Unsubscribe(name))

    def publish_all(self, node: str, events: Sequence[Publication], batch: str | None) -> None:
        if batch is None:
            self._simulation.cause(node, Publish(tuple(events)))
        else:
            self._batches[batch] = events[0].id
            self._simulation.publish_batch(node, batch, events)

    def ended(self) -> Mapping[str, str | None]:
        # Observers of a simulation see the events of a batch one by one.
        ended = self._notes.ended
        batches = {name: ended[first] for name, first in self._batches.items() if first in ended}
        return {**ended, **batches}

    def got(self) -> Mapping[str, Counter[str]]:
        return self._notes.got

    def contents(self) -> Mapping[tuple[str, str], str]:
        return self._notes.contents

    def until(self, holds: Callable[[], bool], what: str, *, briefly: bool = False) -> None:
        if not self._simulation.run_until(holds, BRIEFLY_MS if briefly else LIMIT_MS):
            raise NotInTimeError(what)

    def status(self, node: str) -> Mapping[str, Any]:
        host = self._simulation.hosts[node]
        return {**host.node.describe(), "refused": dict(host.node.refusals)}

    def close(self) -> None:
        pass
