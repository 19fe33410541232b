"""The containment tree as a plan: the canonical tree of `structure`, and the ways of events in it.

A publication begins at the first member of its node that matches it. If none does it climbs from
the node's keeper: below the first member of the node, or below the crown where the node has none.

Sibling lists change who passes an event on to whom, not who receives it; a plan has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from peersub.overlays.bulk import MemberTree, Plan, Receipts, Sets, Subscriptions
from peersub.overlays.bulk_building import no_keys, subscriptions_needed
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.containment.structure import Classes
from peersub.overlays.containment.tree_arrays import TreeArrays, class_parents, seated
from peersub.overlays.semantic.bulk_members import Passages, hosted, member_plan, routed
from peersub.overlays.semantic.sample import SharedSample
from peersub.overlays.settings import SettingsError

__all__ = ["FIRST_SLOT", "Router", "check", "needs_subscriptions", "plan", "route", "tree_plan"]

FIRST_SLOT = 2
"""The slot of a node's first member: the keeper has the one before."""


def needs_subscriptions(settings: ContainmentSettings) -> bool:
    """Always: who is above whom depends on nothing else."""
    return True


def check(settings: ContainmentSettings) -> None:
    """Whether a plan can have these settings.

    Raises:
        SettingsError: it cannot.
    """
    if settings.sibling_threshold:
        raise SettingsError("plans have no sibling lists: leave sibling_threshold at 0")


def plan(
    nodes: Sequence[str],
    seed: int,
    settings: ContainmentSettings,
    *,
    keys: Sequence[int] | None = None,
    subscriptions: Subscriptions | None = None,
) -> Plan:
    """The canonical tree of a few thousand members at most: filters are compared one by one."""
    no_keys("containment", keys)
    check(settings)
    members, filters = hosted(
        nodes, subscriptions_needed("containment", subscriptions), FIRST_SLOT
    )
    found = Classes.among(filters)
    counts = None
    if settings.rule == "selectivity":
        sample = SharedSample(settings.sampling)
        counts = np.array([sample.matches_in_sample(each) or 0 for each in found.filters])
    by_digest = sorted(range(len(found.filters)), key=lambda each: found.filters[each].digest)
    ranks = np.empty(len(by_digest), np.int64)
    ranks[by_digest] = np.arange(len(by_digest))
    parents, _ = class_parents(
        np.cumsum([0, *map(len, found.containers)]),
        np.array([each for some in found.containers for each in some], np.int64),
        ranks,
        counts,
    )
    tree = MemberTree(
        members=members,
        classes=np.array(found.of, np.int32),
        parents=parents,
        ranks=ranks,
        equal_degree=settings.equal_degree,
        top_degree=settings.top_degree,
    )
    return tree_plan(nodes, tree)


def tree_plan(nodes: Sequence[str], tree: MemberTree) -> Plan:
    """The plan of a tree whose parents are known."""
    return member_plan("containment", nodes, tree)


def route(
    plan: Plan, publishers: np.ndarray, interested: Sets, wanted: Sets
) -> Iterator[Receipts]:
    """Route events; those who are interested are members."""
    return routed(Router(plan), [""] * len(publishers), publishers, interested)


class Router:
    """A plan, prepared for events."""

    def __init__(self, plan: Plan) -> None:
        tree = plan.sources
        assert isinstance(tree, MemberTree)
        self.members = tree.members
        self.nodes = len(plan.names)
        self._tree: TreeArrays | None = None
        if len(tree.members):
            self._tree = seated(
                tree.members.nodes,
                tree.classes,
                tree.parents,
                tree.ranks,
                equal_degree=tree.equal_degree,
                top_degree=tree.top_degree,
            )
        self._firsts = np.full(self.nodes, -1, np.int64)
        # In an assignment the last one wins: the first member of each node.
        self._firsts[tree.members.nodes[::-1]] = np.arange(len(tree.members))[::-1]

    def passages(self, event_id: str, publisher: int, matching: np.ndarray) -> Passages:
        """How an event comes to the members that receive it."""
        tree = self._tree
        if tree is None:
            return Passages.none()
        own = matching[self.members.nodes[matching] == publisher]
        entry = int(own.min()) if len(own) else int(self._firsts[publisher])
        if entry >= 0:
            return tree.passages(entry, 0, matching)
        return tree.passages(int(tree.members[0]), 1, matching)
