"""The containment tree as a plan: the canonical tree of members, and all events over it at once.

A node hosts a member per distinct filter, with slots in the order of its subscriptions. Edges lead
between members; the label of an edge says its kind and whether it leads up. An event begins at the
first member of its node that matches it, else it climbs from the node's entrance: its first member,
or the crown if it has none. Where nobody wants anything, the first node stands for the crown.

What members of one node hand each other takes no message and is no hop, so a node may get an event
more than once, for different members; its first sender is the one whose message comes first. Nodes
handle what comes at one hop in the order in which it was sent: senders in the order in which they
got it, and what one sender says to a node in one message; members that are handed an event on the
node itself come after those that got it from outside, first in, first out. `route` keeps that order
(`causes`), and so agrees with the simulator also where several messages come at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from peersub.filters.filter import Filter
from peersub.overlays.bulk import Edges, MemberSources, Plan, Receipts, Sets, Subscriptions
from peersub.overlays.bulk_building import no_keys, subscriptions_needed
from peersub.overlays.bulk_routing import chunks, wanted_flags, within
from peersub.overlays.containment.structure import EdgeKind, Member, TreeShape, canonical_shape
from peersub.overlays.semantic.sample import SharedSample

if TYPE_CHECKING:
    from peersub.overlays.containment.settings import ContainmentSettings

__all__ = ["needs_subscriptions", "plan", "route"]

_UP: Final = 8
"""Added to the kind of an edge that leads up."""


def needs_subscriptions(settings: ContainmentSettings) -> bool:
    """Always: the tree is made of what is wanted."""
    return True


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: ContainmentSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The canonical tree of all members."""
    no_keys("containment", keys)
    given = subscriptions_needed("containment", subscriptions)
    members, homes = [], []
    for number, node in enumerate(nodes):
        distinct = {wanted.digest: wanted for wanted in given.get(node, {}).values()}
        for slot, wanted in enumerate(distinct.values()):
            members.append(Member(node, slot, wanted))
            homes.append(number)
    sample = SharedSample(settings.sampling)

    def count(wanted: Filter) -> int:
        return sample.matches_in_sample(wanted) or 0

    shape = canonical_shape(
        members,
        rule="selectivity" if settings.rule == "selectivity" else "depth",
        count=count,
        equal_degree=settings.equal_degree,
        top_degree=settings.top_degree,
    )
    numbers: dict[bytes, int] = {}
    filters: list[bytes] = []
    for member in members:
        if numbers.setdefault(member.wanted.digest, len(filters)) == len(filters):
            filters.append(member.wanted.to_bytes())
    lives_on = np.array(homes, np.int32)
    return Plan(
        overlay="containment",
        names=tuple(nodes),
        keys=None,
        edges=_edges(shape, len(nodes)),
        sources=MemberSources(
            filters=tuple(filters),
            nodes=lives_on,
            wants=np.array([numbers[member.wanted.digest] for member in members], np.int32),
            entrances=_entrances(shape, lives_on, len(nodes)),
        ),
    )


def _edges(shape: TreeShape, nodes: int) -> Edges:
    """Of each member first the edge up, then those down, in order."""
    starts, targets, labels = [0], [], []
    for member, above in enumerate(shape.parents):
        if above >= 0:
            targets.append(above)
            labels.append(shape.kinds[member] + _UP)
        targets += shape.below[member]
        labels += [shape.kinds[other] for other in shape.below[member]]
        starts.append(len(targets))
    return Edges(
        starts=np.array(starts, np.int64),
        targets=np.array(targets, np.int32),
        offsets=np.zeros(len(targets), np.int32),
        spans=np.full(len(targets), nodes, np.int32),
        labels=np.array(labels, np.int32),
        arcs=np.zeros((len(targets), 2), np.int64),
    )


def _entrances(shape: TreeShape, lives_on: np.ndarray, nodes: int) -> np.ndarray:
    found = np.full(nodes, shape.parents.index(-1) if len(shape) else -1, np.int32)
    # The first member of a node is the last to be written.
    found[lives_on[::-1]] = np.arange(len(lives_on), dtype=np.int32)[::-1]
    return found


# --- routing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """Events that come to members, in the order in which they do.

    Attributes:
        rows: the events.
        members: to whom they come.
        senders: the members that they come from; -1 where an event begins.
        climbs: whether nobody has matched yet.
        causes: what is handled at once: an event, a node, and who sent it.
    """

    rows: np.ndarray
    members: np.ndarray
    senders: np.ndarray
    climbs: np.ndarray
    causes: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: np.ndarray) -> _Arrivals:
        """Those at these places."""
        return _Arrivals(
            self.rows.take(places),
            self.members.take(places),
            self.senders.take(places),
            self.climbs.take(places),
            self.causes.take(places),
        )


def route(plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets) -> Iterator[Receipts]:
    """Route events over the tree; `interested` are filters of the plan."""
    sources = plan.sources
    assert isinstance(sources, MemberSources)
    tree = _Tree(plan.edges, sources, len(plan.names))
    width = max(len(sources.filters), len(sources.nodes), len(plan.names))
    for start, end in chunks(len(publishers), width):
        found = _Routing(tree, publishers[start:end], interested.part(start, end)).receipts()
        rows, nodes, senders, hops, messages = found
        yield Receipts(
            events=rows + start,
            nodes=nodes.astype(np.int32),
            senders=senders.astype(np.int32),
            hops=hops.astype(np.int32),
            messages=messages.astype(np.int32),
            wanted=wanted_flags(wanted.part(start, end), len(plan.names), rows, nodes),
        )


class _Tree:
    """The plan, as NumPy wants its indices."""

    def __init__(self, edges: Edges, sources: MemberSources, nodes: int) -> None:
        self.nodes = nodes
        self.filters = len(sources.filters)
        self.lives_on = sources.nodes.astype(np.intp)
        self.wants = sources.wants.astype(np.intp)
        self.entrances = sources.entrances.astype(np.intp)
        self.firsts = edges.starts[:-1]
        self.degrees = np.diff(edges.starts)
        self.targets = edges.targets.astype(np.intp)
        self.is_up = edges.labels >= _UP
        self.is_top = edges.labels % _UP == EdgeKind.TOP
        self.begins = np.searchsorted(self.lives_on, np.arange(nodes + 1))


class _Routing:
    """Some events, hop by hop."""

    def __init__(self, tree: _Tree, publishers: np.ndarray, interested: Sets) -> None:
        self._tree = tree
        self._publishers = publishers.astype(np.intp)
        self._matches = np.zeros((len(publishers), tree.filters), np.bool_)
        self._matches[interested.rows(), interested.numbers] = True
        self._reached = np.zeros((len(publishers), len(tree.lives_on)), np.bool_)
        cells = len(publishers) * tree.nodes
        self._senders = np.full(cells, -1, np.intp)
        self._hops = np.full(cells, -1, np.intp)
        self._messages = np.zeros(cells, np.intp)

    def receipts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Events, nodes, first senders, hops and messages."""
        nodes = self._tree.nodes
        self._hops[np.arange(len(self._publishers)) * nodes + self._publishers] = 0
        if not len(self._tree.lives_on):
            self._sent_to_the_first_node()
        here, elsewhere = self._beginnings()
        hop = 0
        while len(here) or len(elsewhere):
            arrived = self._sent_by(here)
            if len(elsewhere):
                # Only nodes without members begin elsewhere, so nothing else is on its way there.
                arrived, elsewhere = _joined(elsewhere, arrived), elsewhere.take(_NONE)
            hop += 1
            here = self._received(arrived, hop)
        cells = np.flatnonzero(self._hops >= 0)
        return (
            cells // nodes,
            cells % nodes,
            self._senders[cells],
            self._hops[cells],
            self._messages[cells],
        )

    def _sent_to_the_first_node(self) -> None:
        """There is no member anywhere: events climb to the keeper of the first node, and end."""
        others = np.flatnonzero(self._publishers)
        cells = others * self._tree.nodes
        self._hops[cells], self._messages[cells] = 1, 1
        self._senders[cells] = self._publishers.take(others)

    def _matching(self, rows: np.ndarray, members: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._matches[rows, self._tree.wants.take(members)]
        return found

    def _beginnings(self) -> tuple[_Arrivals, _Arrivals]:
        """Where events begin: on the nodes of their publishers, or on that of the crown."""
        tree, publishers = self._tree, self._publishers
        counts = np.diff(tree.begins).take(publishers)
        rows = np.repeat(np.arange(len(publishers)), counts)
        members = np.repeat(tree.begins.take(publishers), counts) + within(counts)
        matching = np.flatnonzero(self._matching(rows, members))
        rows, members = rows.take(matching), members.take(matching)
        begins = tree.entrances.take(publishers)
        # The first member that matches is the last to be written.
        begins[rows[::-1]] = members[::-1]
        events = np.flatnonzero(begins >= 0)
        arrivals = _Arrivals(
            events,
            begins.take(events),
            np.full(len(events), -1, np.intp),
            np.ones(len(events), np.bool_),
            events,
        )
        is_here = tree.lives_on.take(arrivals.members) == publishers.take(events)
        return arrivals.take(np.flatnonzero(is_here)), arrivals.take(np.flatnonzero(~is_here))

    def _received(self, arrived: _Arrivals, hop: int) -> _Arrivals:
        """Note which nodes got what from whom; messages of one sender to a node come together."""
        tree = self._tree
        cells = arrived.rows * tree.nodes + tree.lives_on.take(arrived.members)
        senders = np.where(
            arrived.senders >= 0,
            tree.lives_on.take(np.maximum(arrived.senders, 0)),
            self._publishers.take(arrived.rows),
        )
        keys = arrived.causes * tree.nodes + tree.lives_on.take(arrived.members)
        _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
        ranks = np.empty(len(firsts), np.intp)
        ranks[np.argsort(firsts)] = np.arange(len(firsts))
        np.add.at(self._messages, cells, 1)
        fresh, places = np.unique(cells, return_index=True)
        is_first = self._hops.take(fresh) < 0
        fresh, places = fresh[is_first], places[is_first]
        self._hops[fresh] = hop
        self._senders[fresh] = senders.take(places)
        return replace(arrived, causes=ranks.take(inverse))

    def _sent_by(self, here: _Arrivals) -> _Arrivals:
        """What members send to other nodes, those included to whom it is handed on their node."""
        tree = self._tree
        sent: list[_Arrivals] = []
        while len(here):
            forwards = self._forwards(here)
            is_local = tree.lives_on.take(forwards.members) == tree.lives_on.take(forwards.senders)
            sent.append(forwards.take(np.flatnonzero(~is_local)))
            here = forwards.take(np.flatnonzero(is_local))
        all_sent = sent[0] if sent else here
        for more in sent[1:]:
            all_sent = _joined(all_sent, more)
        return all_sent.take(np.argsort(all_sent.causes, kind="stable"))

    def _forwards(self, here: _Arrivals) -> _Arrivals:
        """To whom members pass on what came to them, in order."""
        tree = self._tree
        if self._reached[here.rows, here.members].any():
            raise ValueError("the plan is wrong: an event comes to a member more than once")
        self._reached[here.rows, here.members] = True
        counts = tree.degrees.take(here.members)
        parents = np.repeat(np.arange(len(here)), counts)
        taken = np.repeat(tree.firsts.take(here.members), counts) + within(counts)
        is_matching = self._matching(here.rows, here.members)
        still_climbs = (here.climbs & ~is_matching).take(parents)
        is_up, is_top = tree.is_up.take(taken), tree.is_top.take(taken)
        targets = tree.targets.take(taken)
        is_open = is_top | is_matching.take(parents) | (is_up & still_climbs)
        kept = np.flatnonzero(is_open & (targets != here.senders.take(parents)))
        parents = parents.take(kept)
        return _Arrivals(
            here.rows.take(parents),
            targets.take(kept),
            here.members.take(parents),
            (still_climbs & is_up & ~is_top).take(kept),
            here.causes.take(parents),
        )


_NONE: Final = np.zeros(0, np.intp)


def _joined(first: _Arrivals, then: _Arrivals) -> _Arrivals:
    return _Arrivals(
        np.concatenate([first.rows, then.rows]),
        np.concatenate([first.members, then.members]),
        np.concatenate([first.senders, then.senders]),
        np.concatenate([first.climbs, then.climbs]),
        np.concatenate([first.causes, then.causes]),
    )
