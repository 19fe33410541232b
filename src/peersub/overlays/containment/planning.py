"""Plans of containment trees with very many members, and the ways of events over them.

The parents of classes come from whoever has compared the filters; `bulk` makes the same plan from
the filters themselves, and follows events hop by hop, for networks that are not so large.

A publication begins at the first member of its node that matches it. If none does it climbs from
the node's keeper: below the first member of the node, or below the crown where the node has none.

Sibling lists change who passes an event on to whom, not who receives it; a plan has none of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peersub.overlays.bulk import MemberTree, Plan
from peersub.overlays.containment.settings import ContainmentSettings
from peersub.overlays.containment.tree_arrays import TreeArrays, seated
from peersub.overlays.semantic.bulk_members import Passages, member_plan
from peersub.overlays.settings import SettingsError

__all__ = [
    "FIRST_SLOT",
    "TreeRouter",
    "check",
    "router",
    "tree_plan",
]

FIRST_SLOT = 2
"""The slot of a node's first member: the keeper has the one before."""


def check(settings: ContainmentSettings) -> None:
    """Whether a plan can have these settings.

    Raises:
        SettingsError: it cannot.
    """
    if settings.sibling_threshold:
        raise SettingsError("plans have no sibling lists: leave sibling_threshold at 0")


def tree_plan(nodes: Sequence[str], tree: MemberTree) -> Plan:
    """The plan of a tree whose parents are known."""
    return member_plan("containment", nodes, tree)


def router(plan: Plan, seed: int, settings: ContainmentSettings) -> TreeRouter:
    """The plan, prepared for events."""
    return TreeRouter(plan)


class TreeRouter:
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
