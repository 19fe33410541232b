"""Modules 1 to 5 of Datta et al. 2003 as written: processors that read each other's memory.

One thing happens at a time, and whoever acts sees the variables of its neighbours as they are. It
shares no line with the protocol. What the paper has wrong can be asked for (`Literally`), so that
tests can show what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from random import Random

Pair = tuple[int, int]

WALK_STEPS_MAX = 12
"""After so many steps a request waits where it is until that processor is a sink."""


class Literally(Flag):
    """What is done as the paper writes it, where it cannot mean it."""

    NOTHING = 0
    MAXIMUM = auto()
    """R2 takes the numeric maximum of the neighbours' values."""
    VALUE_AFTER = auto()
    """`chooseid` reads the value that R2 has just assigned."""
    LONE_TURNS = auto()
    """A processor without neighbours executes R1 again and again."""
    BARE_REQUEST = auto()
    """Module 3 forwards `request val` without its origin: the sink answers the last forwarder."""
    EQUAL_LIDS = auto()
    """A link comes up between processors whose lids have become equal since it was asked for."""
    CHASES = auto()
    """A request that meets no sink walks on, however far it has come."""
    REPEATS = auto()
    """Module 5 forwards whatever it receives, as often as it receives it."""


@dataclass
class Walk:
    """A `request val` on its way to a sink (Module 3)."""

    origin: int
    at: int
    sender: int
    path: list[int] = field(default_factory=list)
    steps: int = 0
    answered: int | None = None


@dataclass
class Memory:
    """One layer: its processors, their variables, and the links that are up or forming."""

    literally: Literally = Literally.NOTHING
    val: dict[int, int] = field(default_factory=dict)
    lid: dict[int, int] = field(default_factory=dict)
    around: dict[int, list[int]] = field(default_factory=dict)
    forming: dict[int, list[int]] = field(default_factory=dict)
    local: dict[int, list[str]] = field(default_factory=dict)
    input: dict[int, list[str]] = field(default_factory=dict)
    delivered: dict[int, list[str]] = field(default_factory=dict)
    forwarded: dict[int, dict[str, None]] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    """Copies of messages, over all links."""
    refused: list[Pair] = field(default_factory=list)
    """Links that Module 4 took down: the sink, and who asked."""
    stops: Callable[[int, str], bool] = lambda _name, _message: False
    """Whether a processor that receives a message stops its propagation (section 4.2.2)."""

    # --- the graph -----------------------------------------------------------------------------

    def add(self, name: int, lid: int, val: int = 0) -> None:
        """An active processor, without links; its value is 0 by default (Module 2)."""
        self.val[name], self.lid[name] = val, lid
        for lists in (self.around, self.forming, self.local, self.input, self.delivered):
            lists[name] = []
        self.forwarded[name] = {}
        self.turns[name] = 0

    def link(self, one: int, other: int) -> None:
        """The link is up: both know of it."""
        self.around[one].append(other)
        self.around[other].append(one)

    def leave(self, name: int) -> None:
        """The neighbourhood maintenance takes the processor out of every list."""
        for table in (self.val, self.lid, self.forming, self.local, self.input, self.delivered):
            del table[name]
        del self.around[name], self.forwarded[name], self.turns[name]
        for lists in (self.around, self.forming):
            for names in lists.values():
                if name in names:
                    names.remove(name)

    def edges(self) -> list[Pair]:
        """Every link that is up, once."""
        return [(one, two) for one, names in self.around.items() for two in names if one < two]

    def points(self, q: int, p: int) -> bool:
        """q -> p (Definitions 3.1 and 3.2)."""
        val, lid = self.val, self.lid
        return val[q] == (val[p] + 1) % 3 or (val[p] == val[q] and lid[p] < lid[q])

    def sink(self, p: int) -> bool:
        """Definition 3.3."""
        return all(self.points(q, p) for q in self.around[p])

    def sinks(self) -> list[int]:
        """All sinks that have a neighbour."""
        return [p for p in self.val if self.around[p] and self.sink(p)]

    def components(self) -> list[list[int]]:
        """The processors that are connected by links, whatever their direction."""
        found: list[list[int]] = []
        seen: set[int] = set()
        for start in self.around:
            if start not in seen:
                found.append(self.reached(start))
                seen.update(found[-1])
        return found

    def reached(self, start: int) -> list[int]:
        """All processors of the component, nearest first."""
        return list(self.distances(start))

    def distances(self, start: int) -> dict[int, int]:
        """How many links away from the start each processor of its component is."""
        far = {start: 0}
        ahead = [start]
        for name in ahead:
            for other in self.around[name]:
                if other not in far:
                    far[other] = far[name] + 1
                    ahead.append(other)
        return far

    def is_acyclic(self) -> bool:
        """Whether taking away sinks leaves nothing."""
        left = {p: [q for q in self.around[p] if self.points(p, q)] for p in self.val}
        while True:
            gone = [p for p, outgoing in left.items() if not outgoing]
            if not gone:
                return not left
            for p in gone:
                del left[p]
            left = {p: [q for q in out if q in left] for p, out in left.items()}

    # --- Module 1 ------------------------------------------------------------------------------

    def reorient(self, i: int) -> None:
        """LLRO: R1 or R2, whichever applies."""
        val, lid = self.val, self.lid
        assert self.sink(i)
        around = self.around[i]
        before = val[i]
        if not around:
            if Literally.LONE_TURNS in self.literally:
                val[i] = (before + 1) % 3
            return
        if all(val[j] == before for j in around):
            val[i] = (before + 1) % 3
            return
        if Literally.MAXIMUM in self.literally:
            val[i] = max(val[j] for j in around)
        else:
            val[i] = (before + 1) % 3
        compared = val[i] if Literally.VALUE_AFTER in self.literally else before
        lid[i] = self.choose_id(i, compared)

    def choose_id(self, i: int, value: int) -> int:
        """The first identifier available, above those of neighbours whose value comes after."""
        lids = [self.lid[j] for j in self.around[i]]
        ahead = [self.lid[j] for j in self.around[i] if self.val[j] == (value + 1) % 3]
        chosen = max(ahead, default=-1) + 1
        while chosen in lids:
            chosen += 1
        return chosen

    # --- Module 3 ------------------------------------------------------------------------------

    def request(self, p: int, contact: int) -> Walk:
        """p, which has no link yet, sends `request val` to a connection point."""
        return Walk(origin=p, at=contact, sender=p)

    def walk_on(self, walk: Walk) -> bool:
        """What one processor does with the request; whether it has been answered."""
        i = walk.at
        if i not in walk.path:
            walk.path.append(i)
        if not self.sink(i):
            walk.steps += 1
            if walk.steps > WALK_STEPS_MAX and Literally.CHASES not in self.literally:
                return False
            walk.sender, walk.at = i, next(q for q in self.around[i] if self.points(i, q))
            return False
        asker = walk.sender if Literally.BARE_REQUEST in self.literally else walk.origin
        if Literally.EQUAL_LIDS not in self.literally and asker not in self.around[i]:
            taken = [self.lid[i], *(self.lid[j] for j in self.around[i])]
            while self.lid[asker] in taken:
                self.lid[asker] += 1
        self.val[asker] = (self.val[i] + 1) % 3 if self.lid[asker] < self.lid[i] else self.val[i]
        if asker not in self.around[i]:
            self.link(i, asker)
        walk.answered = asker
        for other in (name for name in walk.path if name != i):
            if asker not in (*self.forming[other], *self.around[other], other):
                self.forming[other].append(asker)
        return True

    def join(self, p: int, contact: int, meanwhile: Callable[[], object] = lambda: None) -> Walk:
        """The whole walk; whatever else goes on happens between its steps."""
        walk = self.request(p, contact)
        while not self.walk_on(walk):
            meanwhile()
        return walk

    # --- Modules 4 and 5 -----------------------------------------------------------------------

    def create_connections(self, i: int) -> None:
        """CC, executed by a sink: the links that are forming come up or go down."""
        assert self.sink(i)
        for p in self.forming[i]:
            differ = self.lid[i] != self.lid[p] or Literally.EQUAL_LIDS in self.literally
            if self.points(p, i) and differ:
                self.link(i, p)
            else:
                self.refused.append((i, p))
        self.forming[i] = []

    def publish(self, i: int, message: str) -> None:
        """Into the local buffer; it is sent when the processor is a sink."""
        self.local[i].append(message)
        if message not in self.forwarded[i]:
            self.delivered[i].append(message)

    def turn(self, i: int) -> list[str]:
        """Module 5: connections, both buffers to all neighbours, and the edges turn."""
        self.create_connections(i)
        collected = [*self.input[i], *self.local[i]]
        self.input[i], self.local[i] = [], []
        if Literally.REPEATS not in self.literally:
            collected = [m for m in dict.fromkeys(collected) if m not in self.forwarded[i]]
        self.forwarded[i].update(dict.fromkeys(collected))
        for j in self.around[i]:
            for message in collected:
                self.sent += 1
                if message not in self.delivered[j]:
                    self.delivered[j].append(message)
                if not self.stops(j, message):
                    self.input[j].append(message)
        self.reorient(i)
        self.turns[i] += 1
        return collected

    def run(self, turns: int, draw: Random, look: Callable[[], object] = lambda: None) -> None:
        """This many turns, each by a sink that is drawn."""
        for _ in range(turns):
            self.turn(draw.choice(self.sinks()))
            look()

    def round(self) -> list[int]:
        """Whoever is a sink now takes its turn."""
        sinks = self.sinks()
        for i in sinks:
            self.turn(i)
        return sinks


def memory_of(
    edges: Iterable[Pair],
    lids: Sequence[int] | None = None,
    vals: Sequence[int] | None = None,
    literally: Literally = Literally.NOTHING,
) -> Memory:
    """Processors 0, 1, ... with these links; by default lids are the names and values are 0."""
    pairs = list(edges)
    memory = Memory(literally)
    for name in range(1 + max((max(pair) for pair in pairs), default=0)):
        memory.add(name, name if lids is None else lids[name], 0 if vals is None else vals[name])
    for one, other in pairs:
        memory.link(one, other)
    return memory


def random_edges(draw: Random, count: int, more: int) -> list[Pair]:
    """A random tree, and some more links."""
    edges = [(draw.randrange(n), n) for n in range(1, count)]
    others = [(p, q) for q in range(count) for p in range(q) if (p, q) not in edges]
    return edges + draw.sample(others, min(more, len(others)))


def random_memory(seed: int, count: int, literally: Literally = Literally.NOTHING) -> Memory:
    """A connected layer as it begins: values 0, lids all different."""
    draw = Random(f"memory/{seed}/{count}")
    return memory_of(
        random_edges(draw, count, draw.randint(0, 2 * count)),
        draw.sample(range(3 * count), count),
        literally=literally,
    )
