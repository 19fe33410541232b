"""One network per overlay and driver serves all scenarios of a module: processes start slowly.

A scenario leaves a network that works, without subscriptions. One that fails takes its network
along.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.live import LiveDriver
from conformance.networks import FENCE, Network
from conformance.simulated import SimulatedNetwork
from peersub.overlays.registry import OVERLAYS

DRIVERS: dict[str, Callable[[str, int], Network]] = {
    "simulated": SimulatedNetwork,
    "live": LiveDriver,
}
RING = "ring"
"""The overlay of docs/own-overlay.md, which is installed for these tests."""
RING_LINES_MAX = 150
ROOT = Path(__file__).parents[2]
FAILED = pytest.StashKey[bool]()


def ring_source() -> str:
    """The code of the page."""
    page = (ROOT / "docs" / "own-overlay.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) < RING_LINES_MAX
    return code


@pytest.fixture(scope="module")
def installed_ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What an installation of the ring leaves, for this process and those that it starts."""
    place = tmp_path_factory.mktemp("installed")
    (place / "toy_ring.py").write_text(ring_source(), encoding="utf-8")
    about = place / "toy_ring-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-ring\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[peersub.overlays]\nring = toy_ring:RING\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(place)
        patch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
        yield


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
    params=[(overlay, driver) for overlay in (*OVERLAYS, RING) for driver in DRIVERS],
    ids=lambda param: "-".join(param),
)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    overlay, driver = request.param
    if overlay == RING:
        request.getfixturevalue("installed_ring")
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
