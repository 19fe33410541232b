"""Two peers at one key (row 15): whoever has to move knows the other where it stands."""

from peersub.overlays.chord.messages import KeyTaken, Present
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.chord.settings import ChordSettings
from peersub.overlays.core.causes import Join, PeerConnected, Received
from peersub.overlays.core.identity import PeerId

HOLDER = PeerId("n0")
OTHER = PeerId("n6")


def test_who_moves_counts_the_holder_of_its_former_key_as_a_member():
    peer = ChordPeer(PeerId("n2"), ChordSettings(key_bits=3, key=4), seed=1)
    peer.handle(Join(("n6",)), 0)
    for other, key in ((OTHER, 6), (HOLDER, 4)):
        peer.handle(PeerConnected(other, key.to_bytes(8, "big")), 1)
        peer.handle(Received(other, (Present(key, True),)), 2)
    assert 4 not in peer.ring.members
    peer.handle(Received(OTHER, (KeyTaken(4),)), 3)
    assert peer.key != 4
    assert peer.ring.members[4].peer == HOLDER


def test_one_that_took_leave_is_not_counted_again():
    peer = ChordPeer(PeerId("n2"), ChordSettings(key_bits=3, key=4), seed=1)
    peer.handle(Join(("n6",)), 0)
    for other, key in ((OTHER, 6), (HOLDER, 4)):
        peer.handle(PeerConnected(other, key.to_bytes(8, "big")), 1)
        peer.handle(Received(other, (Present(key, True),)), 2)
    peer.ring.forget_member(HOLDER)
    peer.handle(Received(OTHER, (KeyTaken(4),)), 3)
    assert peer.key != 4
    assert 4 not in peer.ring.members
