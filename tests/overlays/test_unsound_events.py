"""Events that cannot be read end at the first node that looks: nobody fails over them."""

import numpy as np
import pytest

from peersub.filters import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import PeerConnected, Received, Start, Subscribe
from peersub.overlays.core.effects import Drop
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.flood.messages import Flooded
from peersub.overlays.registry import make_overlay
from peersub.overlays.routing.messages import Notify, NotifyBatch

OTHER = PeerId("n2")


def _unreadable(_packed: bytes) -> dict[str, object]:
    raise ValueError("not attributes")


@pytest.mark.parametrize("name", ["flood", "tree", "chord"])
def test_unreadable_attributes_are_dropped(name):
    overlay = make_overlay(name, PeerId("n1"), 1)
    overlay.handle(Start(), 0)
    overlay.handle(Subscribe("s", Filter("a = 1")), 0)
    overlay.handle(PeerConnected(OTHER, (7).to_bytes(8, "big")), 0)
    publication = Publication("e", packed=b"?", unpack=_unreadable)
    scope = (1,) if name == "tree" else (0, 1)
    message = Flooded(publication, 1) if name == "flood" else Notify(publication, scope, 1)
    effects = overlay.handle(Received(OTHER, (message,)), 1)
    assert Drop("its attributes cannot be read", "e", OTHER) in effects


@pytest.mark.parametrize("delegation", [0, 3])
@pytest.mark.parametrize(("name", "scope"), [("tree", (1,)), ("chord", (0, 1))])
def test_batches_that_cannot_be_read_are_dropped(name, scope, delegation):
    overlay = make_overlay(name, PeerId("n1"), 1)
    overlay.handle(Start(), 0)
    overlay.handle(Subscribe("s", Filter("a = 1")), 0)
    overlay.handle(PeerConnected(OTHER, (7).to_bytes(8, "big")), 0)
    for numbers in ([0], [1, 0], [9]):
        batch = Batch("b", np.array(numbers, np.uint32), 5, packed=b"?")
        message = NotifyBatch(batch, scope, 1, delegation)
        effects = overlay.handle(Received(OTHER, (message,)), 1)
        assert Drop("its events cannot be read", "b", OTHER) in effects
