"""`CoveringOrder`: which of the filters that are around cover which others, worked out once.

In a simulated network the same filters stand in thousands of tables; in a real node, in a dozen. To
ask in each table anew which of its rows cover which would be most of the work of a subscription.
So the order among all filters is one object that tables share: a memo of a pure relation. Each
filter has a node with the nodes *above* it (they cover it) and *below* it.

Invariants:

* g is above f iff g covers f, and of two that cover each other the one with the least digest is
  above: no filter is above itself, and equal filters are one node;
* following "above" never leads back to where it began. Covering is transitive but for filters with
  text tests, several conjunctions or tree patterns, where it is not always proven; an edge that
  would close a circle through such filters is left out, because in a circle each would be dropped
  in favour of another and none would be left;
* the relation among those that could be compared within ENTERING_STEPS_MAX, and of a filter that
  many cover only ABOVE_MAX of these: strangers choose the filters, and one must not take long to
  put in, nor a thousand of them (`price > 1`, `price > 2`, ...) a million places;
* a filter is put in bit by bit, if need be (`Entering`), since proofs about unions take long; what
  came or went meanwhile does not count as compared;
* users hold nodes, and let go of them. Those that nobody holds are taken out, longest idle first,
  when they are more than the others: a few with each filter that comes or goes, since thousands at
  once would hold up everything else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final

from peersub.filters.covering_index import CoveringIndex, Subject, Summary
from peersub.filters.filter import Filter, Matchable
from peersub.filters.relations import Allowance, Proof

__all__ = ["CoveringOrder", "Entering", "OrderNode"]

ENTERING_STEPS_MAX: Final = 8_192
"""Steps of covering proofs for one filter that is put in. Whatever is not compared then counts as
not covering: more rows are told than needed, and none is missing."""
BOX_STEPS: Final = 8
"""Steps for the time that summing up a conjunction, or putting it into the index, takes."""
COMPARED_MAX: Final = 256
"""Filters that one is compared with, on either side."""
ABOVE_MAX: Final = 64
"""Filters above one that are known: the widest, which are told everywhere, and the closest."""
BELOW_MAX: Final = 1_024
"""Filters below one that are known: so many rows are judged again when it comes or goes."""
EQUIVALENTS_MAX: Final = 128
"""Filters that are looked at to see that no circle is closed; beyond, none is put below."""
TAKEN_OUT_AT_ONCE: Final = 2
"""Idle filters that are taken out when one is put in, or let go of."""
IDLE_MAX: Final = 1_024
"""Filters that nobody holds, beyond as many as are held, before they are taken out."""


class OrderNode(Summary):
    """A filter's place in the order."""

    __slots__ = ("above", "below", "holders", "is_exact")

    def __init__(self, wanted: Filter) -> None:
        super().__init__(wanted)
        self.holders = 0
        """How often it is held."""
        self.above: dict[bytes, OrderNode] = {}
        self.below: dict[bytes, OrderNode] = {}
        # Between single conjunctions without text tests covering is inclusion, hence transitive.
        self.is_exact: Final = (
            wanted.language == "sql" and len(wanted.boxes) == 1 and not wanted.boxes[0].tests
        )

    @property
    def has_room_above(self) -> bool:
        """Whether one more filter above it may be known."""
        return len(self.above) < ABOVE_MAX

    @property
    def has_room_below(self) -> bool:
        """Whether one more filter below it may be known."""
        return len(self.below) < BELOW_MAX


class CoveringOrder:
    """The order among the filters of all users.

    >>> order = CoveringOrder()
    >>> narrow, wide = order.node(Filter("a > 2")), order.node(Filter("a > 1"))
    >>> wide.digest in narrow.above, narrow.digest in wide.below
    (True, True)
    """

    def __init__(self) -> None:
        self._index: CoveringIndex[OrderNode] = CoveringIndex()
        self._idle: OrderedDict[bytes, OrderNode] = OrderedDict()
        """What nobody holds, longest idle first."""
        self._inexact = 0

    def __len__(self) -> int:
        return len(self._index)

    def hold(self, node: OrderNode) -> None:
        """The node stays until `let_go` was called as often."""
        node.holders += 1
        self._idle.pop(node.digest, None)

    def let_go(self, node: OrderNode) -> None:
        """The caller does not need the node any more."""
        node.holders -= 1
        if not node.holders:
            self._idle[node.digest] = node

    def node(self, wanted: Filter) -> OrderNode:
        """The place of a filter, which is put in if it is not there."""
        entering = Entering(self, wanted)
        entering.go_on(None)
        assert entering.node is not None
        return entering.node

    def known(self, wanted: Filter) -> OrderNode | None:
        """The place of a filter that is there."""
        known = self._index.nodes.get(wanted.digest)
        if known is not None and not known.holders:
            self._idle.move_to_end(known.digest)
        return known

    def _entered(self, wanted: Filter) -> Generator[int, None, OrderNode]:
        """Put a filter in; before each bit of the work, about how many steps it takes."""
        known = self.known(wanted)
        if known is not None:
            return known
        self.take_out_idle()
        node = OrderNode(wanted)
        fixed_steps = BOX_STEPS * len(node.boxes)
        yield fixed_steps
        # Half of the steps for each side: a filter below many may still be above some.
        wider = (g for g in self._index.possible_coverers(node, COMPARED_MAX) if g.has_room_below)
        above = yield from _related(node, [*islice(wider, COMPARED_MAX)], is_wider=True)
        yield fixed_steps
        narrower = (f for f in self._index.possibly_covered(node, COMPARED_MAX) if f.has_room_above)
        below = yield from _related(node, [*islice(narrower, COMPARED_MAX)], is_wider=False)
        yield fixed_steps
        known = self.known(wanted)
        if known is not None:
            return known
        self._put_in(node, self._present(above), self._present(below))
        return node

    def _present(self, found: Iterable[OrderNode]) -> list[OrderNode]:
        """Those that were not taken out meanwhile."""
        nodes = self._index.nodes
        return [other for other in found if nodes.get(other.digest) is other]

    def _put_in(self, node: OrderNode, above: list[OrderNode], below: list[OrderNode]) -> None:
        above = [general for general in above if general.has_room_below]
        below = [specific for specific in below if specific.has_room_above]
        self._inexact += not node.is_exact
        if above and below and self._inexact:
            reached = _equivalents_below(node, below)
            if len(reached) > EQUIVALENTS_MAX:
                below = []
            else:
                above = [g for g in above if g.digest not in reached]
        for general in above:
            general.below[node.digest] = node
            node.above[general.digest] = general
        for specific in below:
            specific.above[node.digest] = node
            node.below[specific.digest] = specific
        self._index.add(node)
        self._idle[node.digest] = node

    def matching(self, event: Matchable) -> Iterator[OrderNode]:
        """The filters that match the event, also those that nobody holds any more."""
        return self._index.matching(Subject(event))

    def take_out_idle(self) -> None:
        """Take some of those out that nobody holds, longest idle first, if they are many.

        To be called by whoever lets go of filters one by one: else they would stay for ever where
        none comes.
        """
        if 2 * len(self._idle) > len(self._index) + IDLE_MAX:
            for _ in range(TAKEN_OUT_AT_ONCE):
                self._take_out(next(iter(self._idle.values())))

    def _take_out(self, node: OrderNode) -> None:
        del self._idle[node.digest]
        self._index.discard(node)
        self._inexact -= not node.is_exact
        for general in node.above.values():
            del general.below[node.digest]
        for specific in node.below.values():
            del specific.above[node.digest]


class Entering:
    """A filter that is put into an order, as far as it is asked to go on.

    Attributes:
        node: its place, once it is in.
    """

    __slots__ = ("_bits", "filter", "node")

    def __init__(self, order: CoveringOrder, wanted: Filter) -> None:
        self.filter = wanted
        self.node: OrderNode | None = None
        self._bits = order._entered(wanted)

    def go_on(self, steps_max: int | None) -> int:
        """Do a bit, and more until about so many steps are taken, or all; how many it were."""
        taken = 0
        try:
            while steps_max is None or taken <= steps_max:
                taken += next(self._bits)
        except StopIteration as end:
            self.node = end.value
        return taken


def _related(
    node: OrderNode, others: list[OrderNode], *, is_wider: bool
) -> Generator[int, None, list[OrderNode]]:
    """Which of the others are above a filter, if they are wider; else, which are below it."""
    found: list[OrderNode] = []
    allowance = Allowance(ENTERING_STEPS_MAX // 2)
    for other in others:
        if allowance.left < 0 or (is_wider and len(found) == ABOVE_MAX):
            break
        general, specific = (other, node) if is_wider else (node, other)
        if (yield from general.proof(specific, allowance)) and (
            yield from _is_above(general, specific, allowance)
        ):
            found.append(other)
    return found


def _is_above(general: OrderNode, specific: OrderNode, allowance: Allowance) -> Proof:
    """That the first, which covers the second, comes before it."""
    if general.digest < specific.digest or (general.is_exact and specific.is_exact):
        return True  # Exact ones that cover each other are one.
    return not (yield from specific.proof(general, allowance)) and allowance.left >= 0


def _equivalents_below(node: OrderNode, below: Iterable[OrderNode]) -> dict[bytes, None]:
    """What lies below a filter and might, by other proofs, also lie above it.

    All filters of a circle match the same events: they have the same demands, and two exact ones
    among them would be one. So from an exact filter only inexact ones are followed; no further
    than until they are more than EQUIVALENTS_MAX.
    """
    reached: dict[bytes, None] = {}
    waiting = [(node, other) for other in below]
    while waiting and len(reached) <= EQUIVALENTS_MAX:
        general, specific = waiting.pop()
        if specific.digest in reached or specific.demands != node.demands:
            continue
        if general.is_exact and specific.is_exact:
            continue
        reached[specific.digest] = None
        waiting += [(specific, other) for other in specific.below.values()]
    return reached
