"""`Acquaintances`: nodes that this one knows of, for when those that it is linked with are gone.

Neighbours name others to each other. Who waits for a place asks them. Who lost a neighbour tries
them one by one: when many crash at once, those left may have no link to each other, and each
part would take all places for its own. As soon as one node of a part meets one of another, their
claims are compared (`directory`), and the parts become one network. A split may last: it goes on
trying as long as it knows of nodes that it is not linked with, after `PROBES` tries half as often,
and so on.
"""

from __future__ import annotations

from collections.abc import Iterable

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.effects import SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.outbox import Outbox
from peersub.overlays.reach.messages import NodesTold
from peersub.overlays.reach.post import Post

__all__ = ["ACQUAINTANCES_MAX", "NODES_TOLD_MAX", "PROBE", "PROBES", "Acquaintances"]

PROBE = Timer("reach/probe")
ACQUAINTANCES_MAX = 32
NODES_TOLD_MAX = 12
"""Nodes that are named to each new neighbour."""
PROBES = 64
"""Attempts to reach nodes that are known, after each loss of a neighbour, before they get rarer."""
DOUBLINGS_MAX = 6
"""How often the pause between attempts doubles."""


class Acquaintances:
    """Nodes that are known, those that were named last at the end."""

    def __init__(self, me: PeerId, post: Post, out: Outbox, probe_ms: int) -> None:
        self.nodes: dict[str, None] = {}
        self.is_leaving = False
        """Whether the node looks for nobody any more."""
        self._me = me
        self._post = post
        self._out = out
        self._probe_ms = probe_ms
        self._is_alone = False
        self._is_probing = False
        self._probes = 0

    def learn(self, nodes: Iterable[str]) -> None:
        """Somebody has named nodes."""
        for node in nodes:
            if node != self._me.node:
                self.nodes.pop(node, None)
                self.nodes[node] = None
        while len(self.nodes) > ACQUAINTANCES_MAX:
            del self.nodes[next(iter(self.nodes))]

    def named_to(self, asker: str) -> NodesTold:
        """Nodes that another one may need."""
        nodes = [node for node in self._post.linked if node != asker]
        return NodesTold(tuple(nodes[-NODES_TOLD_MAX:]))

    def named_to_newcomer(self, newcomer: str) -> NodesTold:
        """Also nodes that are out of reach: those that are in reach may leave before it is in."""
        away = [node for node in self.nodes if node not in self._post.linked and node != newcomer]
        nodes = (*away, *self.named_to(newcomer).nodes)
        return NodesTold(nodes[-NODES_TOLD_MAX:])

    def lost(self, node: str) -> None:
        """A node with a place is gone: whom else is there?"""
        self.learn((node,))
        self._look()

    def look_if_alone(self, is_alone: bool) -> None:
        """Who has all of a network, and knows of others, may have come into one part of it."""
        was_alone, self._is_alone = self._is_alone, is_alone
        if is_alone and not was_alone and self.nodes:
            self._look()

    def _look(self) -> None:
        """Try those that are known, one after the other, soon at first."""
        if self._probes >= PROBES:
            self._is_probing = False  # The next attempt may be far off by now.
        self._probes = 0
        self._probe_later()

    def probe(self) -> None:
        """Try one that there is no link to."""
        self._is_probing = False
        if self.is_leaving:
            return
        away = [node for node in self.nodes if node not in self._post.linked]
        if away:
            self._probes += 1
            self._post.connect(away[-self._probes % len(away)])
            self._probe_later()

    def _probe_later(self) -> None:
        if not self._is_probing:
            self._is_probing = True
            doublings = min(self._probes // PROBES, DOUBLINGS_MAX)
            self._out.emit(SetTimer(PROBE, self._probe_ms << doublings))
