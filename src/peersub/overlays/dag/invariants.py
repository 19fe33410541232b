"""What holds of layers, always and at rest: for checkers outside of the protocol.

Always, looked at after each step of each node (`NetworkChecker`):

* the edges of a layer, with their tokens held or on their way, form no directed cycle, so that each
  connected part has a member whom nobody keeps from its turn;
* of the two ends of an edge at most one holds the token, so neighbours are never on turn together;
* values and lids say of each edge what the token says, neighbours' lids differ, and no turn changes
  one;
* since their edge is up, the turns of neighbours differ by at most one (section 3.1, Lemma 3.2);
* whatever changes in a layer is explained within that layer: a token leaves by a turn and comes
  from the other end, a value changes by a turn or before the first edge. So no layer depends on
  another (Definition 2.1);
* no token is lost, and whoever is on turn and has something to say does not keep it.

At rest (`check_quiet`): edges are mutual; each layer is connected, and acyclic, so that it has a
sink; a node is in the layers that its subscriptions demand and no others; no event waits for a
turn, so every publisher had its own (section 4.1).

An edge comes up by an offer and an answer. From the answer on it counts: who has offered has no
record of it yet, but stands still. An offer that is not answered keeps nobody from anything but
its own turn, and is answered at once by whoever gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from peersub.overlays.core.causes import Cause
from peersub.overlays.core.checks import Checks
from peersub.overlays.core.effects import Effect
from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.layer import Edge, Layer
from peersub.overlays.dag.orientation import VALUES, points_at, succeeding
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.topics import EVERYBODY, layers_of, topic_path

__all__ = ["CHECKS", "NetworkChecker", "check_quiet", "step_checker"]

PeerAt: TypeAlias = Callable[[str], DagPeer | None]
"""The peer on a node, if the node is on."""
Place: TypeAlias = tuple[str, PeerId]
"""A member: the layer and the peer."""

WHOLE_NODES_MAX: Final = 16
"""Networks up to this size are looked at as a whole whenever something changes."""
WHOLE_EVERY_CHANGES: Final = 256
"""Larger ones now and then: each single change is looked at from the member that made it."""
UNDER_WAY_MS_MAX: Final = 60_000
"""A token that is not there by then is lost: links repeat what they carry, or break, before."""
SHOWN_MAX: Final = 8


@dataclass(slots=True)
class _Seen:
    """A member's part of a layer after the last step of its node."""

    layer: Layer
    val: int
    lid: int
    turns: int
    tokens: dict[PeerId, tuple[Edge, bool]]
    offers: tuple[PeerId, ...]


def _look(layer: Layer) -> _Seen:
    tokens = {peer: (edge, edge.holds_token) for peer, edge in layer.edges.items()}
    return _Seen(layer, layer.val, layer.lid, layer.turns, tokens, tuple(layer.offers))


@dataclass(slots=True)
class _Watched:
    """A node's peer, and its layers as they were."""

    peer: DagPeer
    layers: dict[str, _Seen] = field(default_factory=dict)


def step_checker(peer_at: PeerAt) -> Callable[[DagPeer, Cause, Sequence[Effect]], list[str]]:
    """What checks one network, step after step; it looks at peers, and changes nothing."""
    return NetworkChecker(peer_at).check_step


class NetworkChecker:
    """Watches the layers of a network: the work per step is that of the node's own edges."""

    def __init__(self, peer_at: PeerAt) -> None:
        self._peer_at = peer_at
        self._watched: dict[PeerId, _Watched] = {}
        self._heads: dict[tuple[str, PeerId, PeerId], PeerId] = {}
        """Per edge the end that holds the token, or will when it arrives."""
        self._ahead: dict[Place, dict[PeerId, None]] = {}
        """Per member, those that it waits for."""
        self._behind: dict[Place, dict[PeerId, None]] = {}
        """Per member, those that wait for it."""
        self._under_way: dict[tuple[str, PeerId, PeerId], int] = {}
        """Per edge whose token is on its way, since when."""
        self._changes = 0
        self._now_ms = 0

    def check_step(self, peer: DagPeer, _cause: Cause, _effects: Sequence[Effect]) -> list[str]:
        """Complaints about what the step has changed."""
        self._now_ms = peer.now_ms
        watched = self._watched.get(peer.me)
        if watched is None or watched.peer is not peer:
            watched = self._watched[peer.me] = _Watched(peer)
        complaints: list[str] = []
        changed = False
        for name in {**watched.layers, **peer.layers}:
            before, layer = watched.layers.get(name), peer.layers.get(name)
            now = None if layer is None else _look(layer)
            if layer is not None and not peer.is_leaving:
                complaints += _check_idleness(peer, layer)
            if before == now:
                continue
            changed = True
            complaints += self._check_layer(peer, name, before, now)
            if now is None:
                del watched.layers[name]
            else:
                watched.layers[name] = now
        if changed:
            self._changes += 1
            whole = len(self._watched) <= WHOLE_NODES_MAX
            if whole or not self._changes % WHOLE_EVERY_CHANGES:
                complaints += self._check_whole()
        return complaints

    def _check_layer(
        self, peer: DagPeer, name: str, before: _Seen | None, now: _Seen | None
    ) -> list[str]:
        complaints: list[str] = []
        if now is not None:
            if before is not None and before.layer is now.layer:
                complaints += self._check_change(peer.me, name, before, now)
            self._move_heads(peer.me, name, before, now)
            for other, edge in now.layer.edges.items():
                complaints += self._check_edge(peer, now.layer, other, edge)
        if before is not None:
            for other in before.tokens:
                if now is None or other not in now.tokens:
                    # It may have had a last turn. What is on its way still arrives.
                    self._heads.pop(_edge(name, peer.me, other), None)
                    self._under_way.pop(_edge(name, peer.me, other), None)
        others: dict[PeerId, None] = {}
        for seen in (before, now):
            if seen is not None:
                others.update(dict.fromkeys((*seen.tokens, *seen.offers)))
        if self._draw_arrows(peer.me, name, others):
            complaints += self._find_cycle((name, peer.me))
        return complaints

    # --- one member ----------------------------------------------------------------------------

    def _check_change(self, me: PeerId, name: str, before: _Seen, now: _Seen) -> list[str]:
        """Whether the layer's own rules explain what changed in it."""
        who = f"{me} on layer {name!r}"
        taken = now.turns - before.turns
        lasting = {
            other: (held, now.tokens[other][1])
            for other, (edge, held) in before.tokens.items()
            if other in now.tokens and now.tokens[other][0] is edge
        }
        complaints = []
        if taken not in (0, 1):
            complaints.append(f"{who} took {taken} turns in one step")
        if taken:
            kept = [other for other, (_, holds) in lasting.items() if holds]
            if kept:
                complaints.append(f"{who} took a turn and keeps the token of {_some(kept)}")
            if lasting and now.val != succeeding(before.val):
                complaints.append(f"{who} went from value {before.val} to {now.val} by a turn")
            if lasting and now.lid != before.lid:
                complaints.append(f"{who} went from lid {before.lid} to {now.lid} by a turn")
        elif lasting:
            if now.val != before.val:
                complaints.append(
                    f"{who} went from value {before.val} to {now.val} without a turn, and has edges"
                )
            if now.lid != before.lid and not all(holds for _, holds in lasting.values()):
                complaints.append(
                    f"{who} went from lid {before.lid} to {now.lid}, and is not on turn"
                )
        for other, (held, holds) in lasting.items():
            if held and not holds and not taken:
                complaints.append(f"{who} gave the token of {other} away without a turn")
            came = not held and (holds or taken)
            # Whoever leaves takes its last turn, and then says nothing more of the edge.
            if came and self._back(name, me, other) is None:
                continue
            if came and self._heads.get(_edge(name, me, other), me) != me:
                complaints.append(f"{who} has a token of {other} that nobody sent")
        return complaints

    def _check_edge(self, peer: DagPeer, layer: Layer, other: PeerId, edge: Edge) -> list[str]:
        """What the two ends of an edge say of it, if both know of it."""
        back = self._back(layer.name, peer.me, other)
        if back is None:
            return []
        theirs, returning = back
        return _check_ends((peer.me, layer, edge), (other, theirs, returning), self._heads)

    def _move_heads(self, me: PeerId, name: str, before: _Seen | None, now: _Seen) -> None:
        """Where the tokens of the member's edges are now, or are going."""
        former: dict[PeerId, tuple[Edge, bool]] = {}
        taken = False
        if before is not None and before.layer is now.layer:
            former, taken = before.tokens, now.turns > before.turns
        for other, (edge, holds) in now.tokens.items():
            place = _edge(name, me, other)
            was = former.get(other)
            if holds:
                self._heads[place] = me
                self._under_way.pop(place, None)
            elif taken or (was is not None and was[0] is edge and was[1]):
                self._heads[place] = other
                self._under_way[place] = self._now_ms
            elif was is None or was[0] is not edge:
                # The other end took the edge, and may have had its turn before this one heard of it
                self._heads.setdefault(place, other)

    # --- the graph -----------------------------------------------------------------------------

    def _member(self, name: str, who: PeerId) -> Layer | None:
        peer = self._peer_at(who.node)
        return None if peer is None or peer.me != who else peer.layers.get(name)

    def _back(self, name: str, me: PeerId, other: PeerId) -> tuple[Layer, Edge] | None:
        """The other end's record of an edge."""
        theirs = self._member(name, other)
        edge = None if theirs is None else theirs.edges.get(me)
        return None if theirs is None or edge is None else (theirs, edge)

    def _arrow(self, name: str, one: PeerId, other: PeerId) -> tuple[PeerId, PeerId] | None:
        """Who waits for whom, of two members between whom there is an edge.

        An end that has forgotten the edge waits for nobody, and is waited for only until the news
        arrives: such an edge is no arrow.
        """
        here, there = self._member(name, one), self._member(name, other)
        if here is None or there is None:
            return None
        edge, back = here.edges.get(other), there.edges.get(one)
        if edge is None and (back is None or other not in here.offers):
            return None
        if back is None and one not in there.offers:
            return None
        if edge is not None and edge.holds_token:
            return other, one
        if back is not None and back.holds_token:
            return one, other
        head = self._heads.get(_edge(name, one, other))
        if head is None:
            return None
        return (one, other) if head == other else (other, one)

    def _draw_arrows(self, me: PeerId, name: str, others: Iterable[PeerId]) -> bool:
        """Bring the arrows at a member up to date; whether a cycle may lead through it now."""
        is_new = False
        for other in others:
            arrow = self._arrow(name, me, other)
            for tail, head in ((me, other), (other, me)):
                ahead = self._ahead.setdefault((name, tail), {})
                behind = self._behind.setdefault((name, head), {})
                if arrow == (tail, head):
                    is_new = is_new or head not in ahead
                    ahead[head] = None
                    behind[tail] = None
                else:
                    ahead.pop(head, None)
                    behind.pop(tail, None)
        place = (name, me)
        return is_new and bool(self._ahead.get(place)) and bool(self._behind.get(place))

    def _find_cycle(self, start: Place) -> list[str]:
        """The way from a member along arrows back to it, if there is one."""
        name, me = start
        came: dict[PeerId, PeerId] = {}
        ways = [me]
        while ways:
            tail = ways.pop()
            for head in self._ahead.get((name, tail), ()):
                if self._arrow(name, tail, head) != (tail, head):
                    continue  # one of the two is gone
                if head == me:
                    return [f"a cycle on layer {name!r}: {_way(me, tail, came)}"]
                if head not in came:
                    came[head] = tail
                    ways.append(head)
        return []

    def _check_whole(self) -> list[str]:
        """Every layer of the network: taking away whoever waits for nobody leaves nobody."""
        living: dict[str, dict[PeerId, Layer]] = {}
        for me, watched in list(self._watched.items()):
            if self._peer_at(me.node) is not watched.peer:
                self._forget(me)
                continue
            for name, layer in watched.peer.layers.items():
                living.setdefault(name, {})[me] = layer
        complaints = []
        for name, members in living.items():
            waiting = {
                me: [
                    other
                    for other in {**layer.edges, **layer.offers}
                    if self._arrow(name, me, other) == (me, other)
                ]
                for me, layer in members.items()
            }
            stuck = _stuck(waiting)
            if stuck:
                complaints.append(f"a cycle on layer {name!r} among {_some(stuck)}")
        return complaints + self._find_lost_tokens()

    def _find_lost_tokens(self) -> list[str]:
        """Tokens that left one end long ago, and have not come to the other."""
        complaints = []
        for place, since_ms in list(self._under_way.items()):
            name, one, other = place
            if self._now_ms - since_ms > UNDER_WAY_MS_MAX:
                del self._under_way[place]
                if self._back(name, one, other) and self._back(name, other, one):
                    complaints.append(f"the token of {one} and {other} on layer {name!r} is lost")
        return complaints

    def _forget(self, gone: PeerId) -> None:
        """A node that is off: its memory is no part of the network."""
        for name in self._watched.pop(gone).layers:
            place = (name, gone)
            for other in self._ahead.pop(place, ()):
                self._behind.get((name, other), {}).pop(gone, None)
            for other in self._behind.pop(place, ()):
                self._ahead.get((name, other), {}).pop(gone, None)
        for edge in [edge for edge in self._heads if gone in edge]:
            del self._heads[edge]
            self._under_way.pop(edge, None)


def _check_idleness(peer: DagPeer, layer: Layer) -> list[str]:
    """Whoever is on turn, and has something to say, says it in the step in which it can."""
    if layer.wants_turn and layer.edges and layer.is_sink and not layer.inviting:
        what = f"{len(layer.queued)} events" if layer.queued else "its turn, which is wanted"
        return [f"{peer.me} is on turn on layer {layer.name!r}, and keeps {what}"]
    return []


End: TypeAlias = tuple[PeerId, Layer, Edge]


def _check_ends(one: End, two: End, heads: dict[tuple[str, PeerId, PeerId], PeerId]) -> list[str]:
    """Complaints about an edge of which both ends have a record."""
    (me, layer, edge), (other, theirs, back) = one, two
    about = f"the edge of {me} and {other} on layer {layer.name!r}"
    if edge.holds_token and back.holds_token:
        return [f"both ends have the token of {about}"]
    if layer.lid == theirs.lid:
        return [f"both ends have the lid {layer.lid} at {about}"]
    complaints = []
    if (edge.shift + back.shift) % VALUES:
        complaints.append(f"{about}: shifts of {edge.shift} and {back.shift} do not cancel out")
    for (_, holding, mine), (_, giving, _) in ((one, two), (two, one)):
        true = ((giving.val + mine.shift) % VALUES, giving.lid)
        if mine.holds_token and (mine.val, mine.lid) != true:
            complaints.append(f"{about}: the holder takes {true} for {(mine.val, mine.lid)}")
        if mine.holds_token and not _waits_for(giving, holding, mine.shift):
            complaints.append(f"{about}: the values say otherwise than the token")
    if not edge.holds_token and not back.holds_token:
        head = heads.get(_edge(layer.name, me, other))
        lower, upper, shift = (layer, theirs, edge.shift)
        if head != me:
            lower, upper, shift = (theirs, layer, back.shift)
        if head is not None and not _waits_for(upper, lower, shift):
            complaints.append(f"{about}: the values say otherwise than the token on its way")
    taken, given = layer.turns - edge.turns_before, theirs.turns - back.turns_before
    if abs(taken - given) > 1:
        complaints.append(f"{about}: they took {taken} and {given} turns since it is up")
    return complaints


def _waits_for(upper: Layer, lower: Layer, shift: int) -> bool:
    """Whether values say that their edge points at the lower one, who shifts the other's values."""
    return points_at(lower.val, lower.lid, (upper.val + shift) % VALUES, upper.lid)


def _edge(name: str, one: PeerId, other: PeerId) -> tuple[str, PeerId, PeerId]:
    return (name, one, other) if one < other else (name, other, one)


def _stuck(waiting: dict[PeerId, list[PeerId]]) -> list[PeerId]:
    """Those on a cycle, or who wait for one that is: the others go away one after the other."""
    behind: dict[PeerId, list[PeerId]] = {}
    left = {}
    for me, others in waiting.items():
        there = [other for other in others if other in waiting]
        left[me] = len(there)
        for other in there:
            behind.setdefault(other, []).append(me)
    free = [me for me, count in left.items() if not count]
    for me in free:
        for other in behind.get(me, ()):
            left[other] -= 1
            if not left[other]:
                free.append(other)
    return [me for me, count in left.items() if count]


def _way(me: PeerId, last: PeerId, came: dict[PeerId, PeerId]) -> str:
    way = [me, last]
    while way[-1] != me:
        way.append(came[way[-1]])
    return " -> ".join(str(each) for each in reversed(way))


def _some(peers: Sequence[PeerId]) -> str:
    shown = ", ".join(str(peer) for peer in peers[:SHOWN_MAX])
    return f"{shown} and {len(peers) - SHOWN_MAX} more" if len(peers) > SHOWN_MAX else shown


# --- at rest -----------------------------------------------------------------------------------


def check_quiet(peers: Sequence[DagPeer]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    present = {peer.me: peer for peer in peers if not peer.is_leaving}
    complaints = [text for peer in present.values() for text in _check_memberships(peer)]
    for name in dict.fromkeys(name for peer in present.values() for name in peer.layers):
        members = {me: peer.layers[name] for me, peer in present.items() if name in peer.layers}
        complaints += _check_layer_at_rest(name, members)
    return complaints


def _check_memberships(peer: DagPeer) -> Iterator[str]:
    path = topic_path(peer.settings.topic)
    demanded = {EVERYBODY: ""}
    for subscription, wanted in peer.home.subscriptions.items():
        demanded |= dict.fromkeys(layers_of(wanted, path), subscription)
    for name, subscription in demanded.items():
        if name not in peer.layers or not peer.layers[name].is_member:
            yield f"{peer.me} is no member of layer {name!r}, which {subscription} needs"
    for name, layer in peer.layers.items():
        is_wanted = name in demanded or peer.frequent.wants(name)
        if not is_wanted and peer.departures.stage(layer) is None:
            yield f"{peer.me} stays in layer {name!r}, which nothing there needs"
        if layer.queued:
            yield f"{peer.me} has {len(layer.queued)} events on layer {name!r} and no turn for them"


def _check_layer_at_rest(name: str, members: dict[PeerId, Layer]) -> list[str]:
    complaints = []
    for me, layer in members.items():
        if layer.offers:
            complaints.append(f"{me} waits for an answer of {_some([*layer.offers])} on {name!r}")
        for other, edge in layer.edges.items():
            back = members[other].edges.get(me) if other in members else None
            if back is None:
                complaints.append(f"{me} has an edge to {other} on {name!r}, but not vice versa")
            elif me < other:
                complaints += _check_ends((me, layer, edge), (other, members[other], back), {})
    if complaints:
        return complaints
    # Idle sinks take turns now and then. Values say of tokens on their way where they go.
    waiting = {
        me: [
            other
            for other in layer.edges
            if _waits_for(layer, members[other], members[other].edges[me].shift)
        ]
        for me, layer in members.items()
    }
    stuck = _stuck(waiting)
    if stuck:
        return [f"a cycle on layer {name!r} among {_some(stuck)}"]
    reached = dict.fromkeys(list(members)[:1])
    ahead = list(reached)
    for me in ahead:
        for other in members[me].edges:
            if other not in reached:
                reached[other] = None
                ahead.append(other)
    if len(reached) < len(members):
        apart = [me for me in members if me not in reached]
        return [f"layer {name!r} is in parts: {_some([*reached])} do not reach {_some(apart)}"]
    labels = dict.fromkeys(layer.label for layer in members.values())
    if len(labels) > 1:
        return [f"layer {name!r} is in one part, which has the names {[*labels]}"]
    return []


CHECKS: Final = Checks(quiet=check_quiet, watch=step_checker)
