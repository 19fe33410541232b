"""The facade for programs without asyncio."""

import threading

import pytest

from peersub.client import ConnectError, NotReadyError, PublishFailedError
from peersub.client.sync import connect, join
from peersub.filters import FilterError


def test_publish_and_subscribe_without_asyncio():
    with join() as node, connect(node.node) as light:
        with light.subscribe("n > 1") as subscription:
            subscription.ready(timeout=20)
            assert subscription.next(timeout=0) is None
            assert node.publish({"n": 2}, id="two") == "two"
            assert node.publish_many({"n": n} for n in range(4)).published == 4
            assert [subscription.next().attributes["n"] for _ in range(3)] == [2, 2, 3]
            node.publish({"n": 9})
            delivery = subscription.next_delivery()
            assert delivery.event.attributes == {"n": 9} and delivery.position is None
            assert subscription.dropped == subscription.gaps == 0
            assert light.status()["node"] == node.node
        assert subscription.next() is None and subscription.status()["phase"] == "ended"


def test_iterating_ends_when_another_thread_closes():
    with join() as node, node.subscribe("TRUE") as subscription:
        subscription.ready(timeout=20)
        for n in range(3):
            node.publish({"n": n})
        found = []
        for event in subscription:
            found.append(event.attributes["n"])
            if len(found) == 3:
                closing = threading.Thread(target=subscription.close)
                closing.start()
        closing.join()
        assert found == [0, 1, 2]


def test_errors_come_through():
    with join(overlay="flood") as node:
        with pytest.raises(FilterError):
            node.subscribe("n >")
        with pytest.raises(PublishFailedError):
            node.publish({}, delivery="at_least_once")
        with node.subscribe("TRUE") as subscription:
            subscription.ready()
    node.close()
    with pytest.raises(RuntimeError, match="closed"):
        node.publish({})
    assert issubclass(NotReadyError, TimeoutError)


def test_nobody_there_leaves_no_thread():
    before = set(threading.enumerate())
    with join() as node:
        address = node.node
    with pytest.raises(ConnectError):
        connect(address)
    assert set(threading.enumerate()) <= before
