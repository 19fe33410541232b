"""One network per overlay and driver serves all scenarios of a module: processes start slowly.

A scenario leaves a network that works, without subscriptions. One that fails takes its network
along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from conformance.live import LiveDriver
from conformance.networks import FENCE, Network
from conformance.simulated import SimulatedNetwork
from peersub.overlays.registry import OVERLAYS

DRIVERS: dict[str, Callable[[str, int], Network]] = {
    "simulated": SimulatedNetwork,
    "live": LiveDriver,
}
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


class Shared:
    """The network of a module, made when it is needed."""

    def __init__(self, make: Callable[[], Network]) -> None:
        self._make = make
        self._network: Network | None = None

    def get(self) -> Network:
        if self._network is None:
            self._network = self._make()
        return self._network

    def end(self) -> None:
        if self._network is not None:
            network, self._network = self._network, None
            network.close()


@pytest.fixture(
    scope="module",
    params=[(overlay, driver) for overlay in OVERLAYS for driver in DRIVERS],
    ids=lambda param: "-".join(param),
)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    overlay, driver = request.param
    # Loading what matches columns takes longer than all else that a process does.
    nodes_with_columns = getattr(request.module, "NODES_WITH_COLUMNS", 0)
    shared = Shared(lambda: DRIVERS[driver](overlay, nodes_with_columns))
    yield shared
    shared.end()


@pytest.fixture
def network(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Network]:
    network = shared.get()
    yield network
    if request.node.stash.get(FAILED, False):
        shared.end()
        return
    for name in [name for name in network.wishes if not name.startswith(FENCE)]:
        network.unsubscribe(name)
    network.expected = Counter(network.deliveries())
