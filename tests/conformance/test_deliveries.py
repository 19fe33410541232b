"""Who gets what in a network that stands still."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from conformance.networks import (
    AT_LEAST_ONCE,
    BEST_EFFORT,
    Network,
    Wish,
    prices,
    subscribe_to_prices,
)
from peersub.bench.resilience.worker import content_of
from peersub.overlays.core.event_keys import event_id_of
from peersub.overlays.core.publication import Publication

NODES_WITH_COLUMNS = 2
"""Of live nodes; for the others batches are taken apart."""


def test_a_single_node_delivers_to_itself(network: Network) -> None:
    node = network.grow(1)[0]
    subscribe_to_prices(network, [node, node])
    network.publish(node, prices(network, range(20), BEST_EFFORT))
    network.check(node)


def test_what_a_node_publishes_reaches_exactly_those_who_want_it_once(network: Network) -> None:
    nodes = network.grow(4)
    subscribe_to_prices(network, nodes)
    for node in nodes:
        network.publish(node, prices(network, range(10), BEST_EFFORT))
        network.check(node)


def test_at_least_once_is_kept_or_refused_in_clear_words(network: Network) -> None:
    nodes = network.grow(4)
    subscribe_to_prices(network, nodes)
    events = prices(network, range(10), AT_LEAST_ONCE)
    if network.promises_at_least_once:
        network.publish(nodes[1], events)
        # Confirmed: what the publisher heard is true at that moment, not later.
        network.check(nodes[1])
        return
    network.publish_all(nodes[1], events, None)
    network.until(lambda: all(each.id in network.ended() for each in events), "they end")
    for event in events:
        reason = network.ended()[event.id]
        assert reason is not None
        assert "best effort only" in reason
        assert "use chord" in reason
    network.check(nodes[1])


def test_unsubscribing_ends_deliveries(network: Network) -> None:
    nodes = network.grow(4)
    names = subscribe_to_prices(network, nodes)
    for name in names[1::2]:
        network.unsubscribe(name)
    network.publish(nodes[0], prices(network, range(10), BEST_EFFORT))
    network.check(nodes[0])
    again = network.subscribe(nodes[3], names[1], "price = 3")
    network.publish(nodes[0], prices(network, range(10), BEST_EFFORT))
    network.check(nodes[0])
    assert network.wishes[again][0] == nodes[3]


DOCUMENTS = (
    b"<nitf><body><p lede='true'>one</p></body></nitf>",
    b"<nitf><body><section><p>two</p></section></body></nitf>",
    b"<nitf><head/></nitf>",
    None,
    b"no document",
)


def test_patterns_see_bodies_and_predicates_see_attributes(network: Network) -> None:
    nodes = network.grow(4)
    for node, wish in zip(
        nodes,
        (
            Wish("/nitf/body//p[@lede]", is_xpath=True),
            Wish("//p", is_xpath=True),
            Wish("/nitf/head", is_xpath=True),
            Wish("price > 1"),
        ),
        strict=False,
    ):
        network.subscribe(node, network.name("s"), wish)
    events = [
        Publication(network.name("e"), {"price": number}, body)
        for number, body in enumerate(DOCUMENTS)
    ]
    network.publish(nodes[2], events)
    network.check(nodes[2])
    assert sum(network.deliveries()[each] for each in network.expected) >= 7


MIXED = (
    {"v": 1},
    {"v": 1.5},
    {"v": True},
    {"v": "1"},
    {"v": Decimal("1.50")},
    {"v": date(2024, 2, 29)},
    {"v": datetime(2024, 2, 29, 12, 30, 0, 1, tzinfo=UTC)},
    {"v": None},
    {"v": {"inner": 7, "deep": {"er": "x"}}},
    {"v": [1, "two", None]},
    {"v": b"\x00\xff"},
    {},
    {"v": 2**63},
    {"v": float("nan")},
    {"v": "naïve — 日本", "w": -(2**63)},
)
"""One attribute of every kind there is: each keeps its own."""

MIXED_WISHES = (
    "v = 1",
    "v > 1",
    "v = TRUE",
    "v = '1'",
    "v >= DATE '2024-01-01'",
    "v > TIMESTAMP '2024-01-01 00:00:00'",
    "v IS NULL",
    "v.deep.er = 'x'",
    "v LIKE 'na%'",
    "w < 0",
)


def _subscribe_to_mixed(network: Network, nodes: list[str]) -> None:
    for place, wish in enumerate(MIXED_WISHES):
        network.subscribe(nodes[place % len(nodes)], network.name("s"), wish)


def test_values_of_every_kind_arrive_as_they_were_sent(network: Network) -> None:
    nodes = network.grow(4)
    _subscribe_to_mixed(network, nodes)
    events = [Publication(network.name("e"), attributes) for attributes in MIXED]
    network.publish(nodes[3], events)
    network.check(nodes[3])
    _check_contents(network, events)


@pytest.mark.parametrize("delivery", [BEST_EFFORT, AT_LEAST_ONCE], ids=lambda each: each.name)
def test_a_batch_is_its_events(network: Network, delivery) -> None:
    nodes = network.grow(4)
    _subscribe_to_mixed(network, nodes)
    network.subscribe(nodes[0], network.name("s"), Wish("//p", is_xpath=True))
    batch = network.name("b")
    events = [
        Publication(
            event_id_of(batch, number),
            attributes,
            DOCUMENTS[number % len(DOCUMENTS)],
            delivery=delivery,
        )
        for number, attributes in enumerate(MIXED)
    ]
    if delivery is AT_LEAST_ONCE and not network.promises_at_least_once:
        network.publish_all(nodes[1], events, batch)
        network.until(lambda: batch in network.ended(), "the batch ends")
        assert "best effort only" in (network.ended()[batch] or "")
    else:
        network.publish(nodes[1], events, batch=batch)
    network.check(nodes[1])
    _check_contents(network, events)


def _check_contents(network: Network, events: list[Publication]) -> None:
    sent = {event.id: content_of(event) for event in events}
    came = {event: content for (_, event), content in network.contents().items() if event in sent}
    assert came == {event: sent[event] for event in came}
    assert came.keys() == {event for _, event in network.expected if event in sent}
