"""Nodes that cannot work together refuse each other, and say what differs."""

from __future__ import annotations

from conformance.networks import BEST_EFFORT, Network, prices, subscribe_to_prices
from peersub.overlays.core.event_keys import event_id_of
from peersub.overlays.core.publication import Publication
from peersub.overlays.registry import OVERLAYS

OTHER_SETTING = {
    "chord": ({"key_bits": 32}, "key_bits"),
    "tree": ({"strategy": "simple"}, "strategy"),
}
"""Per overlay, a shared setting of its own with another value."""


def test_a_node_of_another_network_is_refused_by_name(network: Network) -> None:
    nodes = network.grow(2)
    reason = network.refusal(network="elsewhere")
    assert "network differs" in reason
    assert "'elsewhere' here" in reason
    assert "'test' at" in reason
    _goes_on(network, nodes)


def test_a_node_of_another_overlay_is_refused_by_name(network: Network) -> None:
    nodes = network.grow(2)
    other = next(name for name in OVERLAYS if name != network.overlay)
    reason = network.refusal(overlay=other)
    assert "overlay differs" in reason
    assert repr(other) in reason
    _goes_on(network, nodes)


def test_a_node_with_other_shared_settings_is_refused_with_the_setting(network: Network) -> None:
    nodes = network.grow(2)
    reason = network.refusal(links={"acknowledge": False})
    assert "setting links.acknowledge differs: 'false' here, 'true' at" in reason
    if network.overlay in OTHER_SETTING:
        chosen, name = OTHER_SETTING[network.overlay]
        reason = network.refusal(overlay_settings=chosen)
        assert f"setting {name} differs: {str(chosen[name])!r} here" in reason
    _goes_on(network, nodes)


def test_nodes_of_the_previous_minor_version_take_part(network: Network) -> None:
    nodes = network.grow(2)
    old = [network.join(protocol=(1, 0)), network.join(protocol=(1, 0))]
    new = network.join(columns=True)
    nodes = network.grow(5)
    subscribe_to_prices(network, nodes)
    for node in (nodes[0], *old, new):
        network.publish(node, prices(network, range(10), BEST_EFFORT))
    batch = network.name("b")
    events = [
        Publication(event_id_of(batch, number), event.attributes)
        for number, event in enumerate(prices(network, range(20), BEST_EFFORT))
    ]
    network.publish(new, events, batch=batch)
    network.check(new)


def _goes_on(network: Network, nodes: list[str]) -> None:
    subscribe_to_prices(network, nodes)
    for node in nodes:
        network.publish(node, prices(network, range(5), BEST_EFFORT))
        network.check(node)
