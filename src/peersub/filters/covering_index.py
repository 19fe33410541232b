"""Finding coverers among many filters without asking all of them.

The index keeps filters by their digests. Few are simply asked one by one; for many a `Lookup`, by
what the filters demand, names the candidates, each of which is then asked by itself. Filters of
different languages only meet where one of them matches nothing or everything. No result depends on
the order of a set: candidates are visited in the order of insertion or of their digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from peersub.filters.boxes import Path
from peersub.filters.covering_lookup import Lookup
from peersub.filters.summary import Subject, Summary

__all__ = ["CoveringIndex", "Subject", "Summary"]

SCAN_MAX: Final = 8
"""Filters up to which asking each is cheaper than looking up."""

Node = TypeVar("Node", bound=Summary)


class CoveringIndex(Generic[Node]):
    """Some filters, by their digests, with the look-ups that covering and matching need."""

    __slots__ = ("_lookup", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[bytes, Node] = {}
        self._lookup: Lookup[Node] | None = None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __contains__(self, digest: bytes) -> bool:
        return digest in self.nodes

    def add(self, node: Node) -> None:
        """Put a filter in; it must not be there."""
        assert node.digest not in self.nodes
        self.nodes[node.digest] = node
        if self._lookup is not None:
            self._lookup.add(node)
        elif len(self.nodes) > SCAN_MAX:
            self._lookup = Lookup()
            for known in self.nodes.values():
                self._lookup.add(known)

    def discard(self, node: Node) -> None:
        """Take a filter out; it must be there."""
        del self.nodes[node.digest]
        if not self.nodes:
            self._lookup = None
        elif self._lookup is not None:
            self._lookup.discard(node)

    def coverer(self, specific: Summary) -> Node | None:
        """A filter that covers the given one, which itself is not in the index."""
        candidates = self.possible_coverers(specific)
        return next((node for node in candidates if node.covers(specific)), None)

    def coverers(self, specific: Summary) -> list[Node]:
        """All the filters that cover the given one."""
        return [node for node in self.possible_coverers(specific) if node.covers(specific)]

    def covered(self, general: Summary) -> list[Node]:
        """All the filters that the given one covers."""
        return [node for node in self.possibly_covered(general) if general.covers(node)]

    def possible_coverers(self, specific: Summary, asked_max: int | None = None) -> Iterable[Node]:
        """Among which are all that cover the given one; of many only about so many."""
        if self._lookup is None or specific.is_nothing:
            return self.nodes.values()
        return self._lookup.possible_coverers(specific, asked_max)

    def possibly_covered(self, general: Summary, asked_max: int | None = None) -> Iterable[Node]:
        """Among which are all that it covers; of many only about so many."""
        if self._lookup is None or general.is_everything:
            return self.nodes.values()
        return self._lookup.possibly_covered(general, asked_max)

    def matching(self, subject: Subject) -> Iterator[Node]:
        """The filters that match the event."""
        if self._lookup is None:
            candidates: Iterable[Node] = self.nodes.values()
        else:
            candidates = self._lookup.reached(subject)
        return (node for node in candidates if subject.is_matched_by(node.filter))

    def matching_only(self, paths: Iterable[Path]) -> list[Node]:
        """A superset of the filters that match an event which has no attributes but these."""
        if self._lookup is None:
            return list(self.nodes.values())
        return list(self._lookup.at_paths(paths))
