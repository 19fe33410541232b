"""Sequential joins on integers against joins that walk a tree of filters, message by message."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overlays.containment.test_structure import containers_of, events, wishes
from peersub.filters.filter import Filter
from peersub.overlays.containment.building import Building, BuildSettings, Messages
from peersub.overlays.containment.structure import (
    Classes,
    EdgeKind,
    canonical_parents,
    contains,
    predicted_receivers,
    route,
)
from peersub.overlays.core.draws import draw_below, draw_share
from strategies import examples

VARIANTS = ("never", "local", "always", "sometimes", "periodic")
ALL = list(product(VARIANTS, ("depth", "selectivity"), ("children", "digest")))


def matches_of(wanted: Filter) -> int:
    return sum(map(wanted.matches, events))  # type: ignore[arg-type]


@dataclass(eq=False)
class NaiveRoot:
    """A class root that knows its neighbours, and nothing else."""

    wanted: Filter
    parent: NaiveRoot | None = None
    children: list[NaiveRoot] = field(default_factory=list)
    members: int = 1

    @property
    def depth(self) -> int:
        return 1 if self.parent is None else 1 + self.parent.depth

    @property
    def subtree(self) -> list[NaiveRoot]:
        return [self, *(one for child in self.children for one in child.subtree)]


class NaiveNetwork:
    """Walks the tree for every question."""

    def __init__(self, settings: BuildSettings) -> None:
        self.settings = settings
        self.top: list[NaiveRoot] = []
        self.roots: list[NaiveRoot] = []
        self.messages = Messages()

    def key(self, root: NaiveRoot) -> tuple[int, int]:
        is_selective = self.settings.rule == "selectivity"
        return (matches_of(root.wanted) if is_selective else 0, -root.depth)

    def full_key(self, root: NaiveRoot) -> tuple[int, int, int, bytes]:
        children = len(root.children) if self.settings.ties == "children" else 0
        return (*self.key(root), children, root.wanted.digest)

    def probe(self, wanted: Filter) -> tuple[NaiveRoot | None, NaiveRoot | None]:
        """An equal root, or the best container."""
        equal: NaiveRoot | None = None
        found: list[NaiveRoot] = []
        asked, waiting = 0, list(self.top)
        while waiting:
            root = waiting.pop()
            asked += 1
            if contains(root.wanted, wanted):
                if contains(wanted, root.wanted):
                    equal = root
                else:
                    found.append(root)
                    waiting += root.children
        self.messages.probes += asked - 1
        self.messages.answers += asked
        return equal, min(found, key=self.full_key, default=None)

    def join(self, wanted: Filter) -> None:
        if not self.roots:
            self.top.append(NaiveRoot(wanted))
            self.roots.append(self.top[0])
            return
        equal, best = self.probe(wanted)
        if equal is not None:
            equal.members += 1
            return
        newcomer = NaiveRoot(wanted, best)
        (self.top if best is None else best.children).append(newcomer)
        self.roots.append(newcomer)
        how = self.settings.reorganisation
        if how == "local":
            siblings = list(self.top if best is None else best.children)
            self.messages.reorganisations += len(siblings) - 1
            for sibling in siblings:
                if sibling is not newcomer and contains(wanted, sibling.wanted):
                    self.move(sibling, newcomer)
        elif how == "always":
            self.settle()

    def settle(self) -> None:
        """Until nobody has a better parent: any order of moves leads to the same end."""
        moved = True
        while moved:
            moved = False
            for root in self.roots:
                above = [
                    one
                    for one in self.roots
                    if contains(one.wanted, root.wanted) and not contains(root.wanted, one.wanted)
                ]
                best = min(above, key=self.full_key, default=None)
                if best is not None and self.is_better(best, root.parent):
                    self.move(root, best)
                    moved = True

    def is_better(self, container: NaiveRoot, parent: NaiveRoot | None) -> bool:
        if parent is None:
            return True
        if self.settings.ties == "digest":
            return self.full_key(container) < self.full_key(parent)
        return self.key(container) < self.key(parent)

    def move(self, root: NaiveRoot, parent: NaiveRoot) -> None:
        (self.top if root.parent is None else root.parent.children).remove(root)
        parent.children.append(root)
        root.parent = parent

    def rejoin(self, size: int) -> None:
        for number, root in enumerate(self.roots):
            draw = draw_share(self.settings.seed, "rejoin", size, number)
            if draw < self.settings.share:
                _, best = self.probe(root.wanted)
                if best is not None and self.is_better(best, root.parent):
                    self.move(root, best)

    def edges(self) -> list[int]:
        return [-1 if one.parent is None else self.roots.index(one.parent) for one in self.roots]


def built(filters: list[Filter], settings: BuildSettings) -> Building:
    classes = Classes.among(filters)
    building = Building(classes, settings, [matches_of(one) for one in classes.filters])
    building.grow(len(filters))
    return building


patterned = st.lists(wishes, min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("how", "rule", "ties"),
    # A walk to the end mends also what earlier newcomers left as it was ("sometimes"), and who has
    # fewer children when depends on the order of moves ("always"): those are judged below.
    [each for each in ALL if each[0] != "sometimes" and each[::2] != ("always", "children")],
)
@examples(20)
@given(filters=patterned, seed=st.integers(0, 99))
def test_the_tree_and_the_probes_are_those_of_a_walk(
    how: str, rule: str, ties: str, filters: list[Filter], seed: int
) -> None:
    settings = BuildSettings(
        rule=rule,  # type: ignore[arg-type]
        reorganisation=how,  # type: ignore[arg-type]
        ties=ties,  # type: ignore[arg-type]
        share=0.4,
        period_growth=0.25,
        seed=seed,
    )
    naive = NaiveNetwork(settings)
    building = Building(
        Classes.among(filters),
        settings,
        [matches_of(one) for one in Classes.among(filters).filters],
    )
    for number, wanted in enumerate(filters, 1):
        naive.join(wanted)
        if how == "periodic" and number in (1, 2, 3, 4, 5, 7, 9, 12, 15, 19):
            naive.rejoin(number)
        building.join()
        present = len(naive.roots)
        assert building.parents[:present] == naive.edges()
        assert building.depths[:present] == [root.depth for root in naive.roots]
        assert building.sizes[:present] == [root.members for root in naive.roots]
        assert [len(each) for each in building.below[:present]] == [
            len(root.children) for root in naive.roots
        ]
    if how != "always":
        assert building.messages.probes == naive.messages.probes
        assert building.messages.answers == naive.messages.answers
        assert building.messages.reorganisations == naive.messages.reorganisations


@pytest.mark.parametrize("rule", ["depth", "selectivity"])
@examples(60)
@given(filters=patterned)
def test_always_with_ties_by_digest_ends_with_the_canonical_tree(
    rule: str, filters: list[Filter]
) -> None:
    settings = BuildSettings(rule=rule, reorganisation="always", ties="digest")  # type: ignore[arg-type]
    building = built(filters, settings)
    classes = Classes.among(filters)
    counts = [matches_of(one) for one in classes.filters] if rule == "selectivity" else None
    digests = [one.digest for one in classes.filters]
    parents, depths = canonical_parents(classes.containers, digests, counts)
    assert (building.parents, building.depths) == (parents, depths)


label_sets = st.lists(st.frozensets(st.integers(0, 6), max_size=5), min_size=1, unique=True)


@pytest.mark.parametrize("rule", ["depth", "selectivity"])
@examples(200)
@given(sets=label_sets, sample=st.lists(st.frozensets(st.integers(0, 6), min_size=4), max_size=3))
@example(
    # Here {1, 2, 3} moves to a shallower parent, and who is below it finds a deeper one.
    sets=[
        frozenset(each) for each in ([1, 2, 3], [0, 1, 2], [0, 1, 2, 3], [1], [], [1, 3], [2, 3])
    ],
    sample=[frozenset({0, 1, 2, 3}), frozenset({0, 1, 3}), frozenset({0, 1, 2, 3})],
)
def test_always_ends_with_the_canonical_tree_in_any_order(
    rule: str, sets: list[frozenset[int]], sample: list[frozenset[int]]
) -> None:
    """Wishes for sets of labels: who wants less contains who wants more. Counts are often equal."""
    filters = tuple(Filter(f"x = {number}") for number in range(len(sets)))
    containers = tuple(tuple(containers_of(sets)[number]) for number in range(len(sets)))
    classes = Classes(tuple(range(len(sets))), filters, containers)
    counts = [sum(own <= event for event in sample) for own in sets]
    settings = BuildSettings(rule=rule, reorganisation="always", ties="digest")  # type: ignore[arg-type]
    building = Building(classes, settings, counts)
    building.grow(len(sets))
    expected = canonical_parents(
        containers, [one.digest for one in filters], counts if rule == "selectivity" else None
    )
    assert (building.parents, building.depths) == expected


@pytest.mark.parametrize("rule", ["depth", "selectivity"])
@examples(40)
@given(filters=patterned)
def test_always_leaves_nobody_with_a_better_parent(rule: str, filters: list[Filter]) -> None:
    settings = BuildSettings(rule=rule, reorganisation="always")  # type: ignore[arg-type]
    building = built(filters, settings)
    classes = Classes.among(filters)

    def key(number: int) -> tuple[int, int]:
        is_selective = rule == "selectivity"
        count = matches_of(classes.filters[number]) if is_selective else 0
        return count, -building.depths[number]

    for number, above in enumerate(classes.containers):
        if above:
            assert key(building.parents[number]) == min(map(key, above))
        else:
            assert building.parents[number] == -1


@pytest.mark.parametrize(("how", "rule", "ties"), ALL)
@examples(10)
@given(filters=patterned, data=st.data())
def test_the_shape_is_a_tree_in_which_nobody_misses_anything(
    how: str, rule: str, ties: str, filters: list[Filter], data: st.DataObject
) -> None:
    settings = BuildSettings(
        rule=rule,  # type: ignore[arg-type]
        reorganisation=how,  # type: ignore[arg-type]
        ties=ties,  # type: ignore[arg-type]
        period_growth=0.2,
        share=0.5,
        equal_degree=2,
        top_degree=2,
    )
    shape = built(filters, settings).shape()
    assert sum(kind is EdgeKind.CROWN for kind in shape.kinds) == 1
    for of_kind in (EdgeKind.EQUAL, EdgeKind.TOP):
        for below in shape.below:
            assert sum(shape.kinds[each] is of_kind for each in below) <= 2
    event = data.draw(st.sampled_from(events))
    matching = frozenset(
        number
        for number, one in enumerate(filters)
        if one.matches(event)  # type: ignore[arg-type]
    )
    publisher = data.draw(st.integers(0, len(filters) - 1))
    found = route(shape, publisher, matching)
    assert matching <= found.keys()
    assert found.keys() == predicted_receivers(shape, publisher, matching)


@pytest.mark.parametrize(("share", "as_if"), [(0.0, "never"), (1.0, "always")])
@examples(20)
@given(filters=patterned)
def test_sometimes_lies_between_never_and_always(
    share: float, as_if: str, filters: list[Filter]
) -> None:
    found = built(filters, BuildSettings(reorganisation="sometimes", share=share))
    expected = built(filters, BuildSettings(reorganisation=as_if))  # type: ignore[arg-type]
    assert found.shape() == expected.shape()
    assert found.messages == expected.messages


def test_the_messages_of_a_few_joins_counted_by_hand() -> None:
    filters = [Filter.xpath(text) for text in ("/a", "/b", "/a/c", "/a/c/d", "/a/c", "/a/*")]
    classes = Classes.among(filters)
    building = Building(classes, BuildSettings(reorganisation="local", top_degree=1))
    building.grow(2)
    # /b asks its contact /a, the crown: one request; it is asked, answers, and takes it in.
    assert building.messages == Messages(1, 0, 1, 2, 1, 0)
    building.grow(3)
    later = building.messages.minus(Messages(1, 0, 1, 2, 1, 0))
    climbed = draw_below(2, 1, "contact", 2)
    # The crown asks /b, and attaches the newcomer, which has no siblings.
    assert later == Messages(1 + climbed, 1, 2, 2, 0, 0)
    building.grow(5)
    before = Messages(**{name: getattr(building.messages, name) for name in Messages.__slots__})
    building.join()
    later = building.messages.minus(before)
    # Asked are /a, /b and, below /a, /a/c. That one is below the newcomer afterwards.
    assert (later.probes, later.answers, later.attachments) == (2, 3, 2)
    assert (later.reorganisations, later.moves) == (1, 3)
    assert building.parents == [-1, -1, 4, 2, 0]


def test_whom_a_newcomer_asks_counted_by_hand() -> None:
    texts = ["/a", "/a/b", "/a/b/c", "/d", "/a/*"]
    classes = Classes.among([Filter.xpath(text) for text in texts])
    building = Building(classes, BuildSettings(reorganisation="always"))
    building.grow(4)
    before = building.messages.reorganisations
    building.join()
    # /a/* climbs 1 edge; of five it reaches all but /a/b/c, which is below one that it contains.
    # Then /a/b and /a/b/c are deeper, and each asks all again: the first is 2 edges below the
    # crown and reaches all five, the second 3 edges.
    assert building.parents == [-1, 4, 1, -1, 0]
    assert building.messages.reorganisations - before == (1 + 3) + (2 + 4) + (3 + 4)
    assert building.messages.moves == 3


def test_a_root_that_leaves_the_top_level_hands_over_who_is_below_it() -> None:
    texts = ["/a/b", "/c", "/d", "/e", "/a"]
    classes = Classes.among([Filter.xpath(text) for text in texts])
    building = Building(classes, BuildSettings(reorganisation="always", top_degree=2))
    building.grow(5)
    shape = building.shape()
    assert shape.parents == (4, -1, 1, 1, 2)
    assert shape.kinds == (EdgeKind.CHILD, EdgeKind.CROWN, *[EdgeKind.TOP] * 3)


def test_selectivity_needs_counts() -> None:
    with pytest.raises(ValueError, match="needs counts"):
        Building(Classes.among([Filter("x > 1")]), BuildSettings(rule="selectivity"))
