"""`FloodRouter`: forward every event to every neighbour, once.

The graph: a node keeps links to `degree` nodes of its choice, and whatever links others make to it.
It chooses by keyed draws among the nodes that its neighbours name. When it has fewer than it wants
it asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.router import Router
from peersub.overlays.core.shell import Shell, ShellSettings
from peersub.overlays.flood.messages import Flooded, Neighbours, NeighboursWanted

__all__ = ["FloodRouter", "FloodSettings", "make_flood"]

_SEARCH = Timer("flood/search")


@dataclass(frozen=True, slots=True)
class FloodSettings:
    """How many links a node keeps, and how it looks for them."""

    degree: int = 4
    """Links that a node makes by itself."""
    search_ms: int = 2_000
    """How often it looks for more while it has too few; 0 for never."""
    known_nodes_max: int = 64
    """Nodes that it has heard of and may connect to."""
    shell: ShellSettings = field(default_factory=ShellSettings)


def make_flood(me: PeerId, settings: FloodSettings, seed: int) -> Shell:
    """A node's part in the flood."""
    return Shell(me, FloodRouter(settings), settings.shell, seed)


class FloodRouter(Router):
    """Every linked peer is a neighbour."""

    name = "flood"

    def __init__(self, settings: FloodSettings) -> None:
        self.settings = settings
        self._known: dict[str, None] = {}
        """Nodes that it has heard of, the last ones last."""
        self._is_searching = False

    # --- events --------------------------------------------------------------------------------

    def route(self, events: Sequence[Publication], hops: int, sender: PeerId | None) -> None:
        """To every neighbour but the one that they came from."""
        for event in events:
            flooded = Flooded(event, hops + 1)
            for neighbour in self.shell.linked.values():
                if neighbour != sender:
                    self.shell.send(neighbour, flooded)

    def on_message(self, peer: PeerId, message: Message, now_ms: int) -> bool:
        """An event, or a word about neighbours."""
        match message:
            case Flooded(publication, hops):
                self.shell.forward((publication,), hops, peer, now_ms)
            case NeighboursWanted():
                nodes = [node for node in sorted(self.shell.linked) if node != peer.node]
                named = tuple(nodes[: self.settings.known_nodes_max])
                self.shell.send(peer, Neighbours(named))
            case Neighbours(nodes):
                self.learn(nodes)
                self._search()
            case _:
                return False
        return True

    # --- the graph -----------------------------------------------------------------------------

    def link_up(self, peer: PeerId, greeting: bytes) -> None:
        """One more neighbour, which may know others."""
        self._known.pop(peer.node, None)
        self.shell.send(peer, NeighboursWanted())

    def link_down(self, peer: PeerId, reason: str) -> None:
        """Look for one more than are left: what is left of the graph grows together elsewhere."""
        self._search(at_least=1)

    def contacts_named(self, nodes: Sequence[str]) -> None:
        """They may be of use later, too."""
        self.learn(nodes)

    def dial_failed(self, node: str) -> None:
        """Another may be there."""
        self._search_later()

    def tick(self, timer: Timer, now_ms: int) -> None:
        """Look for neighbours again."""
        self._is_searching = False
        self._search()

    def learn(self, nodes: Iterable[str]) -> None:
        """There are these nodes."""
        for node in nodes:
            if node == self.shell.me.node or node in self.shell.linked:
                continue
            self._known.pop(node, None)
            self._known[node] = None
            while len(self._known) > self.settings.known_nodes_max:
                del self._known[next(iter(self._known))]

    def _search(self, at_least: int = 0) -> None:
        """Dial nodes heard of until there are enough links; look again later if not."""
        shell = self.shell
        if shell.is_leaving:
            return
        missing = self.settings.degree - len(shell.linked) - len(shell.dialled)
        missing = max(missing, at_least)
        if missing <= 0:
            return
        candidates = [node for node in self._known if node not in shell.dialled]
        me = shell.me.node
        candidates.sort(key=lambda node: draw(shell.seed, "flood/neighbour", me, node))
        for node in candidates[:missing]:
            shell.dial(node)
        self._search_later()

    def _search_later(self) -> None:
        """A timer only while something is missing and someone is known: it ends by itself."""
        is_wanting = len(self.shell.linked) < self.settings.degree
        if self._is_searching or self.shell.is_leaving or not is_wanting:
            return
        if self.settings.search_ms and (self._known or self.shell.dialled):
            self._is_searching = True
            self.shell.set_timer(_SEARCH, self.settings.search_ms)
