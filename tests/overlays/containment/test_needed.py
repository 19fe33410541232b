"""Reorganisation by need: who receives much in vain looks for another place."""

from __future__ import annotations

from typing import Any

import pytest

from peersub.filters.filter import Filter
from peersub.overlays.containment.converged import converge
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.settings import settings_from, with_sample

SAMPLE = tuple({"x": number} for number in range(10))
WANTED = {"n0": "x >= 2", "n1": "x >= 7", "n2": "x >= 7", "n3": "x < 0"}


def peers_with(**settings: Any) -> dict[str, ContainmentPeer]:
    own = with_sample(settings_from(ContainmentSettings, settings), SAMPLE)
    peers = [ContainmentPeer(PeerId(node), own, 1) for node in WANTED]
    converge(peers, {node: {"s": Filter(text)} for node, text in WANTED.items()})
    return {peer.me.node: peer for peer in peers}


def share_of(peer: ContainmentPeer) -> float:
    (member,) = (each for each in peer.hosting.members.values() if not each.seat.is_keeper)
    return peer.share_of(member)


def test_the_share_is_what_is_received_in_vain() -> None:
    peers = peers_with(reorganise="needed")
    # All ten events come to the top level, and n0 wants eight of them. Of these n1 wants three.
    assert share_of(peers["n0"]) == pytest.approx(0.2)
    assert share_of(peers["n1"]) == pytest.approx(0.5)
    # n3 is at the top level and wants none of them; n2 stands in the class of n1, and stays there.
    assert share_of(peers["n3"]) == 1
    assert share_of(peers["n2"]) == 0.1


def test_without_need_everybody_has_the_same_share() -> None:
    peers = peers_with(reorganise="periodic", share=0.3)
    assert {share_of(peer) for peer in peers.values()} == {0.3}


def test_who_judges_by_events_keeps_a_sample() -> None:
    assert not settings_from(ContainmentSettings, {}).needs_sample
    assert settings_from(ContainmentSettings, {"rule": "selectivity"}).needs_sample
    assert settings_from(ContainmentSettings, {"reorganise": "needed"}).needs_sample
