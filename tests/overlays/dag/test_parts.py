"""Parts of layers as one node sees them: stewards, counts, and when a layer is ready."""

from __future__ import annotations

from typing import Any

from peersub.filters import Filter
from peersub.overlays.core.causes import (
    PeerConnected,
    PeerLost,
    Persisted,
    Publish,
    Received,
    Start,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.effects import Persist, Send, SetTimer, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.dag.layer import Edge
from peersub.overlays.dag.messages import (
    Announce,
    Census,
    Echo,
    Entry,
    Label,
    LabelAsked,
    Offer,
    Relay,
)
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.settings import DagSettings
from peersub.overlays.dag.waves import key_of
from peersub.overlays.semantic.hosting import IDLE
from peersub.overlays.semantic.messages import LinkFree, LinkNeeded, LinkUnneeded

ME, OTHER, THIRD = PeerId("b"), PeerId("c"), PeerId("d")


class Node:
    """A node with an edge to another one on the layer of everybody; its clock is the test's."""

    def __init__(self, **settings: Any) -> None:
        self.peer = DagPeer(ME, DagSettings(**settings), 1)
        self.now_ms = 0
        self.timers: dict[Any, int] = {}
        self.effects: list[Any] = []
        self.does(Start())
        for other in (OTHER, THIRD):
            self.does(PeerConnected(other))
        self.peer.layers[""].edges[OTHER] = Edge(0, 1 << 40, True, 0)

    def does(self, cause: Any) -> list[Any]:
        """What the node sends on a cause, and what else it does."""
        effects = self.peer.handle(cause, self.now_ms)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
        stored = [effect.token for effect in effects if isinstance(effect, Persist)]
        for token in stored:
            self.does(Persisted(token))
        return [
            (effect.peer, message)
            for effect in effects
            if isinstance(effect, Send)
            for message in effect.messages
        ]

    def hears(self, sender: PeerId, *messages: Message) -> list[Any]:
        return self.does(Received(sender, messages))

    def waits(self, duration_ms: int) -> list[Any]:
        """What it sends by its timers."""
        end_ms, said = self.now_ms + duration_ms, []
        while self.timers and min(self.timers.values()) <= end_ms:
            timer = min(self.timers, key=lambda each: self.timers[each])
            self.now_ms = self.timers.pop(timer)
            said += self.does(TimerFired(timer))
        self.now_ms = end_ms
        return said

    def founds(self) -> Label:
        """It founds the catch-all layer, and all nodes know."""
        (wave,) = waves(self.does(Subscribe("s1", Filter("TRUE"))))
        self.hears(OTHER, echo(wave))
        label = self.peer.layers["*"].label
        assert label is not None
        return label

    @property
    def is_ready(self) -> bool:
        return any(isinstance(effect, SubscriptionReady) for effect in self.effects)


def waves(said: list[Any]) -> list[Announce]:
    return [message for _, message in said if isinstance(message, Announce)]


def echo(wave: Announce | Census) -> Echo:
    return Echo(*key_of(wave), True)


def test_a_layer_that_is_just_withdrawn_makes_nobody_ready():
    """All nodes take out the line about it: events from there would not come."""
    node = Node(linger_ms=10)
    node.founds()
    assert node.is_ready
    node.does(Unsubscribe("s1"))
    (withdrawal,) = waves(node.waits(5_000))
    assert withdrawal.label is None
    node.effects.clear()
    node.does(Subscribe("s2", Filter("TRUE")))
    assert not node.is_ready
    (again,) = waves(node.hears(OTHER, echo(withdrawal)))
    assert again.label is not None and not node.is_ready
    node.hears(OTHER, echo(again))
    assert node.is_ready


def test_a_steward_whose_label_has_become_the_larger_one_keeps_no_wave_back_for_ever():
    node = Node()
    label = node.founds()
    layer = node.peer.layers["*"]
    wave = Announce("*", THIRD, 1, Label(label.stamp, THIRD), None)
    said = node.hears(OTHER, wave)
    assert [to for to, message in said if isinstance(message, Offer)] == [THIRD]
    assert (OTHER, echo(wave)) not in said, "not before they have linked up"
    layer.offers.clear()  # it was to wait, and has counted its part meanwhile
    layer.label = Label(label.stamp + 1, ME)
    said = node.hears(THIRD, Offer("*", 1, 0, 5, True, True, Label(label.stamp, THIRD), False))
    assert THIRD in layer.edges and layer.is_named_after(ME)
    assert (OTHER, echo(wave)) in said
    # It links up with the next one as well.
    far = PeerId("e")
    node.does(PeerConnected(far))
    said = node.hears(OTHER, Announce("*", far, 1, Label(label.stamp + 1, far), None))
    assert far in layer.wishes


def test_after_a_second_loss_the_steward_of_before_the_first_is_still_asked():
    node = Node(probes=0)
    everybody = node.peer.layers[""]
    steward, far = PeerId("a"), PeerId("e")
    for each in (steward, far):
        node.does(PeerConnected(each))
    everybody.edges[far] = Edge(0, 1 << 41, True, 0)
    everybody.edges[THIRD] = Edge(0, 1 << 42, True, 0)
    everybody.label = Label(1, steward)
    node.does(PeerLost(THIRD))
    (first,) = {m for _, m in node.waits(4_000) if isinstance(m, Census)}
    node.does(PeerLost(far))  # before its echo is here
    (second,) = {m for _, m in node.waits(4_000) if isinstance(m, Census)}
    assert second.label > first.label
    said = node.hears(OTHER, echo(second))
    assert steward in [to for to, message in said if isinstance(message, LabelAsked)]


def test_nodes_that_are_gone_leave_room_for_others_among_those_who_are_asked():
    node = Node()
    for number in range(40):
        node.peer.everybody.lost(PeerId(f"gone{number}"))
    node.peer.learn(node.peer.layers[""], [PeerId(f"m{number}") for number in range(20)])
    asked = node.peer.everybody.acquaintances(16)
    assert len(asked) == 16
    assert sum(each.startswith("gone") for each in asked) == 8


def test_what_left_over_a_link_that_was_not_closed_after_all_waits_no_longer():
    """Else it would be sent again when that member is lost, however long after."""
    node = Node()
    node.peer.directory.note(Entry("*", Label(1, THIRD)))
    assert node.hears(THIRD, LinkUnneeded()) == [(THIRD, LinkFree())]
    events = [Publication(f"e{number}", {"a": 1}) for number in range(2)]
    assert node.does(Publish((events[0],))) == []
    assert node.hears(THIRD, LinkNeeded()) == [(THIRD, Relay("*", events[0]))]
    assert node.does(Publish((events[1],))) == [(THIRD, Relay("*", events[1]))]
    node.peer.directory.note(Entry("*", Label(1, OTHER)))
    assert not [m for _, m in node.does(PeerLost(THIRD)) if isinstance(m, Relay)]
    assert IDLE in node.timers
