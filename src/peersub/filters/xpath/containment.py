"""Containment of patterns by homomorphism: sound, polynomial, nearly complete with distances.

The general pattern contains the specific one if its nodes map to the specific one's such that
labels and conditions are implied, a child goes to a child and a descendant to something below.
That is the plain homomorphism (Miklau and Suciu, J. ACM 2004); it misses cases where
`*` and `//` meet.

Distance edges find most of those. In the general pattern, a chain of `*` nodes without
conditions and with one branch each becomes one edge that says how far apart its ends are:
exactly so many steps, or at least so many if a `//` is among them. A `*` leaf without
conditions at some distance asks only for a path that is long enough. Both patterns hang below a
node that stands for the document.

Plain homomorphisms compose, so what they prove is transitive; distance edges are so almost always.
"""

from __future__ import annotations

from typing import NamedTuple

from peersub.filters.xpath.pattern import PatternNode

__all__ = ["General", "Specific", "covers_by_distance", "covers_by_homomorphism", "maps_into"]


class _Edge(NamedTuple):
    """From a node of the general pattern to one below it."""

    steps: int
    is_exact: bool
    child: int
    is_free: bool
    """Whether the child asks for nothing but to be there."""


class General:
    """A pattern prepared as the containing one. Node 0 is the document."""

    __slots__ = ("edges", "labels", "nodes")

    def __init__(self, pattern: PatternNode, *, with_distances: bool) -> None:
        self.nodes: list[PatternNode | None] = [None]
        self.edges: list[list[_Edge]] = [[]]
        self.labels: set[str] = set()
        self._add_edge(0, pattern, with_distances)

    def _add_edge(self, parent: int, branch: PatternNode, with_distances: bool) -> None:
        steps, is_exact, node = 1, not branch.is_descendant, branch
        while with_distances and len(node.branches) == 1 and node.is_plain_wildcard:
            (node,) = node.branches
            steps, is_exact = steps + 1, is_exact and not node.is_descendant
        place = len(self.nodes)
        self.nodes.append(node)
        self.edges.append([])
        if node.label is not None:
            self.labels.add(node.label)
        is_free = with_distances and not node.branches and node.is_plain_wildcard
        self.edges[parent].append(_Edge(steps, is_exact, place, is_free))
        for below in node.branches:
            self._add_edge(place, below, with_distances)


class Specific:
    """A pattern prepared as the contained one: its nodes in preorder. Node 0 is the document."""

    __slots__ = ("depths", "ends", "heights", "labels", "nodes", "runs")

    def __init__(self, pattern: PatternNode) -> None:
        self.nodes: list[PatternNode | None] = [None]
        self.ends = [0]
        self.depths = [0]
        self.heights = [0]
        self.runs = [0]
        self.labels: set[str] = set()
        self.heights[0] = 1 + self._add(pattern, 1, 0)
        self.ends[0] = len(self.nodes)

    def _add(self, node: PatternNode, depth: int, run: int) -> int:
        """Append a node and what is below it; the steps of the longest path below it."""
        place = len(self.nodes)
        # Child steps in a row that lead to the node: the length of the exactly known path above.
        run = 0 if node.is_descendant else run + 1
        self.nodes.append(node)
        self.depths.append(depth)
        self.runs.append(run)
        self.ends.append(0)
        self.heights.append(0)
        if node.label is not None:
            self.labels.add(node.label)
        height = max((1 + self._add(branch, depth + 1, run) for branch in node.branches), default=0)
        self.heights[place] = height
        self.ends[place] = len(self.nodes)
        return height


def maps_into(general: General, specific: Specific) -> bool:
    """Whether a homomorphism from the general to the specific pattern exists."""
    return general.labels <= specific.labels and _Search(general, specific).maps(0, 0)


class _Search:
    """Which node of the general pattern can map to which of the specific one."""

    __slots__ = ("general", "known", "specific")

    def __init__(self, general: General, specific: Specific) -> None:
        self.general = general
        self.specific = specific
        self.known: dict[tuple[int, int], bool] = {}

    def maps(self, node: int, image: int) -> bool:
        """Whether the node, with all below it, can map to the image."""
        known = self.known.get((node, image))
        if known is None:
            known = self._fits(node, image) and all(
                self._edge_maps(edge, image) for edge in self.general.edges[node]
            )
            self.known[node, image] = known
        return known

    def _fits(self, node: int, image: int) -> bool:
        wanted, given = self.general.nodes[node], self.specific.nodes[image]
        if wanted is None or given is None:
            return wanted is given
        if wanted.label is not None and wanted.label != given.label:
            return False
        return not wanted.has_conditions or wanted.conditions_cover(given)

    def _edge_maps(self, edge: _Edge, image: int) -> bool:
        steps, is_exact, child, is_free = edge
        specific = self.specific
        if specific.heights[image] < steps:
            return False
        if is_free:
            # On a path that is long enough some element lies at the very distance.
            return True
        nearest = specific.depths[image] + steps
        for place in range(image + 1, specific.ends[image]):
            depth = specific.depths[place]
            if (
                (depth == nearest and specific.runs[place] >= steps)
                if is_exact
                else depth >= nearest
            ) and self.maps(child, place):
                return True
        return False


def covers_by_homomorphism(general: PatternNode, specific: PatternNode) -> bool:
    """Each document that matches the specific pattern matches the general one; plainly."""
    return maps_into(General(general, with_distances=False), Specific(specific))


def covers_by_distance(general: PatternNode, specific: PatternNode) -> bool:
    """Each document that matches the specific pattern matches the general one; by distances."""
    return maps_into(General(general, with_distances=True), Specific(specific))
