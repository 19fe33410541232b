"""Many leave at once where changes are limited (§3.3), and a network is split for long."""

from __future__ import annotations

from itertools import pairwise

import pytest

from overlays.reach.reach_network import ReachNetwork
from overlays.reach.test_peer import assert_all_get_what_they_want, with_subscriptions
from peersub.overlays.core.causes import Received
from peersub.overlays.reach.acquaintances import PROBES
from peersub.overlays.reach.identifiers import EMPTY_PLACE
from peersub.overlays.reach.leaving import LEAVE_WAIT_MS
from peersub.overlays.reach.messages import SeatGiven
from peersub.trace.schema import Step, TraceRecord

BEAT_MS = 1_000


class Watched(ReachNetwork):
    """Remembers when places came from nodes that leave, by who took them."""

    def __init__(self, seed: int = 1, **settings: object) -> None:
        super().__init__(seed, **settings)
        self.taken_ms: dict[str, list[int]] = {}

    def observe(self, record: TraceRecord) -> None:
        super().observe(record)
        if isinstance(record, Step) and isinstance(record.cause, Received):
            if not self.simulation.hosts[record.cause.peer.node].is_leaving:
                return
            for message in record.cause.messages:
                if isinstance(message, SeatGiven):
                    self.taken_ms.setdefault(record.node, []).append(record.now_ms)


def left_by(nodes: int, leavers: int, limit: int, **more: object) -> tuple[Watched, int]:
    """A network after so many have left at once, and how long that took."""
    settings = {"changes_per_beat": limit, "beat_ms": BEAT_MS, "renew_ms": 0, **more}
    network = with_subscriptions(Watched.joined(nodes, seed=5, **settings), 2 * nodes)
    began_ms = network.simulation.now_ms
    leaving = network.nodes[-leavers:]
    for node in leaving:
        network.leave(node)
    assert network.simulation.run_until(
        lambda: all(network.simulation.hosts[node].node is None for node in leaving), 60_000
    )
    needed_ms = network.simulation.now_ms - began_ms
    network.settle()
    assert network.complaints() == []
    assert_all_get_what_they_want(network)
    return network, needed_ms


def test_an_heir_takes_one_place_in_a_beat_if_that_is_the_limit() -> None:
    """Three of four leave: all that they have comes to the one that stays."""
    at_once, _ = left_by(4, 3, limit=0)
    all_ms = at_once.taken_ms["n0"]
    assert max(all_ms) - min(all_ms) < BEAT_MS
    one_by_one, _ = left_by(4, 3, limit=1)
    pauses = [later - earlier for earlier, later in pairwise(one_by_one.taken_ms["n0"])]
    assert len(pauses) == 2
    assert min(pauses) >= BEAT_MS - 2 * 10, "but for the time that a message takes"


@pytest.mark.parametrize(
    ("nodes", "leavers", "find_ms"), [(12, 11, 400), (24, 8, 400), (12, 11, 6_000)]
)
def test_nobody_is_kept_for_long(nodes: int, leavers: int, find_ms: int) -> None:
    network, needed_ms = left_by(nodes, leavers, limit=1, find_ms=find_ms)
    assert needed_ms < LEAVE_WAIT_MS + 2 * BEAT_MS
    assert len(network.nodes) == nodes - leavers


@pytest.mark.parametrize("limit", [0, 1])
def test_the_last_one_with_a_place_gives_it_to_who_waits_for_one(limit: int) -> None:
    """Who asks for a place has a link and nothing else; it would ask for ever."""
    network = ReachNetwork.joined(1, changes_per_beat=limit)
    network.join()
    n0, n1 = network.peer("n0"), network.peer("n1")
    assert network.simulation.run_until(lambda: "n1" in n0.post.linked, 1_000)
    assert n1.is_joining
    network.leave("n0")
    network.settle()
    assert network.nodes == ["n1"]
    assert list(network.places()) == [EMPTY_PLACE]
    assert network.complaints() == []


def test_parts_of_a_network_that_was_split_for_long_find_each_other() -> None:
    """Longer than nodes try at first to reach those that they have lost."""
    network = with_subscriptions(ReachNetwork.joined(8, seed=2), 16)
    parts = network.nodes[::2], network.nodes[1::2]
    network.simulation.partition(parts)
    network.simulation.run_for(2 * PROBES * network.settings.probe_ms)
    assert len(network.complaints()) > 0, "each part has all places"
    network.simulation.heal()
    network.simulation.run_for(8 * len(parts[0]) * network.settings.probe_ms)
    network.settle()
    assert network.complaints() == []
    assert_all_get_what_they_want(network)
