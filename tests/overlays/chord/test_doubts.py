"""Peers in doubt: who lives does not wait until it is certain who is gone."""

from typing import Any

import pytest

from overlays.chord.ring_world import World
from peersub.overlays.core.effects import Deliver
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.publication import Delivery
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step, TraceRecord

LINKS = LinkSettings(
    acknowledge=True, resend_ms=1_000, resends_max=3, tunnels=True, tunnel_timeout_ms=250
)
"""As those of a live node."""
DETECTION_MS, DOUBT_MS = 750, 200
STALL_MS = 3_000
HOPS_MS = 40
"""What an event takes without faults, with ample room: 16 nodes, up to 2 ms for each hop."""


class Timed(World):
    """A ring in which each delivery is noted with its time."""

    def __init__(self, seed: int, doubt_ms: int, **options: Any) -> None:
        self.times: dict[tuple[str, str], int] = {}
        network = NetworkSettings(
            latency_ms=1,
            jitter_ms=1,
            detection_ms=DETECTION_MS,
            detection_jitter_ms=100,
            doubt_ms=doubt_ms,
            connect_failed_ms=1_000,
        )
        super().__init__(seed, network, probe_ms=2_000, merge_settle_ms=1_000, **options)

    def observe(self, record: TraceRecord) -> None:
        super().observe(record)
        if isinstance(record, Step):
            for effect in record.effects:
                if isinstance(effect, Deliver):
                    for name in effect.subscriptions:
                        self.times[effect.publication.id, name] = record.now_ms

    def stall_a_quarter(self) -> tuple[int, dict[str, list[str]]]:
        """Publish all the while, let nodes stand still; the longest wait of the others, and all."""
        self.converge(16)
        self.simulation.run_for(10)
        still = self.random.sample(self.nodes[1:], 4)
        published: dict[str, tuple[int, list[str]]] = {}
        begin_ms = 0
        for turn in range(300):
            if turn == 50:
                begin_ms = self.simulation.now_ms
                self.simulation.stall(still, STALL_MS)
            attributes = {"x": self.random.randrange(100), "y": self.random.randrange(4)}
            wanted = self.expected(attributes)
            event = self.publish("n0", attributes, Delivery.AT_LEAST_ONCE)
            published[event] = self.simulation.now_ms, wanted
            self.simulation.run_for(10)
        self.settle()
        waits = [
            self.times[event, name] - max(at_ms, begin_ms)
            for event, (at_ms, names) in published.items()
            for name in names
            if self.subscriptions[name][0] not in still
        ]
        return max(waits), {event: names for event, (_, names) in published.items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("links", [None, LINKS], ids=["bare", "tunnels"])
def test_the_living_wait_for_a_doubt_and_no_longer(seed: int, links: LinkSettings | None) -> None:
    world = Timed(seed, DOUBT_MS, links=links)
    wait_ms, published = world.stall_a_quarter()
    # A doubt comes up to half as long later; one node may have to doubt what another sent on.
    assert wait_ms <= 1.5 * DOUBT_MS + HOPS_MS
    for event, names in published.items():
        assert sorted(world.delivered.get(event, [])) == names
        assert event in world.completed


def test_without_doubts_they_wait_until_the_others_are_given_up() -> None:
    """The same story tells the two apart: else the test above would show nothing."""
    wait_ms, published = Timed(0, 0, links=LINKS).stall_a_quarter()
    assert wait_ms > 2 * DOUBT_MS
    assert published


def test_a_peer_that_is_heard_again_has_lost_nothing() -> None:
    """A short stall: nobody is given up, nothing is replayed, and nothing comes twice."""
    world = Timed(1, DOUBT_MS, links=LINKS)
    world.converge(16)
    still = world.random.sample(world.nodes[1:], 4)
    world.simulation.run_for(10)
    world.simulation.stall(still, DETECTION_MS - 50)
    wanted = {}
    for _ in range(60):
        attributes = {"x": world.random.randrange(100), "y": world.random.randrange(4)}
        wanted[world.publish("n0", attributes, Delivery.AT_LEAST_ONCE)] = world.expected(attributes)
        world.simulation.run_for(10)
    world.simulation.run_for(DETECTION_MS)
    assert world.simulation.counters.links_lost == 0
    for event, names in wanted.items():
        assert sorted(world.delivered.get(event, [])) == names
        assert event in world.completed
    world.settle()
