"""The way of an event over a similarity graph, as the nodes of a network take it.

All links take equally long here, so an event goes on in steps, a link at a time, and the number of
the step is the number of hops. Within a step nodes act in the order in which what they act on was
sent, as in the simulator: which of two copies comes first can decide who passes it on.

Law: the nodes, hops and messages are those of `routing` on a graph that does not change meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from peersub.overlays.bulk import MemberGraph
from peersub.overlays.core.draws import draw
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.semantic.bulk_members import Passages, grouped
from peersub.overlays.similarity.forwarding import STOPPED, event_draw, forward_share, left_of
from peersub.overlays.similarity.settings import SimilaritySettings

__all__ = ["GraphRouter"]

_Letter = tuple[int, int, int, int, tuple[int, ...] | None]
"""To which member, from which one (-1 for a node), with how much indulgence, after how many hops;
and, while the event still looks for somebody who matches it, the members that it has met."""


class GraphRouter:
    """A graph, prepared for events.

    Args:
        graph: who is linked with whom.
        nodes: how many nodes there are.
        seed: the network's.
        settings: of the overlay.
    """

    def __init__(
        self, graph: MemberGraph, nodes: int, seed: int, settings: SimilaritySettings
    ) -> None:
        self.members = graph.members
        self.nodes = nodes
        self._seed = seed
        self._settings = settings
        self._homes = graph.members.nodes
        self._starts, self._targets, self._is_near = graph.starts, graph.targets, graph.is_near
        self._places = graph.places
        self._counts = graph.counts
        self._own = grouped(self._homes, np.arange(len(self._homes)), nodes)
        self._contacts: dict[int, int] = {}

    def passages(self, event_id: str, publisher: int, matching: np.ndarray) -> Passages:
        """How an event comes to members, given those that match it."""
        return _Way(self, event_id, matching.tolist()).from_node(publisher)

    # --- the graph -----------------------------------------------------------------------------

    def home(self, member: int) -> int:
        """The node of a member."""
        return int(self._homes[member])

    def own(self, node: int) -> list[int]:
        """The members of a node."""
        starts, members = self._own
        found: list[int] = members[starts[node] : starts[node + 1]].tolist()
        return found

    def contact(self, node: int) -> int:
        """The member through which a node without members publishes; -1 if there is none."""
        found = self._contacts.get(node)
        if found is None:
            name = numbered_node(node)
            others = (each for each in np.unique(self._homes).tolist() if each != node)
            chosen = min(
                others,
                key=lambda each: draw(self._seed, "similarity/contact", name, numbered_node(each)),
                default=-1,
            )
            found = self._contacts[node] = self.own(chosen)[0] if chosen >= 0 else -1
        return found

    def neighbours(self, member: int) -> list[int]:
        """Whom a member has links with, in order."""
        found: list[int] = self._targets[self._starts[member] : self._starts[member + 1]].tolist()
        return found

    def chosen(self, member: int, drawn: int, share: float) -> list[int]:
        """To whom a member passes an event on, unless it came from there."""
        part = slice(self._starts[member], self._starts[member + 1])
        targets: list[int] = self._targets[part].tolist()
        if share >= 1:
            return targets
        mine = int(self._places[member])
        return [
            target
            for target, is_near in zip(targets, self._is_near[part].tolist(), strict=True)
            if is_near or forward_share(drawn, mine, int(self._places[target])) < share
        ]

    def most_general(self, members: Sequence[int]) -> int:
        """Of several members the one of the highest rank."""
        return max(members, key=lambda each: (self._counts[each], self._places[each], each))

    @property
    def settings(self) -> SimilaritySettings:
        """Of the overlay."""
        return self._settings

    @property
    def seed(self) -> int:
        """The network's."""
        return self._seed


class _Way:
    """One event."""

    def __init__(self, router: GraphRouter, event_id: str, matching: list[int]) -> None:
        self._router = router
        self._settings = router.settings
        self._drawn = event_draw(router.seed, event_id)
        self._matching = frozenset(matching)
        self._matching_on: dict[int, list[int]] = {}
        for member in sorted(matching):
            self._matching_on.setdefault(router.home(member), []).append(member)
        self._seen: set[int] = set()
        """Nodes that have it."""
        self._left: dict[int, int] = {}
        self._received: dict[int, list[int]] = {}
        """Per member the hops and the sender of the first copy, and how many copies came."""
        self._under_way: deque[tuple[int, list[_Letter]]] = deque()
        self._said: dict[int, list[_Letter]] = {}

    def from_node(self, publisher: int) -> Passages:
        """Publish it on a node, and follow it until nobody passes it on."""
        self._seen.add(publisher)
        own = self._router.own(publisher)
        for member in self._matching_on.get(publisher, ()):
            self._received[member] = [0, -1, 0]
        if not self._begin(publisher, 0, -1):
            if own:
                first = self._router.most_general(own)
                self._received.setdefault(first, [0, -1, 0])
                self._seek(first, 0, ())
            else:
                contact = self._router.contact(publisher)
                if contact >= 0:
                    self._say((contact, -1, 0, 1, ()))
        self._send()
        while self._under_way:
            node, letters = self._under_way.popleft()
            for letter in letters:
                self._take(node, letter)
            self._send()
        return self._passages()

    def _say(self, letter: _Letter) -> None:
        self._said.setdefault(self._router.home(letter[0]), []).append(letter)

    def _send(self) -> None:
        self._under_way.extend(self._said.items())
        self._said = {}

    def _take(self, node: int, letter: _Letter) -> None:
        member, sender, indulgence, hops, passed = letter
        known = self._received.setdefault(member, [hops, sender, 0])
        known[2] += 1
        if passed is not None:
            if node in self._matching_on:
                self._see(node, hops, sender)
                self._begin(node, hops, -1)
            else:
                self._seek(member, hops, passed)
            return
        if self._see(node, hops, sender):
            for other in self._matching_on.get(node, ()):
                if other != member:
                    self._receive(other, sender, indulgence, hops)
        self._receive(member, sender, indulgence, hops)

    def _see(self, node: int, hops: int, sender: int) -> bool:
        """Whether the node gets it for the first time; all who match there get it then."""
        if node in self._seen:
            return False
        self._seen.add(node)
        for member in self._matching_on.get(node, ()):
            self._received.setdefault(member, [hops, sender, 0])
        return True

    def _begin(self, node: int, hops: int, sender: int) -> bool:
        found = self._matching_on.get(node, [])
        for member in found:
            if self._is_more(member, self._settings.indulgence):
                self._pass_on(member, hops, self._settings.indulgence, sender, is_origin=True)
        return bool(found)

    def _receive(self, member: int, sender: int, indulgence: int, hops: int) -> None:
        left = left_of(indulgence, member in self._matching)
        if self._is_more(member, left) and left > STOPPED:
            self._pass_on(member, hops, left, sender)

    def _is_more(self, member: int, left: int) -> bool:
        before = self._left.get(member)
        if before is not None and before >= left:
            return False
        self._left[member] = left
        return True

    def _pass_on(
        self, member: int, hops: int, left: int, sender: int, *, is_origin: bool = False
    ) -> None:
        settings = self._settings
        share = 1.0 if is_origin and settings.origin_spreads else settings.random_forward
        for target in self._router.chosen(member, self._drawn, share):
            if target != sender:
                self._say((target, member, left, hops + 1, None))

    def _seek(self, member: int, hops: int, met: tuple[int, ...]) -> None:
        passed = (*met, member)
        ahead = [each for each in self._router.neighbours(member) if each not in passed]
        if len(passed) > self._settings.seek_steps or not ahead:
            left = left_of(max(self._settings.indulgence, 1), False)
            if self._is_more(member, left):
                self._pass_on(member, hops, left, -1, is_origin=True)
            return
        self._say((self._router.most_general(ahead), member, 0, hops + 1, passed))

    def _passages(self) -> Passages:
        rows = np.array([[member, *found] for member, found in self._received.items()], np.int64)
        rows = rows.reshape(len(self._received), 4)
        members, hops, senders, copies = (rows[:, place].astype(np.int32) for place in range(4))
        return Passages(members, hops, senders, copies, copies)
