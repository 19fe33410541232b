"""The directory: per layer a few who are its members; the first one is the same at every node.

It holds the stewards that announced themselves to everybody. Nodes that become neighbours on the
layer of everybody exchange what they know, and pass on what is new to them, so that parts that grow
together know the same. A line that turns out to be wrong is taken out where it was used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from peersub.overlays.core.identity import PeerId
from peersub.overlays.dag.messages import Entry, Label

__all__ = ["CONTACTS_MAX", "ENTRIES_TOLD_MAX", "Directory"]

CONTACTS_MAX: Final = 4
"""Members known of one layer: those of the largest labels."""
GONE_MAX: Final = 4_096
"""Members that have left layers and are remembered for that."""
ENTRIES_TOLD_MAX: Final = 256
"""Lines in one message."""


class Directory:
    """Who can be asked about a layer."""

    __slots__ = ("_digest", "_gone", "_layers", "_layers_max")

    def __init__(self, layers_max: int) -> None:
        self._layers: dict[str, tuple[Label, ...]] = {}
        self._layers_max = layers_max
        self._gone: dict[tuple[str, PeerId], int] = {}
        """Members that have left, and the last stamp that is void; old news may still be around."""
        self._digest: bytes | None = None

    def __contains__(self, layer: str) -> bool:
        return layer in self._layers

    def __len__(self) -> int:
        return len(self._layers)

    def labels(self, layer: str) -> tuple[Label, ...]:
        """The lines about a layer, the largest label first."""
        return self._layers.get(layer, ())

    def contacts(self, layer: str) -> list[PeerId]:
        """Members of a layer, the likeliest first."""
        return [label.steward for label in self._layers.get(layer, ())]

    def lists(self, layer: str, peer: PeerId) -> bool:
        """Whether others would turn to this one."""
        return any(label.steward == peer for label in self._layers.get(layer, ()))

    def copy(self, other: Directory) -> None:
        """Know what another one does."""
        self._layers = dict(other._layers)
        self._digest = None

    def note(self, entry: Entry) -> bool:
        """Add a line; whether it is new, and kept. A steward has one line, its largest."""
        labels = self._layers.get(entry.layer, ())
        if entry.label.stamp <= self.last_void(entry.layer, entry.label.steward):
            return False
        if not labels and len(self._layers) >= self._layers_max:
            return False
        for label in labels:
            if label.steward == entry.label.steward:
                if label.stamp >= entry.label.stamp:
                    return False
                labels = tuple(each for each in labels if each is not label)
                break
        kept = tuple(sorted((*labels, entry.label), reverse=True)[:CONTACTS_MAX])
        if entry.label not in kept:
            return False
        self._layers[entry.layer] = kept
        self._digest = None
        return True

    def last_void(self, layer: str, steward: PeerId) -> int:
        """The stamp up to which nothing holds any more that was said of a member."""
        return self._gone.get((layer, steward), 0)

    def withdraw(self, layer: str, label: Label) -> None:
        """Take out one who has left, for good."""
        self.forget(layer, label.steward)
        place = (layer, label.steward)
        self._gone[place] = max(self._gone.pop(place, 0), label.stamp)
        while len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]

    def forget(self, layer: str, peer: PeerId) -> bool:
        """Take out one who is no member, or gone; whether that is news."""
        labels = self._layers.get(layer, ())
        kept = tuple(label for label in labels if label.steward != peer)
        if len(kept) == len(labels):
            return False
        if kept:
            self._layers[layer] = kept
        else:
            del self._layers[layer]
        self._digest = None
        return True

    def entries(self) -> Iterator[Entry]:
        """All lines, by layer."""
        for layer in sorted(self._layers):
            for label in self._layers[layer]:
                yield Entry(layer, label)

    @property
    def digest(self) -> bytes:
        """Differs if the lines do."""
        if self._digest is None:
            content = hashlib.blake2b(digest_size=16)
            for layer, (stamp, steward) in self.entries():
                line = "\0".join((layer, str(stamp), *map(str, steward)))
                content.update(line.encode("utf-8", "surrogatepass"))
                content.update(b"\n")
            self._digest = content.digest()
        return self._digest
