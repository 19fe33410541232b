"""Filter maintenance: the filters on the edges of one peer (sections 4.2, 4.4 and 5.2).

The invariant (section 4.2): the rows on an edge u -> v want whatever v itself wants, and whatever
the rows on those edges of v want whose scope meets the one that u holds v responsible for. It is
kept by three messages, each over one link:

* `ResponsibilityChange`: u tells v its scope, when u has the edge, and whenever the scope changes,
  be it larger (else events are lost) or smaller (else they come in vain; digest rows 5 and 12);
* `FilterUpdate`: v tells u its rows: wholly at first, then as changes, numbered, each with the
  digest of the result; `FilterMismatch` asks for the whole table again;
* `FilterConfirmed`: u, and all whom it had to tell, use the rows (`confirmations`).

Whatever a handled cause changes is only noted; `flush` works out the rows of the publishers
concerned once, and sends what is different. What an edge told is stored as it came, always; that a
covered filter is not passed on is because the rows for the publisher are what they were (digest
rows 7 and 8).

Invariants: rows sent to a publisher are those of `Combination.rows` over the tables as of the last
flush; a number is sent once, and confirmed by the publisher in order; nothing is sent to a peer
without a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Timer
from peersub.overlays.core.effects import Drop, Effect, Send, SetTimer, SubscriptionReady
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.combination import Combination
from peersub.overlays.routing.confirmations import Confirmations, Wave
from peersub.overlays.routing.control_filters import (
    CONTROL_INTERVALS_MAX,
    Intervals,
    intervals_of,
    is_control_name,
    normalised,
)
from peersub.overlays.routing.folding import Source
from peersub.overlays.routing.lots import Lots
from peersub.overlays.routing.maintenance_settings import MaintenanceSettings
from peersub.overlays.routing.messages import (
    FilterConfirmed,
    FilterMismatch,
    FilterUpdate,
    ResponsibilityChange,
)
from peersub.overlays.routing.pace import TURN_PAUSE_MS, Pace
from peersub.overlays.routing.publishers import Publisher
from peersub.overlays.routing.rows import NO_ROWS, Rows, control_rows
from peersub.overlays.routing.strategies import Strategy, make_strategy
from peersub.overlays.routing.tables import EdgeTable, Outcome
from peersub.overlays.routing.topology import NOWHERE, Reach, Scope, Topology, reach_of

__all__ = ["FLUSH_TIMER", "FilterMaintenance", "MaintenanceSettings"]

FLUSH_TIMER: Final = Timer("routing/flush")
ROWS_BEFORE_TELLING: Final = 8
"""Changed rows that are worked out, if there are so many, before publishers are told."""
MISMATCHES_MAX: Final = 3
"""Whole tables in a row that may come with another digest than they have."""


class FilterMaintenance:
    """The filters on the edges of one peer, to and from it.

    Args:
        me: the peer.
        topology: the shape of the network as this peer sees it now.
        settings: strategy and pace.
        strategy: the strategy object, if it is to be shared with other peers in the process.
    """

    def __init__(
        self,
        me: PeerId,
        topology: Topology,
        settings: MaintenanceSettings,
        strategy: Strategy | None = None,
    ) -> None:
        self.me = me
        self.settings = settings
        self.strategy = strategy or make_strategy(settings.strategy)
        self._topology = topology
        self._reach = reach_of(topology) if settings.strategy.exact_reach else None
        self._local = self.strategy.local_rows(me)
        self._control: dict[str, Intervals] = {}
        self._tables: dict[PeerId, EdgeTable] = {}
        self._publishers: dict[PeerId, Publisher] = {}
        self._linked: dict[PeerId, None] = {}
        self._version = 0
        self._told_version = 0
        self._settled_version = 0
        self._confirmations = Confirmations()
        self._combination: Combination | None = None
        # What is to be done at the next flush.
        self._changed: dict[Source, None] = {}
        self._untold = 0
        """Changed rows that were worked out since publishers were last told."""
        self._replaced: dict[Source, None] = {}
        """Sources of which the combination was told, and publishers not yet."""
        self._due: dict[PeerId, None] = {}
        """Publishers that have not been sent all yet."""
        self._answers: dict[PeerId, None] = {}
        self._lots = Lots()
        self._reconsider = False
        self._outgoing: dict[PeerId, list[Message]] = {}
        self._effects: list[Effect] = []
        self._mismatches: dict[PeerId, int] = {}
        self._ready: dict[str, None] = {}
        self._is_ready_held = False
        self._pace = Pace(settings.burst_ms)

    # --- local filters -------------------------------------------------------------------------

    def subscribe(self, name: str, wanted: Filter) -> None:
        """A subscription of this node; SubscriptionReady(name) follows once all confirmed it."""
        self._local.add(name, wanted)
        self._lots.add_name(name)
        self._changed[None] = None

    def unsubscribe(self, name: str) -> None:
        """The subscription ends; one that is not there is none."""
        if not self._local.discard(name):
            return
        self._lots.name_gone(name)
        self._confirmations.name_gone(name)
        self._ready.pop(name, None)
        self._changed[None] = None

    def set_control(self, name: str, wanted: Filter | None) -> None:
        """The control notifications that this peer wants under a reserved name."""
        assert is_control_name(name)
        intervals = () if wanted is None else intervals_of(name, wanted)
        assert intervals is not None, "made by control_filter"
        if intervals:
            self._control[name] = normalised(intervals, CONTROL_INTERVALS_MAX)
        else:
            self._control.pop(name, None)
        self._changed[None] = None

    def hold_ready(self, held: bool) -> None:
        """While held no subscription becomes ready: who has not joined yet has no publishers."""
        self._is_ready_held = held
        if not held:
            # Publishers that came meanwhile have to confirm as well.
            for name in self._ready:
                self._lots.add_name(name)
            self._ready = {}

    def pending(self, name: str) -> tuple[PeerId, ...]:
        """The peers whose confirmation the subscription still waits for; none if it is ready."""
        return self._confirmations.waiting_on(name)

    # --- links and edges -----------------------------------------------------------------------

    def peer_connected(self, peer: PeerId) -> None:
        """A fresh link to the peer is up: whatever an earlier one carried counts no more."""
        self.publisher_lost(peer)
        self._linked[peer] = None
        table = self._tables.get(peer)
        if table is not None:
            self._assign(peer, table, table.scope)
            table.restart(table.version)

    def publisher_lost(self, peer: PeerId) -> None:
        """The link to the peer is gone: it is no publisher of this one, and is not waited for.

        The rows of the edge to it, if there is one, stay until `edges_changed` says who inherits.
        """
        self._linked.pop(peer, None)
        self._outgoing.pop(peer, None)
        self._mismatches.pop(peer, None)
        self._lots.peer_gone(peer)
        self._confirmations.source_lost(peer)
        self._forget_publisher(peer)

    def _forget_publisher(self, peer: PeerId) -> None:
        if self._publishers.pop(peer, None) is not None:
            self._answers.pop(peer, None)
            self._due.pop(peer, None)
            self._confirmations.publisher_lost(peer)

    def edges_changed(
        self,
        heirs: Mapping[PeerId, PeerId | None],
        copies: Mapping[PeerId, PeerId | None],
    ) -> None:
        """The topology has changed.

        Args:
            heirs: per edge that is gone, the edge that takes over its scope, if one does.
            copies: per new edge, the edge whose rows it starts with, if there is one.
        """
        edges = self._topology.edges()
        before = self._tables
        self._tables = {
            peer: before.get(peer) or EdgeTable(NOWHERE, self._version + 1) for peer in edges
        }
        held: dict[PeerId, list[Rows]] = {}
        for new, neighbour in copies.items():
            if new in self._tables and new not in before and neighbour in before:
                held.setdefault(new, []).append(before[neighbour].rows)
        for lost, heir in heirs.items():
            if lost in before and lost not in self._tables and heir in self._tables:
                held.setdefault(heir, []).append(before[lost].rows)
        for peer in before:
            if peer not in self._tables:
                self._end_edge(peer)
        for peer, table in self._tables.items():
            scope = self._topology.scope_of(peer)
            rows_held = held.get(peer, ())
            if scope != table.scope or rows_held:
                # Who inherits is asked anew even if its scope is the same: held rows go by that.
                self._assign(peer, table, scope)
                for rows in rows_held:
                    table.hold(rows)
                self._changed[peer] = None
        self._reconsider = True

    def _assign(self, peer: PeerId, table: EdgeTable, scope: Scope) -> None:
        self._version += 1
        table.assign(scope, self._version)
        if peer in self._linked:
            self._send(peer, ResponsibilityChange(self._version, scope))

    def _end_edge(self, peer: PeerId) -> None:
        self._version += 1
        if peer in self._linked:
            self._send(peer, ResponsibilityChange(self._version, NOWHERE))
        self._lots.peer_gone(peer)
        self._mismatches.pop(peer, None)
        self._confirmations.source_lost(peer)
        self._changed[peer] = None

    def is_told(self, peer: PeerId) -> bool:
        """Whether the peer at the end of an edge has told its rows for its present scope."""
        table = self._tables.get(peer)
        return table is not None and table.told_version >= table.version

    @property
    def version(self) -> int:
        """Grows whenever an edge comes or goes, or is made responsible for another scope."""
        return self._version

    @property
    def is_settled(self) -> bool:
        """Whether every edge has told its rows for its present scope, and all publishers have
        confirmed what they were sent because of that; other changes do not matter.
        """
        return self._settled_version == self._version

    def publishers(self) -> Mapping[PeerId, Scope]:
        """Who holds this peer responsible, and for what."""
        return {peer: publisher.scope for peer, publisher in self._publishers.items()}

    # --- messages ------------------------------------------------------------------------------

    def on_responsibility_change(self, peer: PeerId, message: ResponsibilityChange) -> None:
        """The peer is a publisher, with this scope; or no longer one."""
        if peer not in self._linked:
            return
        self._reconsider = True
        if message.scope == NOWHERE:
            self._forget_publisher(peer)
            return
        complaint = self._topology.parse_scope(message.scope)
        if complaint is not None:
            self._effects.append(Drop(complaint, peer=peer))
            return
        publisher = self._publishers.setdefault(peer, Publisher())
        publisher.scope = message.scope
        publisher.version = message.version
        self._answers[peer] = None

    def on_filter_update(self, peer: PeerId, message: FilterUpdate) -> None:
        """The rows to use on the edge to the peer change."""
        table = self._tables.get(peer)
        if table is None:
            self._effects.append(Drop("a filter update of a peer that is no edge", peer=peer))
            return
        self._effects += message.drops(peer)
        try:
            outcome = table.apply(message)
        except ValueError as error:
            self._effects.append(Drop(f"a filter update: {error}", peer=peer))
            return
        if outcome is Outcome.INCOMPLETE:
            return
        self._changed[peer] = None
        if outcome is Outcome.APPLIED:
            self._lots.add_update(peer, message.number, table.rows.version)
            self._mismatches.pop(peer, None)
            return
        if outcome is Outcome.WHOLE_MISMATCH:
            self._mismatches[peer] = self._mismatches.get(peer, 0) + 1
        if self._mismatches.get(peer, 0) <= MISMATCHES_MAX:
            self._send(peer, FilterMismatch(message.number))
        else:
            self._effects.append(Drop("its whole table has another digest than it says", peer=peer))

    def on_filter_confirmed(self, peer: PeerId, message: FilterConfirmed) -> None:
        """The publisher, and all behind it, use what was sent up to this number."""
        publisher = self._publishers.get(peer)
        if publisher is None or not publisher.confirmed < message.number <= publisher.number:
            return
        publisher.confirmed = message.number
        self._confirmations.confirmed(peer, message.number)

    def on_filter_mismatch(self, peer: PeerId, message: FilterMismatch) -> None:
        """The publisher's table is not what was sent: send it whole."""
        publisher = self._publishers.get(peer)
        if publisher is not None and message.number == publisher.number:
            publisher.is_whole_due = True
            self._answers[peer] = None

    # --- the work ------------------------------------------------------------------------------

    def on_timer(self) -> None:
        """The time of FLUSH_TIMER has come."""
        self._pace.fire()

    def flush(self, now_ms: int) -> list[Effect]:
        """Work out and send what has changed: Send, SetTimer, SubscriptionReady, Drop.

        No flush takes in more than `rows_per_turn` rows: the rest follows, so that events and signs
        of life never wait for many subscriptions.
        """
        if self._has_changes() and self.settings.coalesce_ms and not self._pace.is_time:
            self._answer(self._answers)
            self._wait(self.settings.coalesce_ms)
        elif self._has_changes() and not self._pace.is_time and self._pace.is_burst(now_ms):
            self._wait(self.settings.burst_ms)
        elif self._pace.is_waiting and self._is_unfinished:
            pass
        elif self._has_changes() or self._answers or self._reconsider or self._is_unfinished:
            self._work()
        self._end_waves()
        self._pace.is_time = False
        return self._taken_effects()

    def _wait(self, delay_ms: int) -> None:
        if not self._pace.is_waiting:
            self._pace.is_waiting = True
            self._effects.append(SetTimer(FLUSH_TIMER, delay_ms))

    def _has_changes(self) -> bool:
        return bool(self._changed or self._replaced or self._lots.is_waiting)

    @property
    def _is_unfinished(self) -> bool:
        """Whether rows are to be taken in, or sent, that did not fit into the last turns."""
        combination = self._combination
        return bool(self._due) or (combination is not None and not combination.is_complete)

    def _take_changes(self) -> Combination:
        """Let the combination know which tables have changed, unless it is busy with others."""
        combination = self._current_combination()
        # What comes faster than it is told must not be told all at once, when nothing comes.
        if self._changed and combination.is_complete and not self._due:
            changed, self._changed = self._changed, {}
            rows_max = self.settings.rows_per_lot
            versions: dict[Source, int] = {}
            for source in changed:
                rows = self._rows_of(source, rows_max)
                reached = combination.begin(source, rows, rows_max)
                if reached is not rows:
                    self._changed[source] = None
                    versions[source] = reached.version
            self._replaced.update(changed)
            if self._local.is_behind:
                self._changed[None] = None
            self._lots.take(self._local.is_worked_out, versions)
        return combination

    def _work(self) -> None:
        combination = self._take_changes()
        if not self._changed:
            self._lots.take()
        touched = {**self._replaced, **combination.work(self.settings.rows_per_turn)}
        self._replaced = {}
        for peer, publisher in self._publishers.items():
            served = self._served(peer, publisher)
            if self._reconsider or None in touched or any(one in touched for one in served):
                self._due[peer] = None
        self._untold += self.settings.rows_per_turn
        if combination.is_complete or self._untold >= ROWS_BEFORE_TELLING:
            self._untold = 0
            self._answer({**self._due, **self._answers})
        if self._is_unfinished or self._answers:
            self._wait(TURN_PAUSE_MS)
        else:
            self._begin_waves()
            if self._has_changes():
                self._wait(max(self.settings.burst_ms, TURN_PAUSE_MS))

    def _begin_waves(self) -> None:
        """All is sent: wait for those who have to confirm it."""
        if self._reconsider:
            self._reconsider = False
            self._confirmations.reconsider(self._waits_of)
        arrived, names = self._lots.end()
        for peer, number in arrived.items():
            self._confirmations.begin(Wave(peer, number, {}, self._waits_of(peer)))
        if names:
            self._confirmations.begin(Wave(None, 0, names, self._waits_of(None)))
        if self._told_version != self._version and all(map(self.is_told, self._tables)):
            self._told_version = self._version
            self._confirmations.begin(Wave(None, 0, {}, self._waits_of(None), self._version))

    def _answer(self, concerned: Iterable[PeerId]) -> None:
        """Send publishers what is new, those that asked in any case, until a turn is full."""
        combination = self._current_combination()
        rows_left = self.settings.rows_told_per_turn
        for peer in tuple(concerned):
            if rows_left <= 0:
                return
            publisher = self._publishers[peer]
            is_asked = peer in self._answers
            if is_asked and not combination.is_complete:
                # Whoever asked lets go of what it holds: it must get all that is known.
                continue
            was_sending = publisher.is_sending
            if not was_sending:
                served = self._served(peer, publisher)
                rows = combination.rows_since(publisher.sent, served, publisher.scope)
                if rows is None:
                    continue  # All of many rows are to be looked at first.
                if is_asked or rows is not publisher.sent:
                    self._answers.pop(peer, None)
                    sizes, at_once = self.strategy.sizes, self.settings.rows_per_message
                    publisher.update_to(rows, sizes, at_once, is_answer=is_asked)
            self._due.pop(peer, None)
            for update in publisher.next_updates(rows_left):
                rows_left -= len(update.added) + len(update.removed)
                self._send(peer, update)
            if was_sending or publisher.is_sending or peer in self._answers:
                # What has changed since the update was begun is told in the next one.
                self._due[peer] = None

    def _end_waves(self) -> None:
        confirmed: dict[PeerId, int] = {}
        for wave in self._confirmations.take_ended():
            if wave.source is not None:
                confirmed[wave.source] = max(wave.number, confirmed.get(wave.source, 0))
            self._ready.update(wave.names)
            self._settled_version = max(self._settled_version, wave.version)
        for peer, number in confirmed.items():
            self._send(peer, FilterConfirmed(number))
        if self._is_ready_held or (self._pace.is_waiting and not self._pace.is_time):
            return
        for name in tuple(islice(self._ready, self.settings.rows_told_per_turn)):
            del self._ready[name]
            self._confirmations.name_gone(name)
            self._effects.append(SubscriptionReady(name))
        if self._ready:
            self._wait(TURN_PAUSE_MS)

    def _taken_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        outgoing, self._outgoing = self._outgoing, {}
        effects += [Send(peer, tuple(messages)) for peer, messages in outgoing.items()]
        return effects

    def _send(self, peer: PeerId, message: Message) -> None:
        if peer in self._linked:
            self._outgoing.setdefault(peer, []).append(message)

    def _waits_of(self, source: Source) -> dict[PeerId, int]:
        """What the publishers that a source serves have not confirmed yet."""
        return {
            peer: publisher.number
            for peer, publisher in self._publishers.items()
            if publisher.confirmed < publisher.number
            and (source is None or source in self._served(peer, publisher))
        }

    def _served(self, peer: PeerId, publisher: Publisher) -> Sequence[PeerId]:
        return self._topology.serves(peer, publisher.scope)

    def _rows_of(self, source: Source, changes_max: int | None = None) -> Rows:
        if source is None:
            return self.local_rows(changes_max)
        table = self._tables.get(source)
        return NO_ROWS if table is None else table.rows

    def _current_combination(self) -> Combination:
        """The combination; made when it is first needed, which after a converged start is late."""
        if self._combination is None:
            self._combination = self.strategy.combination(self._reach)
            for source in (None, *self._tables):
                if source not in self._changed:
                    self._combination.replace(source, self._rows_of(source))
        return self._combination

    # --- routing -------------------------------------------------------------------------------

    def matches(
        self, peer: PeerId, publication: Publication, part: Scope, control: str = ""
    ) -> bool:
        """Whether a filter on the edge to the peer wants the publication, in this part.

        `control` is the reserved name that a control notification goes by.
        """
        table = self._tables.get(peer)
        if table is None:
            return True
        is_large = table.rows.entry_count >= self.settings.pooled_from
        if not control and table.is_known and is_large:
            combination = self._take_changes()
            if combination.is_indexed and peer in self._changed:
                return True  # Until its rows have their turn.
            wants = combination.wants(peer, publication)
            if wants is not None:
                return wants
        return table.matches(publication, part, self._reach, control)

    def table(self, peer: PeerId) -> EdgeTable | None:
        """The filters on the edge to the peer, if there is such an edge."""
        return self._tables.get(peer)

    def large_edges(self, rows_min: int) -> tuple[PeerId, ...]:
        """All edges, if the rows of one are so many and events are asked of all tables at once."""
        tables = self._tables.values()
        if self._reach is not None or all(table.rows.entry_count < rows_min for table in tables):
            return ()
        return tuple(self._tables) if self._take_changes().is_indexed else ()

    def all_rows(self) -> tuple[Rows, ...]:
        """The rows of all edges."""
        return tuple([table.rows for table in self._tables.values()])

    @property
    def reach(self) -> Reach | None:
        """What compares the reach of rows with a part, where rows have a reach."""
        return self._reach

    # --- a converged start ---------------------------------------------------------------------

    def local_rows(self, changes_max: int | None = None) -> Rows:
        """The rows of this peer's own filters: those of the source None of a combination."""
        reach = NOWHERE if self._reach is None else self._reach.own_reach()
        return self._local.rows(control_rows(self._control), reach, changes_max)

    def install_converged(
        self,
        *,
        told: Mapping[PeerId, Rows],
        sent: Mapping[PeerId, tuple[Scope, Rows]],
        connected: Iterable[PeerId],
    ) -> None:
        """Be in the state that exchanges would have led to: all told, sent and confirmed.

        Args:
            told: per edge of the topology, its rows.
            sent: per publisher, the scope that it gave and the rows that it has from this peer.
            connected: the peers to which a link is up.

        With one strategy object for all peers, rows come from a combination of the peer's tables:
        sender and receiver, and publishers that are served by the same edges, then share them.
        """
        assert not self._tables
        assert not self._publishers
        self._version = self._told_version = self._settled_version = 1
        self._linked = dict.fromkeys(connected)
        for peer in self._topology.edges():
            table = self._tables[peer] = EdgeTable(self._topology.scope_of(peer), 1)
            table.install(told[peer])
        for peer, (scope, rows) in sent.items():
            self._publishers[peer] = Publisher.converged(scope, rows)
        self._changed.clear()
        self._lots.take()
        self._ready.update(self._lots.end()[1])

    # --- for people and checkers ---------------------------------------------------------------

    def told(self, peer: PeerId) -> Rows:
        """The rows on the edge to the peer, with those held for it."""
        return self._tables[peer].rows

    def sent(self, peer: PeerId) -> Rows:
        """The rows that the publisher was sent."""
        return self._publishers[peer].sent

    def describe(self) -> Mapping[str, Any]:
        """Rows per edge and publisher, their digests, what is pending: plain values."""
        edges = {str(peer): table.describe() for peer, table in sorted(self._tables.items())}
        publishers = {str(peer): each.describe() for peer, each in sorted(self._publishers.items())}
        return {"edges": edges, "publishers": publishers, "waves": len(self._confirmations)}

    def state_bytes(self) -> int:
        """About what the tables would take on the wire: told by edges, and sent to publishers."""
        size = self.strategy.sizes.of_rows
        told = sum(size(table.rows) for table in self._tables.values())
        return told + sum(size(publisher.sent) for publisher in self._publishers.values())
