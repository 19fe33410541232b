"""Control notifications: the overlay finds its peers by publishing (section 5.1).

They are ordinary events with reserved attributes, routed by filters like any other:

* `node-location(key)`: wanted by the node w with the key in (predecessor, w], so exactly one node
  gets it, the first at or after the key. It answers `Located`, over a link of its own to whoever
  asks.
* `node-join(key)`: wanted by every u for which a node at this key is a better finger.
* `ring-news`: wanted by every node; says that two rings meet, or that they have merged (`splits`).
  It is published under the promise of at-least-once: nobody asks for news that did not come.

Other notifications may get lost: a lookup without an answer is repeated, LOOKUP_ATTEMPTS_MAX times,
and then left to stabilisation, which looks each finger up again from time to time.

Filters of control notifications grow at once and shrink after `filter_shrink_ms`. When x joins in
front of w, (predecessor, w] becomes (x, w], and the rest is x's: if w shrank first, the keys
between would be wanted by nobody for a while on edges far away, and each of these edges would be
told twice. Whoever gets a notification that is not meant for it ignores it.

Departure from the paper: it leaves open whether the range of node-location includes its ends; here
it is open at the predecessor and closed at this peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.chord import arcs
from peersub.overlays.chord.arcs import Arc
from peersub.overlays.chord.messages import KeyTaken, Located
from peersub.overlays.chord.ring import Ring
from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import Drop, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.routing.control_filters import (
    KEY_ATTRIBUTE,
    NOTIFICATION_ATTRIBUTE,
    control_attributes,
    control_filter,
)

__all__ = [
    "FILTERS",
    "LOOKUP",
    "LOOKUP_ATTEMPTS_MAX",
    "NODE_JOIN",
    "NODE_LOCATION",
    "QUESTION_MERGE",
    "QUESTION_SUCCESSOR",
    "QUESTION_VERIFY",
    "RING_NEWS",
    "Locating",
]

NODE_LOCATION = "node-location"
NODE_JOIN = "node-join"
RING_NEWS = "ring-news"

NODE_ATTRIBUTE = "peersub.node"
QUESTION_ATTRIBUTE = "peersub.question"
NEWS_ATTRIBUTE = "peersub.news"
APART_ATTRIBUTE = "peersub.apart"
MEETING_ATTRIBUTE = "peersub.meeting"

QUESTION_SUCCESSOR = 0
"""Who follows the place that this node wants to join at? Questions 1, 2, ... are for finger k."""
QUESTION_MERGE = 999
"""Who follows this node in another ring?"""
QUESTION_VERIFY = 1_000
"""Who stands at the key of a former peer: itself, in this ring? So are all questions from here."""

LOOKUP = Timer("chord/lookup")
FILTERS = Timer("chord/filters")
LOOKUP_ATTEMPTS_MAX = 4


class _Lookup:
    __slots__ = ("attempts", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.attempts = 1


class Locating:
    """What a peer asks the ring, and what it answers.

    `on_answer(question, peer, message)` takes the answers; peer and message are None where the node
    that was looked for is this one. `ask_for_me(target, question)` asks in the name of a peer that
    is no member yet, and can publish nothing itself.
    """

    def __init__(
        self,
        ring: Ring,
        seed: int,
        on_answer: Callable[[int, PeerId | None, Located | None, int], None],
        ask_for_me: Callable[[int, int], None],
        on_news: Callable[[str, str, str, int, int], None],
    ) -> None:
        self._ring = ring
        self._engine = ring.engine
        self._topology = ring.topology
        self._seed = seed
        self._on_answer = on_answer
        self._ask_for_me = ask_for_me
        self._on_news = on_news
        self._pending: dict[int, _Lookup] = {}
        self._pause_ms = ring.settings.lookup_ms
        self._is_waiting = False
        self._published = 0
        self._told: dict[str, tuple[Arc, ...]] = {}
        """The arcs of the filters that the engine has."""
        self._is_shrinking = False

    # --- asking --------------------------------------------------------------------------------

    def look_up(self, question: int, target: int, now_ms: int) -> None:
        """Ask for the first node at or after the key, until there is an answer."""
        self._pending[question] = _Lookup(target)
        self._pause_ms = self._ring.settings.lookup_ms
        self._ask(question, target, now_ms)
        # The node may be this one, and the answer be there already.
        if self._pending:
            self._wait()

    def look_up_finger(self, k: int, now_ms: int) -> None:
        """Ask for finger k."""
        topology = self._topology
        self.look_up(k, (topology.key + (topology.size >> k)) % topology.size, now_ms)

    def fingers_apart(self) -> list[int]:
        """The k whose finger need not be the successor."""
        successor = self._topology.successor
        if successor is None:
            return []
        reach = (successor.key - self._topology.key) % self._topology.size
        return [k for k in range(1, self._topology.bits + 1) if self._topology.size >> k > reach]

    @property
    def has_pending_fingers(self) -> bool:
        """Whether lookups of fingers are unanswered."""
        return any(0 < question < QUESTION_MERGE for question in self._pending)

    def forget(self) -> None:
        """Ask no more."""
        self._pending.clear()

    def on_timer(self, now_ms: int) -> None:
        """Repeat what was not answered."""
        self._is_waiting = False
        for question, lookup in list(self._pending.items()):
            if lookup.attempts >= LOOKUP_ATTEMPTS_MAX:
                del self._pending[question]
                continue
            lookup.attempts += 1
            self._ask(question, lookup.target, now_ms)
        self._pause_ms *= 2
        if self._pending:
            self._wait()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._engine.emit(SetTimer(LOOKUP, self._pause_ms))

    def _ask(self, question: int, target: int, now_ms: int) -> None:
        if self._ring.is_member:
            self.publish_location(target, self._ring.me.node, question, now_ms)
        else:
            self._ask_for_me(target, question)

    def on_located(self, peer: PeerId, message: Located, now_ms: int) -> None:
        """An answer; a second one, or one to an old question, is none."""
        lookup = self._pending.get(message.question)
        if lookup is None or lookup.target != message.target:
            return
        del self._pending[message.question]
        self._on_answer(message.question, peer, message, now_ms)

    # --- publishing ----------------------------------------------------------------------------

    def publish_location(self, target: int, node: str, question: int, now_ms: int) -> None:
        """node-location, in the name of a node."""
        more = {NODE_ATTRIBUTE: node, QUESTION_ATTRIBUTE: question}
        self._publish(NODE_LOCATION, target, more, now_ms)

    def publish_join(self, now_ms: int) -> None:
        """node-join, for this peer."""
        more = {NODE_ATTRIBUTE: self._ring.me.node}
        self._publish(NODE_JOIN, self._topology.key, more, now_ms)

    def publish_news(
        self, news: str, meeting: str, node: str, now_ms: int, apart_ms: int = 0
    ) -> None:
        """ring-news: what happened, at which meeting, a node to turn to, how long rings were two.

        A time that is not known is 0.
        """
        more: dict[str, Any] = {
            NEWS_ATTRIBUTE: news,
            MEETING_ATTRIBUTE: meeting,
            NODE_ATTRIBUTE: node,
        }
        if apart_ms:
            more[APART_ATTRIBUTE] = apart_ms
        self._publish(RING_NEWS, self._topology.key, more, now_ms, Delivery.AT_LEAST_ONCE)

    def _publish(
        self,
        name: str,
        key: int,
        more: Mapping[str, Any],
        now_ms: int,
        delivery: Delivery = Delivery.BEST_EFFORT,
    ) -> None:
        self._published += 1
        me = self._ring.me
        number = draw(self._seed, "control", me.node, me.incarnation, self._published)
        attributes = {**control_attributes(name, key), **more}
        publication = Publication(f"control-{number:016x}", attributes, delivery=delivery)
        self._engine.publish_control(name, publication, now_ms)

    # --- answering -----------------------------------------------------------------------------

    def renew_filters(self) -> None:
        """Want what concerns this peer as it stands now: more at once, less after a while."""
        for name, wanted in self._wanted():
            self._want(name, wanted)

    def _wanted(self) -> list[tuple[str, tuple[Arc, ...]]]:
        if not self._ring.is_member:
            return [(NODE_LOCATION, ()), (NODE_JOIN, ()), (RING_NEWS, ())]
        return [
            (NODE_LOCATION, (self._topology.located_here(),)),
            (NODE_JOIN, tuple(self._topology.adopts())),
            (RING_NEWS, ((0, self._topology.size),)),
        ]

    def _want(self, name: str, wanted: tuple[Arc, ...]) -> None:
        told = self._told.get(name, ())
        if told == wanted:
            return
        if not wanted:
            self._tell(name, wanted)
            return
        size = self._topology.size
        wider = tuple(arcs.united((*told, *wanted), size))
        if wider != tuple(arcs.united(told, size)):
            self._tell(name, wider if told else wanted)
        if self._told[name] != wanted and not self._is_shrinking:
            self._is_shrinking = True
            self._engine.emit(SetTimer(FILTERS, self._ring.settings.filter_shrink_ms))

    def on_filters_timer(self) -> None:
        """Others have had the time to want what this peer does no longer."""
        self._is_shrinking = False
        for name, wanted in self._wanted():
            if self._told.get(name, ()) != wanted:
                self._tell(name, wanted)

    def _tell(self, name: str, wanted: tuple[Arc, ...]) -> None:
        self._told[name] = wanted
        self._engine.set_control(name, key_filter(name, wanted, self._topology.size))

    def on_control(self, publication: Publication, now_ms: int) -> None:
        """A control notification that this peer's filters want."""
        attributes = publication.attributes
        name = attributes.get(NOTIFICATION_ATTRIBUTE)
        key = attributes.get(KEY_ATTRIBUTE)
        node = attributes.get(NODE_ATTRIBUTE)
        if not self._ring.is_member:
            return
        if not (isinstance(key, int) and 0 <= key < self._topology.size and isinstance(node, str)):
            self._engine.emit(Drop("a control notification without key or node", publication.id))
        elif name == NODE_LOCATION:
            self._on_node_location(key, node, attributes.get(QUESTION_ATTRIBUTE), now_ms)
        elif name == NODE_JOIN:
            self._on_node_join(key, node)
        elif name == RING_NEWS:
            news, meeting = attributes.get(NEWS_ATTRIBUTE), attributes.get(MEETING_ATTRIBUTE)
            said = attributes.get(APART_ATTRIBUTE)
            apart_ms = said if isinstance(said, int) and said > 0 else 0
            self._on_news(str(news), str(meeting), node, now_ms, apart_ms)

    def _on_node_location(self, key: int, node: str, question: object, now_ms: int) -> None:
        if not isinstance(question, int):
            return
        if not arcs.contains(self._topology.located_here(), key, self._topology.size):
            return
        if node == self._ring.me.node:
            if question in self._pending and self._pending[question].target == key:
                del self._pending[question]
                self._on_answer(question, None, None, now_ms)
            return
        if question == QUESTION_SUCCESSOR and key == self._topology.key:
            self._ring.reach(node, KeyTaken(key), present=False)
            return
        with_neighbourhood = question in (QUESTION_SUCCESSOR, QUESTION_MERGE)
        predecessors, successors = self._ring.neighbourhood() if with_neighbourhood else ((), ())
        self._ring.reach(node, Located(question, key, predecessors, successors))

    def _on_node_join(self, key: int, node: str) -> None:
        # Whoever joins from now on may be nearer still: ask the topology, not the filter.
        if self._topology.adopts_at(key):
            self._ring.reach(node)


def key_filter(name: str, wanted: tuple[Arc, ...], size: int) -> Filter | None:
    """The filter of a control notification whose key lies on one of the arcs; None for no arc."""
    intervals: list[tuple[int, int]] = []
    for start, length in wanted:
        last = start + length - 1
        if length >= size:
            intervals.append((0, size - 1))
        elif last < size:
            intervals.append((start, last))
        else:
            intervals += [(start, size - 1), (0, last - size)]
    return control_filter(name, intervals) if intervals else None
