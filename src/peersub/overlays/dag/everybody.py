"""The layer of everybody (l0, §4.2.2): coming into the network, acquaintances, the directory.

A node that joins asks its contacts, one after the other, until a sink invites it. New neighbours
exchange their directories; what is new to one it passes on to its other neighbours. Neighbours that
were lost are tried now and then: whoever is in another part gets an edge (`repair`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.directory import ENTRIES_TOLD_MAX
from peersub.overlays.dag.messages import (
    DirectoryEntries,
    DirectoryState,
    Entry,
    Label,
    RequestVal,
)
from peersub.overlays.dag.topics import EVERYBODY
from peersub.overlays.semantic.hosting import ANY_LIFE

if TYPE_CHECKING:
    from peersub.overlays.dag.peer import DagPeer

__all__ = ["PROBE", "Everybody"]

PROBE = Timer("dag/probe")
PROBES_AT_ONCE: Final = 8
"""Nodes that were lost and are tried together."""
REQUESTS_ALONE_MAX: Final = 20
"""How often contacts are asked in vain before a node begins a part of its own."""


class Everybody:
    """A peer's place among all nodes."""

    def __init__(self, peer: DagPeer) -> None:
        self._peer = peer
        self.knows_layers = False
        """Whether the directory of others has come, or there are none."""
        self._contacts: list[str] = []
        self._requests = 0
        self._former: dict[str, int] = {}
        """Nodes that were lost, and when; those to be tried next first."""
        self._is_probing = False

    @property
    def is_joining(self) -> bool:
        """Whether the node was told to join, and has no place yet."""
        return bool(self._contacts) and not (
            self._peer.layers[EVERYBODY].is_member and self.knows_layers
        )

    def start(self) -> None:
        """Begin a network."""
        peer = self._peer
        layer = peer.layers[EVERYBODY]
        layer.label = Label(1, peer.me)
        layer.is_announced = True
        peer.membership.became_member(layer)
        self._know_layers()

    def join(self, contacts: tuple[str, ...]) -> None:
        """Come into the network of these nodes."""
        self._contacts = [node for node in contacts if node != self._peer.me.node]
        if self._contacts:
            self._request()
        else:
            self.start()

    def _request(self) -> None:
        peer = self._peer
        known = (each.node for each in peer.layers[EVERYBODY].known)
        nodes = list(dict.fromkeys((*self._contacts, *known)))
        node = nodes[self._requests % len(nodes)]
        self._requests += 1
        peer.send(PeerId(node, ANY_LIFE), RequestVal(EVERYBODY, peer.me, ()))
        peer.tend_later(peer.layers[EVERYBODY])

    def tend(self) -> None:
        """Ask again, while there is no place."""
        layer = self._peer.layers[EVERYBODY]
        if layer.is_member or not self._contacts or layer.wishes or layer.offers:
            return
        if self._requests >= REQUESTS_ALONE_MAX:
            # Whoever it knows waits as well, or is gone; the others are asked again later.
            self.start()
            for node in self._contacts:
                self._former[node] = self._peer.now_ms
            self._probe_later()
        else:
            self._request()

    # --- the directory -------------------------------------------------------------------------

    def edge_up(self, other: PeerId) -> None:
        """A new neighbour: compare what we know."""
        self._former.pop(other.node, None)
        self._peer.send(other, DirectoryState(self._peer.directory.digest))

    def on_state(self, sender: PeerId, message: DirectoryState) -> None:
        """A neighbour's directory is the same, or it gets ours."""
        peer = self._peer
        if message.digest == peer.directory.digest:
            self._know_layers()
            # What it heard of ours may have been another one.
            peer.send(sender, DirectoryEntries((), True))
            return
        entries = list(peer.directory.entries())
        for start in range(0, max(len(entries), 1), ENTRIES_TOLD_MAX):
            part = tuple(entries[start : start + ENTRIES_TOLD_MAX])
            is_last = start + ENTRIES_TOLD_MAX >= len(entries)
            peer.send(sender, DirectoryEntries(part, is_last))

    def on_entries(self, sender: PeerId, message: DirectoryEntries) -> None:
        """Note what is new, and pass it on."""
        peer = self._peer
        new: list[Entry] = [each for each in message.entries if peer.membership.note(each)]
        if new:
            for other in peer.layers[EVERYBODY].edges:
                if other != sender:
                    peer.send(other, DirectoryEntries(tuple(new), False))
            for entry in new:
                peer.membership.compare(entry)
        if message.is_last:
            self._know_layers()

    def _know_layers(self) -> None:
        """What others know has come: if there is an edge, so that they hear of what comes here."""
        if not self.knows_layers and self._peer.layers[EVERYBODY].is_member:
            self.knows_layers = True
            self._peer.membership.begin()

    # --- acquaintances -------------------------------------------------------------------------

    def acquaintances(self, count: int) -> list[str]:
        """Some of the nodes that this one has heard of: those that were neighbours first.

        They are half of them at most if there are others: after many crashes all of them are gone.
        """
        peer = self._peer
        layer = peer.layers[EVERYBODY]
        former = [node for node in self._former if node != peer.me.node]
        heard = {each.node: None for each in (*layer.known, *peer.links())}
        heard |= dict.fromkeys(self._contacts)
        linked = {each.node: None for each in layer.edges}
        others = [node for node in heard if node not in linked and node not in self._former]
        kept = max(count // 2, count - len(others))
        return [*former[:kept], *peer.repair.draw_order(others, "dag/acquaintance")][:count]

    def lost(self, other: PeerId) -> None:
        """A node cannot be reached: it may come back. Who knows it from probes keeps its time."""
        self._former.setdefault(other.node, self._peer.now_ms)
        while len(self._former) > self._peer.settings.known_nodes_max:
            del self._former[next(iter(self._former))]
        self._probe_later()
        layer = self._peer.layers[EVERYBODY]
        if not layer.is_member:
            self._peer.tend_later(layer)

    def same_part(self, other: PeerId) -> None:
        """A former neighbour can be reached over others: it need not be tried."""
        layer = self._peer.layers[EVERYBODY]
        if layer.former_label is None:
            self._peer.learn(layer, (other,))
            if self._former.pop(other.node, None) is not None:
                # Lines about it were taken out here while it could not be reached.
                self._peer.send(other, DirectoryState(self._peer.directory.digest))
                self._peer.membership.compare_with(other)

    def probe(self) -> None:
        """Ask those who were asked longest ago which part they are in."""
        self._is_probing = False
        peer = self._peer
        oldest_ms = peer.now_ms - peer.settings.former_horizon_ms
        for node in [node for node, lost_ms in self._former.items() if lost_ms < oldest_ms]:
            del self._former[node]
        layer = peer.layers[EVERYBODY]
        if self._former and layer.is_member and layer.former_label is None:
            for node in list(self._former)[:PROBES_AT_ONCE]:
                self._former[node] = self._former.pop(node)
                peer.repair.ask(layer, node)
        self._probe_later()

    def _probe_later(self) -> None:
        probe_ms = self._peer.settings.probe_ms
        if self._former and not self._is_probing and not self._peer.is_leaving and probe_ms:
            self._is_probing = True
            self._peer.set_timer(PROBE, probe_ms)
