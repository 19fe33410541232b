"""Sequential joins to the containment tree, without a simulator: the tree, and what it costs.

One member joins after the other, each when all is quiet (section 5 of the paper builds its networks
so). What the protocol then does depends on classes, their containers and numbers alone, so it is
played on integers: 20,000 joins take seconds once the containers are known.

Messages, as the protocol sends them (`Messages`); members are taken to be on different nodes:

* `joins`: the request goes to a contact, any member, and climbs from there to the crown.
* `probes`: from the crown over all TOP edges, and from each class root that strictly contains the
  newcomer to all class roots right below it: one for each who is asked, but for the crown.
* `answers`: from each who is asked the best of what it found, once those below have answered.
* `attachments`: the request to the chosen one, its way down where a bounded tree passes it on, and
  one acceptance.
* `reorganisations`: who is asked whether the newcomer is its better parent, and the way of that
  question to where it starts.
* `moves`: request, acceptance and good-bye; and the attachments of those below a top-level root
  that leaves the top level, to whom stood above it.

What members tell those below them about their ancestors comes on top: at most one message for each
member within three levels below one that attaches or moves.

Reorganisation, after a newcomer has founded a class:

* "never";
* "local": its siblings only, in the paper's Figure 2;
* "always": the question goes down from the crown to all, and stops at who is contained in the
  newcomer, since below there everybody has a better parent already. Who moves takes along all below
  it, and each of those that is deeper then asks the same; those who lost depth let the ones
  below them join again. This ends, because what is best for a class depends only on classes that
  contain it; with ties by digest it ends with the canonical tree of `structure`.
* "sometimes": as always, but after a share of the joins ("10 %" read as joins);
* "periodic": never, but from time to time a share of the class roots join anew ("10 %" read as
  peers; this mends the tree also after somebody has left).

A class moves if that is better: to a container that is deeper, or of fewer matches and then deeper;
with ties by digest also to an equally good one with a smaller digest. That a parent has fewer
children is a reason to join it, but none to move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields
from math import ceil
from typing import Literal

from peersub.overlays.containment.structure import (
    Classes,
    EdgeKind,
    ParentRule,
    TreeShape,
    level_in_bounded_tree,
    place_above,
)
from peersub.overlays.core.draws import draw_below, draw_share

__all__ = ["BuildSettings", "Building", "Messages", "Reorganisation", "Ties"]

Reorganisation = Literal["never", "local", "always", "sometimes", "periodic"]
Ties = Literal["children", "digest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """How members join.

    Args:
        rule: which container is the parent.
        reorganisation: what others do about a newcomer.
        ties: what decides between parents of one depth: who has fewer children, or the digest.
        share: of the joins ("sometimes") or of the class roots ("periodic").
        period_growth: by how much the network grows from one time at which class roots join anew to
            the next, as a share of it: so a join costs no more in a large network than in a small.
        equal_degree: members of a class right below one of them, at most.
        top_degree: top-level roots right below one of them, at most.
        seed: of the keyed draws.
    """

    rule: ParentRule = "depth"
    reorganisation: Reorganisation = "never"
    ties: Ties = "children"
    share: float = 0.1
    period_growth: float = 0.1
    equal_degree: int = 4
    top_degree: int = 4
    seed: int = 1


@dataclass(slots=True)
class Messages:
    """How many were sent, by purpose."""

    joins: int = 0
    probes: int = 0
    answers: int = 0
    attachments: int = 0
    reorganisations: int = 0
    moves: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(astuple(self))

    def minus(self, earlier: Messages) -> Messages:
        """What came since then."""
        return Messages(
            *(getattr(self, each.name) - getattr(earlier, each.name) for each in fields(self))
        )


@dataclass(slots=True)
class _TopTree:
    """The bounded tree of the top-level class roots, out of which one may move."""

    degree: int
    crown: int = -1
    above: dict[int, int] = field(default_factory=dict)
    below: dict[int, list[int]] = field(default_factory=dict)
    passed_on: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.below)

    def add(self, number: int) -> int:
        """Take a root in; how many messages that takes."""
        self.below[number], self.passed_on[number] = [], 0
        if self.crown < 0:
            self.crown, self.above[number] = number, -1
            return 0
        return self._attach(number, self.crown)

    def _attach(self, number: int, at: int) -> int:
        requests = 1
        while len(self.below[at]) >= self.degree:
            turn = self.passed_on[at]
            self.passed_on[at] += 1
            at = self.below[at][turn % self.degree]
            requests += 1
        self.below[at].append(number)
        self.above[number] = at
        return requests + 1

    def remove(self, number: int) -> int:
        """Let a root go; those below it attach where it stood. How many messages that takes.

        Where the crown stood, the first one below it takes its place.
        """
        orphans, above = self.below.pop(number), self.above.pop(number)
        del self.passed_on[number]
        if above >= 0:
            self.below[above].remove(number)
        elif orphans:
            above = self.crown = orphans.pop(0)
            self.above[above] = -1
        else:
            self.crown = -1
        return sum(self._attach(orphan, above) for orphan in orphans)

    def level(self, number: int) -> int:
        """Edges from a root up to the crown."""
        levels = 0
        while number != self.crown:
            number, levels = self.above[number], levels + 1
        return levels


class Building:
    """A network that grows. Members are numbered as they join; classes as in `Classes`.

    Attributes:
        size: how many have joined.
        parents: per class the one above it; -1 at the top level, and where nobody has joined yet.
        depths: per class; 0 where nobody has joined yet.
        below: per class the classes right below it.
        sizes: per class its members.
        messages: sent so far.
    """

    def __init__(
        self, classes: Classes, settings: BuildSettings, counts: Sequence[int] | None = None
    ) -> None:
        if settings.rule == "selectivity" and counts is None:
            raise ValueError("the rule of selectivity needs counts of a sample")
        self.settings = settings
        self.size = 0
        self.messages = Messages()
        self._classes = classes
        self._digests = [wanted.digest for wanted in classes.filters]
        count = len(classes.filters)
        is_selective = settings.rule == "selectivity" and counts is not None
        self._counts: Sequence[int] = counts if is_selective and counts else [0] * count
        self._contained: list[list[int]] = [[] for _ in range(count)]
        for number, above in enumerate(classes.containers):
            for container in above:
                self._contained[container].append(number)
        self.parents = [-1] * count
        self.depths = [0] * count
        self.below: list[dict[int, None]] = [{} for _ in range(count)]
        self.sizes = [0] * count
        self._places: list[int] = []
        self._present = 0
        self._next_period = 1
        self._top = _TopTree(settings.top_degree)

    # --- joins ---------------------------------------------------------------------------------

    def join(self) -> None:
        """Let the next member join."""
        settings, member = self.settings, self.size
        number = self._classes.of[member]
        if member:
            contact = draw_below(member, settings.seed, "contact", member)
            self.messages.joins += 1 + self._level_of_member(contact)
            self._probe(number)
        self._places.append(self.sizes[number])
        self.size += 1
        self.sizes[number] += 1
        if self.sizes[number] > 1:
            place = self.sizes[number] - 1
            level = level_in_bounded_tree(place, settings.equal_degree)
            self.messages.attachments += level + 1
        else:
            self._found(number)
        if settings.reorganisation == "periodic" and self.size >= self._next_period:
            self._join_anew()
            self._next_period = max(self.size + 1, ceil(self.size * (1 + settings.period_growth)))

    def grow(self, size: int) -> None:
        """Let members join until there are so many."""
        while self.size < size:
            self.join()

    def _found(self, number: int) -> None:
        """Place a class whose first member has come."""
        self._present += 1
        best = self._best(number)
        if best < 0:
            self.messages.attachments += self._top.add(number)
        else:
            self.messages.attachments += 2
            self.parents[number] = best
            self.below[best][number] = None
        self.depths[number] = self.depths[best] + 1 if best >= 0 else 1
        settings = self.settings
        if settings.reorganisation == "local":
            self._reorganise_siblings(number)
        elif settings.reorganisation == "always" or (
            settings.reorganisation == "sometimes"
            and draw_share(settings.seed, "reorganise", self.size) < settings.share
        ):
            self._reorganise(number)

    def _probe(self, number: int) -> None:
        """Everybody at the top level is asked, and all right below a container."""
        asked = len(self._top) + sum(
            len(self.below[container])
            for container in self._classes.containers[number]
            if self.depths[container]
        )
        self.messages.probes += asked - 1
        self.messages.answers += asked

    def _best(self, number: int) -> int:
        """The container that the rule prefers; -1 if there is none."""
        counts, depths, digests = self._counts, self.depths, self._digests
        by_children = self.settings.ties == "children"
        return min(
            (each for each in self._classes.containers[number] if depths[each]),
            key=lambda each: (
                counts[each],
                -depths[each],
                len(self.below[each]) if by_children else 0,
                digests[each],
            ),
            default=-1,
        )

    def _is_better(self, container: int, parent: int) -> bool:
        """Whether it is worth a move to go from this parent to that container."""
        if parent < 0:
            return True
        new = (self._counts[container], -self.depths[container])
        old = (self._counts[parent], -self.depths[parent])
        if new != old or self.settings.ties == "children":
            return new < old
        return self._digests[container] < self._digests[parent]

    def _level_of_member(self, member: int) -> int:
        """Edges from a member up to the crown."""
        level = level_in_bounded_tree(self._places[member], self.settings.equal_degree)
        return level + self._level(self._classes.of[member])

    def _level(self, number: int) -> int:
        level = 0
        while self.parents[number] >= 0:
            number, level = self.parents[number], level + 1
        return level + self._top.level(number)

    # --- reorganisation ------------------------------------------------------------------------

    def _reorganise_siblings(self, number: int) -> None:
        """Those beside a newcomer that it contains move below it."""
        parent = self.parents[number]
        siblings = list(self.below[parent] if parent >= 0 else self._top.below)
        self.messages.reorganisations += len(siblings) - 1
        contained = set(self._contained[number])
        for sibling in siblings:
            if sibling in contained:
                self._move(sibling, number)

    def _reorganise(self, newcomer: int) -> None:
        """Ask everybody, and go on until nobody has a better parent than its own."""
        waiting = deque([(newcomer, True)])
        while waiting:
            number, is_deeper = waiting.popleft()
            moved = self._ask_all(number) if is_deeper else self._join_again(number)
            for each, gain in moved:
                if gain > 0:
                    waiting.append((each, True))
                else:
                    waiting.extend((child, False) for child in self.below[each])

    def _ask_all(self, number: int) -> list[tuple[int, int]]:
        """Whether others want this class as their parent; who changed its depth, and by how much.

        Who is contained stops the question: it has reached all but those below them.
        """
        contained = {each for each in self._contained[number] if self.depths[each]}
        nearest = [each for each in contained if self.parents[each] not in contained]
        asked = self._present - len(contained) + len(nearest)
        self.messages.reorganisations += self._level(number) + asked - 1
        changed: list[tuple[int, int]] = []
        for each in sorted(nearest):
            parent = self.parents[each]
            if parent != number and self._is_better(number, parent):
                changed += self._move(each, number)
        return changed

    def _join_again(self, number: int) -> list[tuple[int, int]]:
        """Let a class root probe again, and move if that is better; who changed its depth."""
        self.messages.joins += self._level(number)
        self._probe(number)
        best, parent = self._best(number), self.parents[number]
        if best in (-1, parent) or not self._is_better(best, parent):
            return []
        return self._move(number, best)

    def _join_anew(self) -> None:
        """A share of the class roots, drawn anew each time, joins again."""
        settings = self.settings
        for number, depth in enumerate(self.depths):
            if depth and draw_share(settings.seed, "rejoin", self.size, number) < settings.share:
                self._join_again(number)

    def _move(self, number: int, parent: int) -> list[tuple[int, int]]:
        """Let a class go below another one; whose depth changed, and by how much."""
        before = self.parents[number]
        if before < 0:
            self.messages.moves += 3 + self._top.remove(number)
        else:
            self.messages.moves += 3
            del self.below[before][number]
        self.parents[number] = parent
        self.below[parent][number] = None
        gain = self.depths[parent] + 1 - self.depths[number]
        if not gain:
            return []
        subtree = [number]
        for each in subtree:
            subtree.extend(self.below[each])
            self.depths[each] += gain
        return [(each, gain) for each in subtree]

    # --- what has become of it -----------------------------------------------------------------

    def shape(self) -> TreeShape:
        """The tree of all members that have joined."""
        roots: dict[int, list[int]] = {}
        parents, kinds, root_of = [], [], []
        for member, number in enumerate(self._classes.of[: self.size]):
            own = roots.setdefault(number, [])
            own.append(member)
            root_of.append(own[0])
            kind = EdgeKind.EQUAL
            if len(own) > 1:
                above = own[place_above(len(own) - 1, self.settings.equal_degree)]
            else:
                # The one above may join later, and is known only then.
                above, kind = -1, EdgeKind.CROWN
            parents.append(above)
            kinds.append(kind)
        for number, own in roots.items():
            if self.parents[number] >= 0:
                parents[own[0]] = roots[self.parents[number]][0]
                kinds[own[0]] = EdgeKind.CHILD
            elif number != self._top.crown:
                parents[own[0]] = roots[self._top.above[number]][0]
                kinds[own[0]] = EdgeKind.TOP
        return TreeShape.of(parents, kinds, root_of)
