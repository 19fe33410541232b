"""Nodes come, go, fall and return: the others go on."""

from __future__ import annotations

from conformance.networks import (
    AT_LEAST_ONCE,
    BEST_EFFORT,
    Network,
    prices,
    subscribe_to_prices,
)
from peersub.overlays.core.publication import Delivery


def _promise(network: Network) -> Delivery:
    return AT_LEAST_ONCE if network.promises_at_least_once else BEST_EFFORT


def _mend(network: Network, publisher: str) -> None:
    """After a loss: at least once needs no wait, best effort only reaches a whole network."""
    if not network.promises_at_least_once:
        network.until_whole(publisher)


def test_who_joins_later_gets_what_is_published_after_it_is_ready(network: Network) -> None:
    nodes = network.grow(3)
    subscribe_to_prices(network, nodes)
    network.publish(nodes[0], prices(network, range(5), BEST_EFFORT))
    network.check(nodes[0])
    late = network.join()
    subscribe_to_prices(network, [late])
    network.publish(nodes[0], prices(network, range(10), BEST_EFFORT))
    network.publish(late, prices(network, range(10), BEST_EFFORT))
    network.check(nodes[0])
    network.check(late)


def test_nodes_that_take_leave_are_not_missed(network: Network) -> None:
    nodes = network.grow(5)
    subscribe_to_prices(network, nodes)
    staying = [nodes[0], nodes[2], nodes[4]]
    network.leave([nodes[1], nodes[3]])
    _mend(network, staying[1])
    for node in staying:
        network.publish(node, prices(network, range(10), _promise(network)))
    network.check(staying[1])


def test_a_crash_does_not_stop_the_others(network: Network) -> None:
    nodes = network.grow(5)
    subscribe_to_prices(network, nodes)
    # Not the first: it is the root of a tree, which nobody replaces.
    network.crash([nodes[-2]])
    staying = network.members()
    _mend(network, staying[1])
    for node in staying:
        network.publish(node, prices(network, range(10), _promise(network)))
    network.check(staying[1])


def test_a_node_comes_back_at_its_address(network: Network) -> None:
    nodes = network.grow(4)
    subscribe_to_prices(network, nodes)
    network.crash([nodes[2]])
    back = network.restart(nodes[2])
    assert back == nodes[2]
    network.grow(4)
    _mend(network, nodes[0])
    subscribe_to_prices(network, [back])
    for node in (back, nodes[0]):
        network.publish(node, prices(network, range(10), _promise(network)))
    network.check(back)
