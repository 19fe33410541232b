"""Lists of siblings: a parent with many children lets them pass events on among themselves.

The paper's sibling mode, for parents with more than `sibling_threshold` children. The children form
a list with two ends. The parent gives an event to one of them, drawn; that one passes it both ways,
and each of the others on in the same direction, whether it wants the event or not (correction 1).
A child that sends an event up begins to pass it along its list at the same time, and says so: then
the parent gives it to no child. So a member forwards an event at most four times, and over EQUAL
edges, whatever the number of its children.

The holes in the paper's rules, and how they are closed:

* an event that comes from below goes into the equivalence tree as well: EQUAL edges know nothing of
  lists (`routing`);
* a child that has seen an event, because the event climbed over it, passes it along the list all
  the same when it comes back: what it has passed along is remembered by itself;
* a list has ends. The top level is no list, but a tree;
* a child that has not begun a list does not say so, and the parent gives the event to one.

The parent keeps the order, tells each child who stands next to it (`SiblingsAre`), and waits until
all who were told have said that they know (`SiblingsKnown`). Until then it gives events to each
child itself. Children come in at the end of the list, and who goes away still passes on what is
under way, so no change of the list makes an event miss somebody.
"""

from __future__ import annotations

from dataclasses import dataclass

from peersub.overlays.containment.messages import Direction, SiblingsAre, SiblingsKnown
from peersub.overlays.containment.seat import Seat, is_meant
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.identity import PeerId

__all__ = ["Siblings"]


@dataclass(slots=True)
class _Place:
    """A place in the list of a parent."""

    version: int
    left: PeerId | None
    right: PeerId | None
    is_listed: bool


class Siblings:
    """What one member does as a parent of a list, and in the list of its parent."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._order: list[PeerId] = []
        self._told: dict[PeerId, SiblingsAre] = {}
        self._waiting: dict[PeerId, None] = {}
        self._versions = 0
        self._places: dict[PeerId, _Place] = {}

    def neighbours(self) -> list[PeerId]:
        """Those next to this one in a list."""
        return [
            peer
            for place in self._places.values()
            for peer in (place.left, place.right)
            if peer is not None
        ]

    # --- as a parent ---------------------------------------------------------------------------

    @property
    def has_list(self) -> bool:
        """Whether the children pass events on, and all know how."""
        return bool(self._order) and not self._waiting

    def is_in_order(self) -> bool:
        """Whether nobody is to be told, or has yet to say that it knows."""
        return not self._waiting

    def arrange(self) -> None:
        """Children have come or gone: tell those whose neighbours have changed."""
        seat = self._seat
        threshold = seat.settings.sibling_threshold
        if not threshold:
            return
        children = dict.fromkeys(seat.below(EdgeKind.CHILD))
        order = [peer for peer in self._order if peer in children]
        order = [*order, *(peer for peer in children if peer not in order)]
        self._order = order if len(children) > threshold else []
        for gone in [peer for peer in self._told if peer not in children]:
            del self._told[gone]
            self._waiting.pop(gone, None)
        for place, peer in enumerate(self._order):
            left = self._order[place - 1] if place else None
            right = self._order[place + 1] if place + 1 < len(self._order) else None
            self._tell(peer, left, right, is_listed=True)
        if not self._order:
            for peer, told in list(self._told.items()):
                if told.is_listed:
                    self._tell(peer, None, None, is_listed=False)

    def _tell(
        self, peer: PeerId, left: PeerId | None, right: PeerId | None, *, is_listed: bool
    ) -> None:
        known = self._told.get(peer)
        if known is not None and (known.left, known.right, known.is_listed) == (
            left,
            right,
            is_listed,
        ):
            return
        self._versions += 1
        told = SiblingsAre(peer.slot, self._seat.me.slot, self._versions, left, right, is_listed)
        self._told[peer] = told
        self._waiting[peer] = None
        self._seat.send(peer, told)

    def on_known(self, sender: PeerId, message: SiblingsKnown) -> None:
        """A child knows who stands next to it, or cannot reach one of them."""
        told = self._told.get(sender)
        if told is None or told.version != message.version:
            return
        if message.works:
            self._waiting.pop(sender, None)
        else:
            self._waiting[sender] = None
            self._seat.host.set_timer("siblings", self._seat.me, self._seat.settings.join_ms)

    def on_siblings_timer(self) -> None:
        """Some could not reach each other: let them try again."""
        for peer in list(self._waiting):
            told = self._told.pop(peer)
            self._tell(peer, told.left, told.right, is_listed=told.is_listed)

    def first(self, event_id: str) -> PeerId:
        """The child that gets an event: drawn, and the same for all who ask."""
        me = self._seat.me
        about = (event_id, me.node, me.slot)
        place = draw_below(len(self._order), self._seat.host.seed, "containment/list", *about)
        return self._order[place]

    def has_begun(self, child: PeerId, listed: int) -> bool:
        """Whether a child that says so has begun to pass an event along the present list."""
        told = self._told.get(child)
        return listed > 0 and self.has_list and told is not None and told.version == listed

    # --- as one of the siblings ----------------------------------------------------------------

    def on_siblings(self, sender: PeerId, message: SiblingsAre) -> None:
        """The parent says who stands next to this one."""
        if all(peer != sender for peer, _ in self._seat.ups()):
            return
        self._places[sender] = _Place(
            message.version, message.left, message.right, message.is_listed
        )
        for sibling in (message.left, message.right):
            if sibling is not None:
                # The first event would come in the same moment as the link, and be lost with it.
                self._seat.host.reach(sibling)
        self._seat.send(sender, SiblingsKnown(sender.slot, self._seat.me.slot, message.version))

    def version_below(self, parent: PeerId) -> int:
        """What this one knows of its siblings there; 0 if there is no list."""
        place = self._places.get(parent)
        return place.version if place is not None and place.is_listed else 0

    def next_ones(self, parent: PeerId, direction: Direction) -> list[tuple[PeerId, Direction]]:
        """To whom an event goes on in a list, and in which direction."""
        place = self._places.get(parent)
        found = []
        if place is not None and place.left is not None and direction is not Direction.RIGHT:
            found.append((place.left, Direction.LEFT))
        if place is not None and place.right is not None and direction is not Direction.LEFT:
            found.append((place.right, Direction.RIGHT))
        return found

    def on_lost(self, lost: PeerId) -> None:
        """A sibling cannot be reached: the parent may not know."""
        for parent, place in list(self._places.items()):
            if is_meant(parent, lost):
                del self._places[parent]
                continue
            for peer in (place.left, place.right):
                if peer is not None and is_meant(peer, lost):
                    self._seat.send(
                        parent,
                        SiblingsKnown(parent.slot, self._seat.me.slot, place.version, works=False),
                    )

    def forget_former(self) -> None:
        """What is under way in the lists of former parents has arrived."""
        for parent in [each for each in self._places if not self._is_above(each)]:
            del self._places[parent]

    def _is_above(self, parent: PeerId) -> bool:
        return any(peer == parent for peer, _ in self._seat.ups())
