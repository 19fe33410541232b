"""Nodes that may be somewhere else: whom to try again, and when.

A network may be begun twice, or come apart, and its parts know nothing of each other. What brings
them together is that each node goes on trying those that it should be with: the *contacts* that it
was told to join by, which it never forgets, and *former* peers, which it has lost or seen leave. A
node that begins a new life without a word of the old one is found so by those who knew it.

A node that is sought is tried again after an eighth of the time for which it has been, from an
eighth of a period up to four periods, and up to as long again by a keyed draw: for ever, ever more
rarely, and not by all at once. So whoever starts again is found soon, measured by how long it was
away. Who has been found in the network is no longer sought; a contact is still tried from time to
time.

`Probing` says whose turn it is. What it means to be found is the overlay's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw_below
from peersub.overlays.core.effects import SetTimer
from peersub.overlays.core.identity import PeerId

__all__ = ["CONTACTS_MAX", "FORMER_MAX", "PAUSE_SHARE", "Probing", "Sought"]

CONTACTS_MAX = 32
"""Contacts that are remembered: the ones named first."""
FORMER_MAX = 64
"""Former peers that are remembered: the ones lost last."""
PROBES_MAX = 8
"""Nodes that are tried at a time."""
PAUSE_SHARE = 8
"""A pause is this part of the time for which a node has been sought, and of a period at least."""
PAUSE_PERIODS_MAX = 4
"""Periods of the longest pause."""
FOUND_PERIODS = 128
"""Periods after which a contact that is in the network is tried again."""


class Sought:
    """A node that is tried again."""

    __slots__ = ("due_ms", "is_contact", "is_missing", "key", "lost_ms", "peer", "since_ms")

    def __init__(self, is_contact: bool, since_ms: int) -> None:
        self.is_contact = is_contact
        self.since_ms = since_ms
        """When the search for it began."""
        self.is_missing = True
        """Whether it has not been found in the network since."""
        self.peer: PeerId | None = None
        """The life of it that was lost, if one was."""
        self.lost_ms: int | None = None
        """When it was lost."""
        self.key: int | None = None
        """Where it stood then, in an overlay in which nodes stand somewhere."""
        self.due_ms = 0


class Probing:
    """Whom one peer tries to reach again.

    Args:
        me: the peer.
        seed: what keyed draws depend on.
        timer: the overlay's name for the timer, which it hands to `take_due`.
        period_ms: what pauses are measured by; 0 to try nobody.
        emit: takes the timer.
    """

    def __init__(
        self,
        me: PeerId,
        seed: int,
        timer: Timer,
        period_ms: int,
        emit: Callable[[SetTimer], None],
    ) -> None:
        self.sought: dict[str, Sought] = {}
        self._me = me
        self._seed = seed
        self._timer = timer
        self._period_ms = period_ms
        self._emit = emit
        self._armed_ms: int | None = None

    def add_contacts(self, nodes: Iterable[str], now_ms: int) -> None:
        """Never forget these."""
        count = sum(each.is_contact for each in self.sought.values())
        for node in nodes:
            if node == self._me.node:
                continue
            known = self.sought.get(node)
            if known is not None:
                known.is_contact = True
            elif count < CONTACTS_MAX:
                count += 1
                self.sought[node] = Sought(is_contact=True, since_ms=now_ms)
                self._plan(node, now_ms)

    def lost(self, peer: PeerId, now_ms: int, key: int | None = None) -> None:
        """A peer is gone: look for its node, soon at first."""
        known = self.sought.pop(peer.node, None)
        each = self.sought[peer.node] = Sought(known is not None and known.is_contact, now_ms)
        each.peer = peer
        each.lost_ms = now_ms
        each.key = key
        former = [node for node, one in self.sought.items() if not one.is_contact]
        if len(former) > FORMER_MAX:
            del self.sought[former[0]]
        self._plan(peer.node, now_ms)

    def found(self, node: str, now_ms: int) -> None:
        """The node is in the network."""
        each = self.sought.get(node)
        if each is None:
            return
        if not each.is_contact:
            del self.sought[node]
            return
        each.is_missing = False
        each.peer = each.lost_ms = each.key = None
        self._plan(node, now_ms)

    def soon(self, node: str, now_ms: int) -> None:
        """The node is there, and it is not known yet where: look again after the first pause."""
        self.sought[node].since_ms = now_ms
        self._plan(node, now_ms, is_soon=True)

    @property
    def missing(self) -> list[str]:
        """The nodes that have not been found."""
        return [node for node, each in self.sought.items() if each.is_missing]

    def take_due(self, now_ms: int) -> list[str]:
        """The timer has fired: the nodes whose turn it is; the next pause of each is longer."""
        self._armed_ms = None
        due = [node for node, each in self.sought.items() if each.due_ms <= now_ms][:PROBES_MAX]
        for node in due:
            self.sought[node] = self.sought.pop(node)
            self._plan(node, now_ms)
        self.arm(now_ms)
        return due

    def _plan(self, node: str, now_ms: int, *, is_soon: bool = False) -> None:
        each = self.sought[node]
        if not self._period_ms:
            each.due_ms = now_ms
            return
        pause_ms = FOUND_PERIODS * self._period_ms
        if each.is_missing or is_soon:
            share_ms = max(now_ms - each.since_ms, self._period_ms) // PAUSE_SHARE
            pause_ms = min(max(share_ms, 1), PAUSE_PERIODS_MAX * self._period_ms)
        about = (self._me.node, self._me.incarnation, node, now_ms)
        each.due_ms = now_ms + pause_ms + draw_below(pause_ms, self._seed, "probe", *about)
        self.arm(now_ms)

    def arm(self, now_ms: int) -> None:
        """Have the timer fire when the next one is due."""
        if not self.sought or not self._period_ms:
            return
        due_ms = max(now_ms + 1, min(each.due_ms for each in self.sought.values()))
        if self._armed_ms is None or due_ms < self._armed_ms:
            self._armed_ms = due_ms
            self._emit(SetTimer(self._timer, due_ms - now_ms))
