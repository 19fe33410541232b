"""`TreePeer`: a broker in one tree.

A node attaches below the node it asks, or below one that this node names if it has `children_max`
already; by keyed draws, so the tree is as deep as a random one of that degree. Every node knows its
path to the root. Who loses its parent asks its ancestors, nearest first, again and again.

No cycles: only a node that knows a path to the root takes children, and none that is on its path.

The root is the tree's single point of failure, and no other takes its place: when it starts again
it is the root again, because its former children name it as the end of their paths. That an event
may be lost while the tree is cut is why this overlay promises best effort only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    PeerLost,
    Received,
    Restored,
    Start,
    Timer,
    TimerFired,
)
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Disconnect,
    Drop,
    Effect,
    SetTimer,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.records import IdentityStored
from peersub.overlays.routing.engine import RoutingEngine
from peersub.overlays.routing.settings import RoutingSettings
from peersub.overlays.tree.messages import Attach, Attached, Path, Refused
from peersub.overlays.tree.topology import TreeTopology

__all__ = ["TreePeer", "TreeSettings"]

_ATTACH = Timer("tree/attach")
_ROOT = b"root"


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The shape of the tree, and how it mends itself."""

    children_max: int = 4
    attach_ms: int = 1_000
    """How long an attempt to attach may take before the next."""
    candidates_max: int = 64
    """Nodes that may be asked for a place."""
    routing: RoutingSettings = field(default_factory=RoutingSettings)

    def __post_init__(self) -> None:
        if self.children_max < 1:
            raise ValueError("children_max is at least 1")


class TreePeer(Overlay):
    """A node's part in the tree."""

    name = "tree"

    def __init__(self, me: PeerId, settings: TreeSettings, seed: int) -> None:
        self.me = me
        self.settings = settings
        self._seed = seed
        self.topology = TreeTopology()
        routing = replace(settings.routing, promise_at_least_once=False)
        self.engine = RoutingEngine(me, self.topology, routing)
        self.path: tuple[str, ...] = ()
        """From this node up to the root; empty while there is none."""
        self.parent: PeerId | None = None
        self.children: dict[PeerId, None] = {}
        self._linked: dict[str, PeerId] = {}
        self._ancestors: tuple[str, ...] = ()
        self._contacts: tuple[str, ...] = ()
        self._candidates: list[str] = []
        self._asked: str | None = None
        self._left = False

    # --- the interface -------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int) -> list[Effect]:
        """Take the cause in, and say what is to be done."""
        match cause:
            case Received(peer, messages):
                for message in messages:
                    if not self.engine.on_message(peer, message, now_ms):
                        self._on_message(peer, message)
            case Restored(records):
                self.engine.handle_cause(cause, now_ms)
                if any(record == IdentityStored(_ROOT) for record in records):
                    self._become_root()
            case _ if not self.engine.handle_cause(cause, now_ms):
                self._on_change_of_links(cause)
            case _:
                pass
        return self.engine.flush(now_ms)

    def shared_settings(self) -> Mapping[str, str]:
        """What all brokers must agree on."""
        return {"strategy": self.settings.routing.maintenance.strategy.strategy}

    def links(self) -> Iterable[PeerId]:
        """Parent and children, by name."""
        return self.topology.edges()

    @property
    def takes_part(self) -> bool:
        """Whether it has a place in a tree that has a root."""
        return bool(self.path)

    def waiting_on(self, subscription: str) -> tuple[PeerId, ...]:
        """The neighbours whose answer a subscription needs to be ready."""
        return self.engine.maintenance.pending(subscription)

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values."""
        return {
            "children": sorted(str(child) for child in self.children),
            "parent": str(self.parent) if self.parent else None,
            "path": list(self.path),
            **self.engine.describe(),
        }

    def peer_offers(self, peer: PeerId, features: tuple[str, ...]) -> None:
        """What a node offers to which a link is set up from outside."""
        self.engine.peer_offers(peer, features)

    def state_bytes(self) -> int:
        """Of the filters on its edges."""
        return self.engine.maintenance.state_bytes()

    def share_work(self, first: Overlay) -> None:
        """Ask the strategy of another what covers what."""
        assert isinstance(first, TreePeer)
        self.engine.maintenance.strategy = first.engine.maintenance.strategy

    def install(self, parent: TreePeer | None, children: Iterable[PeerId]) -> None:
        """Be at this place in the tree, the parent already being at its own."""
        self.parent = None if parent is None else parent.me
        self.path = (self.me.node, *(() if parent is None else parent.path))
        self._ancestors = self.path[1:]
        self.children = dict.fromkeys(children)
        for peer in (*(() if parent is None else (parent.me,)), *self.children):
            self._linked[peer.node] = peer
            self.topology.add(peer)

    # --- causes --------------------------------------------------------------------------------

    def _on_change_of_links(self, cause: Cause) -> None:
        match cause:
            case Start():
                self._become_root()
            case Join(contacts):
                self._contacts = contacts
                self._look_for_a_parent()
            case PeerConnected(peer):
                self._on_connected(peer)
            case ConnectFailed(node):
                if node == self._asked:
                    self._ask_next()
            case PeerLost(peer):
                self._on_lost(peer)
            case TimerFired(timer) if timer == _ATTACH:
                if self.parent is None and not self.path:
                    self._ask_next()
            case Leave():
                self._left = True
                for peer in list(self._linked.values()):
                    self.engine.emit(Disconnect(peer, "leaves"))
                    self._forget(peer)
            case _:
                pass

    def _on_connected(self, peer: PeerId) -> None:
        self._linked[peer.node] = peer
        self.engine.peer_connected(peer)
        if peer.node == self._asked:
            self.engine.send(peer, Attach(self._ancestors))

    def _on_lost(self, peer: PeerId) -> None:
        if self._linked.get(peer.node) != peer:
            return
        was_parent = peer == self.parent
        self._forget(peer)
        if was_parent:
            self._set_path(())
            self._look_for_a_parent()
        elif peer.node == self._asked:
            self._ask_next()

    def _forget(self, peer: PeerId) -> None:
        """The link is gone, and with it the edge, if it was one."""
        self._linked.pop(peer.node, None)
        self.children.pop(peer, None)
        if peer == self.parent:
            self.parent = None
        self.engine.peer_gone(peer)
        if peer in self.topology.edges():
            self.topology.remove(peer)
            self.engine.edges_changed({peer: None}, {})

    def _on_message(self, peer: PeerId, message: Message) -> None:
        match message:
            case Attach(ancestors):
                self._on_attach(peer, ancestors)
            case Attached(path):
                self._on_attached(peer, path)
            case Refused(instead):
                self._on_refused(peer, instead)
            case Path(path) if peer == self.parent:
                self._set_path((self.me.node, *path) if path else ())
            case _:
                reason = f"a tree does not expect {type(message).__name__} from this peer"
                self.engine.emit(Drop(reason, None, peer))

    # --- giving a place ------------------------------------------------------------------------

    def _on_attach(self, peer: PeerId, ancestors: tuple[str, ...]) -> None:
        if not self.path and ancestors and ancestors[-1] == self.me.node:
            # It was below this node when this node was the root, before it lost its memory.
            self._become_root()
        if self._left or not self.path or peer.node in self.path or peer in self.children:
            self.engine.send(peer, Refused(()))
        elif len(self.children) >= self.settings.children_max:
            nodes = sorted(child.node for child in self.children)
            nodes.sort(key=lambda node: draw(self._seed, "tree/place", node, peer.node))
            self.engine.send(peer, Refused(tuple(nodes)))
        else:
            self.children[peer] = None
            self.engine.send(peer, Attached(self.path))
            self._add_edge(peer)

    def _become_root(self) -> None:
        self.parent = None
        self._asked = None
        self._candidates.clear()
        self.engine.home.persist(IdentityStored(_ROOT))
        self._set_path((self.me.node,))

    # --- finding a place -----------------------------------------------------------------------

    def _look_for_a_parent(self) -> None:
        if self._left:
            return
        self._candidates = list(dict.fromkeys((*self._ancestors, *self._contacts)))
        self._ask_next()

    def _ask_next(self) -> None:
        """Ask the next candidate; when there is none left, all again after a while."""
        self._let_go_of_asked()
        if self._left or self.path:
            return
        while self._candidates:
            node = self._candidates.pop(0)
            if node != self.me.node and all(child.node != node for child in self.children):
                self._ask(node)
                break
        else:
            self._candidates = list(dict.fromkeys((*self._ancestors, *self._contacts)))
        # Each attempt has its own time: a long way down is not begun again half way.
        self.engine.emit(SetTimer(_ATTACH, self.settings.attach_ms))

    def _ask(self, node: str) -> None:
        self._asked = node
        peer = self._linked.get(node)
        if peer is None:
            self.engine.emit(Connect(node))
        else:
            self.engine.send(peer, Attach(self._ancestors))

    def _let_go_of_asked(self) -> None:
        """Close the link to a node that gave no place."""
        peer = self._linked.get(self._asked) if self._asked else None
        self._asked = None
        if peer is not None and peer not in self.topology.edges():
            self.engine.emit(Disconnect(peer, "no place"))
            self._forget(peer)

    def _on_attached(self, peer: PeerId, path: tuple[str, ...]) -> None:
        if peer.node != self._asked or self.me.node in path or self.path:
            # An answer that came too late: the place is given back.
            self.engine.emit(Disconnect(peer, "found another place"))
            self._forget(peer)
            return
        self._asked = None
        self.engine.emit(CancelTimer(_ATTACH))
        self.parent = peer
        self._set_path((self.me.node, *path))
        self._add_edge(peer)

    def _on_refused(self, peer: PeerId, instead: tuple[str, ...]) -> None:
        if peer.node != self._asked:
            return
        room = self.settings.candidates_max - len(self._candidates)
        new = [node for node in instead if node not in self._candidates][: max(room, 0)]
        self._candidates[:0] = new
        self._ask_next()

    def _set_path(self, path: tuple[str, ...]) -> None:
        if path == self.path:
            return
        if self.me.node in path[1:]:
            # The parent has come to be below this node: this edge must go.
            assert self.parent is not None
            self.engine.emit(Disconnect(self.parent, "it is below this node"))
            self._forget(self.parent)
            path = ()
            self._look_for_a_parent()
        self.path = path
        if path:
            self._ancestors = path[1:]
        for child in self.children:
            self.engine.send(child, Path(path))

    def _add_edge(self, peer: PeerId) -> None:
        self.topology.add(peer)
        self.engine.edges_changed({}, {peer: None})
