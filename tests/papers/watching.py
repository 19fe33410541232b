"""Watchers of networks: what goes from node to node, in the terms of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from papers.chord_network import ChordNetwork
from papers.ideal_ring import Edge
from peersub.overlays.chord.messages import Located
from peersub.overlays.core.causes import Received
from peersub.overlays.core.effects import Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.routing.messages import FilterUpdate, Notify, ResponsibilityChange
from peersub.trace.schema import Step


def sent_in(step: Step) -> list[tuple[PeerId, Message]]:
    """What the node sent in the step, and to whom, in order."""
    return [
        (effect.peer, message)
        for effect in step.effects
        if isinstance(effect, Send)
        for message in effect.messages
    ]


class Notifications:
    """The ways of subscribers' events."""

    def __init__(self, network: ChordNetwork) -> None:
        self.hops: list[Edge] = []
        self.parts: list[list[int]] = []
        """Per step that passed an event on, the lengths of the arcs, in order."""
        self._keys = network.key_of
        network.watchers.append(self._watch)

    def _watch(self, step: Step) -> None:
        if isinstance(step.cause, Received):
            for message in step.cause.messages:
                if isinstance(message, Notify) and not message.control:
                    receiver = self._keys[PeerId(step.node)]
                    assert message.scope[0] == receiver, "it stands at the start of its arc"
                    self.hops.append((self._keys[step.cause.peer], receiver))
        self.parts.append([m.scope[1] for _, m in sent_in(step) if isinstance(m, Notify)])


class Wave:
    """The filter updates that one change of a subscription causes."""

    def __init__(self, network: ChordNetwork) -> None:
        self.ring = network.ring
        self.told: list[Edge] = []
        """The edges u -> v over which v told u a change."""
        self.labels: list[tuple[int, int]] = []
        """Of the edges over which a change came and went on."""
        self.duration_ms = 0
        self._keys = network.key_of
        self._network = network
        self._begin_ms = network.simulation.now_ms

    def run(self, change: Callable[[], object]) -> None:
        """Make the change, and watch until all is at rest."""
        self._network.watchers.append(self._watch)
        change()
        self._network.rest()
        self._network.watchers.remove(self._watch)

    def _watch(self, step: Step) -> None:
        me = self._keys[PeerId(step.node)]
        came = self.ring.bits + 1
        if isinstance(step.cause, Received):
            if not any(isinstance(message, FilterUpdate) for message in step.cause.messages):
                return
            source = self._keys[step.cause.peer]
            came = self.ring.fingers[me][source]
            self.told.append((me, source))
            self.duration_ms = step.now_ms - self._begin_ms
        self.labels += [
            (came, self.ring.fingers[self._keys[peer]][me])
            for peer, message in sent_in(step)
            if isinstance(message, FilterUpdate)
        ]


class Controls:
    """The messages of control notifications, counted, and the answers to lookups."""

    def __init__(self, network: ChordNetwork) -> None:
        self.messages: Counter[str] = Counter()
        self.answers: list[tuple[str, int]] = []
        network.watchers.append(self._watch)

    def _watch(self, step: Step) -> None:
        if isinstance(step.cause, Received):
            for message in step.cause.messages:
                if isinstance(message, Notify) and message.control:
                    self.messages[message.control] += 1
                elif isinstance(message, Located):
                    self.answers.append((step.cause.peer.node, message.target))


class Responsibilities:
    """Responsibility-changes: they end where they arrive, and are answered at once."""

    def __init__(self, network: ChordNetwork) -> None:
        self.arrived = 0
        network.watchers.append(self._watch)

    def _watch(self, step: Step) -> None:
        if not isinstance(step.cause, Received):
            return
        changes = [m for m in step.cause.messages if isinstance(m, ResponsibilityChange)]
        if not changes or len(changes) < len(step.cause.messages):
            return  # What came with it may have caused anything.
        self.arrived += 1
        sent = sent_in(step)
        assert not any(isinstance(message, ResponsibilityChange) for _, message in sent)
        if changes[-1].scope:
            answers = [m for to, m in sent if to == step.cause.peer and isinstance(m, FilterUpdate)]
            assert [answer.responsibility for answer in answers] == [changes[-1].version]
