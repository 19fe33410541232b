"""`LiveNode`: a node of a real network, as programs see it.

It ties together the protocol node, its driver, its connections and its store, and keeps what is
outside of all of them: who on this node subscribes, and who waits for a publication to end.
All methods are called on the loop that `start` ran on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import (
    Join,
    Leave,
    Publish,
    PublishBatch,
    Restored,
    Start,
    Subscribe,
    Tell,
    Unsubscribe,
)
from peersub.overlays.core.effects import Deliver, DeliverBatch
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_names import is_mirrors
from peersub.overlays.core.mirror_tasks import MirrorTask
from peersub.overlays.core.mirrors import MIRROR_SLOT
from peersub.overlays.core.node import Node
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import Record
from peersub.overlays.core.rumours import RUMOUR_SLOT
from peersub.overlays.core.versions import BATCHES_FEATURE
from peersub.overlays.registry import overlay_kind
from peersub.runtime.abandoning import watch_abandoned
from peersub.runtime.addresses import is_anywhere, is_own_address, join_address, split_address
from peersub.runtime.body_reading import BodyReader
from peersub.runtime.clock import Clock
from peersub.runtime.columns import has_columns, load_columns
from peersub.runtime.connection import HUNG_UP, Connection
from peersub.runtime.counters import Counters
from peersub.runtime.driver import Driver, Observer
from peersub.runtime.durable import DurableSubscriptions
from peersub.runtime.figures import NodeFigures
from peersub.runtime.filter_budget import FilterBudget
from peersub.runtime.logs import NodeLog
from peersub.runtime.mirroring import Mirroring
from peersub.runtime.open_publications import OnEnded, OpenPublications
from peersub.runtime.record_keeping import OnPersisted
from peersub.runtime.settings import NodeSettings, live_settings
from peersub.runtime.sinks import DurableOptions, DurableRules, Sink, SubscriptionRefusedError
from peersub.runtime.store import MemoryStore, Store, StoreError
from peersub.runtime.store.changes import NameNode
from peersub.runtime.transport import Transport
from peersub.runtime.turns import LoopMonitor

if TYPE_CHECKING:
    import numpy as np

    from peersub.runtime.node_security import NodeSecurity

__all__ = [
    "DurableOptions",
    "LiveNode",
    "Sink",
    "StartError",
    "SubscriptionRefusedError",
]

RELIEF_CHECK_S: Final = 0.1
ENDED: Final = "the node has ended"
CONTACTS_SAID_MAX: Final = 3
"""Nodes to join that are named when none of them answers."""
UNANSWERED_MS: Final = 1_500
"""After which it is said that none of the nodes to join answers."""

_log = NodeLog(__name__)


class StartError(RuntimeError):
    """The node cannot take part: the text says why, and what to do."""


def _no_way_in(contacts: Sequence[str], reasons: Mapping[str, str]) -> str:
    """Why a node could not join, by what is known of each that it asked."""
    named = contacts[:CONTACTS_SAID_MAX]
    told = [f"{contact} ({reasons.get(contact, 'no answer')})" for contact in named]
    more = f" and {len(contacts) - len(named)} more" if len(contacts) > len(named) else ""
    return f"cannot join via {', '.join(told)}{more}"


ClientHandler: TypeAlias = Callable[[Connection, Sequence[Message]], bool]
"""Takes a connection of somebody who is no node, and its first messages; False refuses it."""


class LiveNode:
    """A node on asyncio TCP.

    Args:
        settings: what it is told.
        observer: is told each cause with its effects, for a trace.
        on_client: takes connections of clients; none are taken without.
        security: its certificates, and how it judges those of others; none, and all is open.
        durable_rules: what owners of durable subscriptions may see; everything, without.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        observer: Observer | None = None,
        on_client: ClientHandler | None = None,
        security: NodeSecurity | None = None,
        durable_rules: DurableRules | None = None,
    ) -> None:
        self.settings = settings
        self.security = security
        self.counters = Counters()
        self.notices: list[str] = []
        """What people should know about the start of the node, as sentences."""
        if security is not None:
            self.notices.extend(security.notices)
        self.on_client_connection = on_client
        self.on_end: Callable[[str], None] | None = None
        """Hears, with the reason, that the node takes nothing from clients any more."""
        self.bodies = BodyReader()
        self.filter_budget = FilterBudget(settings.limits.filter_units_max)
        self._clock = Clock()
        self._figures = NodeFigures(self._clock.now_ms)
        self._observer = observer
        self._overlay_settings = live_settings(settings.overlay, settings.overlay_settings)
        self._name = self._listens_at = ""
        self._contacts: tuple[str, ...] = ()
        self._driver: Driver | None = None
        self._transport: Transport | None = None
        self._sinks: dict[str, Sink] = {}
        self._publications = OpenPublications()
        self._store: Store | MemoryStore | None = None
        self._durables: DurableSubscriptions | None = None
        self._mirroring: Mirroring | None = None
        self._relieved: asyncio.Event | None = None
        self._durable_rules = durable_rules
        self._watching: asyncio.Task[None] | None = None
        self._monitor: LoopMonitor | None = None

    # --- begin and end -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The address by which others reach the node."""
        return self._name

    async def start(self) -> None:
        """Listen, and begin a network or join one; returns when the node takes part.

        The nodes to join need not be there yet: a node that finds none of them begins by itself
        where the overlay can merge networks (`OverlayKind.begins_alone`), else it waits for one.

        Raises:
            StartError: the address cannot be used, or all that were named refuse the node.
        """
        settings = self.settings
        if is_anywhere(split_address(settings.listen)[0]) and not settings.advertise:
            raise StartError(
                f"{settings.listen} is every address of this machine, and no name for others to "
                "reach it by: say which with --advertise HOST:PORT"
            )
        kind = overlay_kind(settings.overlay)
        if self.takes_batches:
            # It takes a second, in which neighbours would get no sign of life: so before there are
            # any, who may send a batch at once.
            await asyncio.to_thread(load_columns)
        store = self._open_store()
        incarnation = store.incarnation
        security = self.security
        transport = Transport(
            "",
            incarnation,
            settings.transport,
            self.counters,
            self._clock.now_ms,
            server_tls=None if security is None else security.server_tls,
            client_tls=None if security is None else security.client_tls,
            check_peer=None if security is None else security.node_refusal,
            expiry=None if security is None else security.expiry,
        )
        host, port = split_address(settings.listen)
        try:
            bound = await transport.listen(host, port)
        except OSError as error:
            store.close()
            raise StartError(
                f"cannot listen on {settings.listen}: {error.strerror or error}"
            ) from None
        self._listens_at = join_address(host, bound[1])
        self._name = settings.advertise or self._listens_at
        transport.name = self._name
        overlay = kind.make(PeerId(self._name, incarnation), settings.seed, self._overlay_settings)
        node = Node(
            overlay,
            network=settings.network,
            settings=settings.links,
            version=settings.protocol,
            features=(BATCHES_FEATURE,) if self.takes_batches else (),
        )
        if security is not None:
            security.spread(node, self._end_revoked)
        self._relieved = asyncio.Event()
        self._driver = Driver(
            node, self, self.counters, self._clock.now_ms, self._observer, self.bodies
        )
        self._driver.transport = self._transport = transport
        transport.listener = self._driver
        self._durables = DurableSubscriptions(
            store,
            self._clock.now_ms,
            self.counters,
            self._durable_rules,
            self.filter_budget,
            settings.limits.durable_max,
        )
        for wanted in self._durables.filters().values():
            self.bodies.note(wanted)
        mirroring = self._mirroring = Mirroring(
            self._driver, store, self._durables, self._clock.now_ms, settings.mirrors
        )
        store.submit([NameNode(self._name)], lambda _: None)
        records = self._durables.narrow_records(store.restored_records())
        self._driver.tell(Restored(tuple(records)))
        mirroring.begin()
        watch = watch_abandoned(self._durables, self.unsubscribe, self.counters)
        self._watching = asyncio.create_task(watch)
        await self._take_part()
        # The start of a process takes its time; what counts is how a node serves.
        self._monitor = LoopMonitor.of_running_loop()

    def _open_store(self) -> Store | MemoryStore:
        """What earlier lives of the node left behind, if it has a place for that."""
        now_ms = self._clock.now_ms
        if self.settings.data is None:
            self._store = MemoryStore(self.settings.store, now_ms)
            self.notices.append(
                "durable subscriptions and copies for other nodes are in memory until the node "
                "ends, and do not count where a node has a disk: --data DIR keeps them"
            )
        else:
            try:
                self._store = Store(self.settings.data, self.settings.store, now_ms)
            except StoreError as error:
                raise StartError(str(error)) from None
        self.notices.extend(self._store.notices)
        copies = self.settings.mirrors.copies
        if copies > 1 and not self.settings.join:
            self.notices.append(
                f"acknowledged events for durable subscriptions wait until they are on the disks "
                f"of {copies} nodes; a node that stays alone needs --copies 1"
            )
        return self._store

    async def _take_part(self) -> None:
        """Begin, or join those named, as long as that takes.

        What differs between this node and all that it was told of stays so: only that is an error.
        """
        driver, given = self._running(), self.settings.join
        kind = overlay_kind(self.settings.overlay)
        own = [each for each in given if await is_own_address(each, self._listens_at)]
        contacts = self._contacts = tuple(n for n in given if n not in (self._name, *own))
        begins = not contacts or (given[0] not in contacts and not kind.begins_alone)
        driver.tell(Start() if begins else Join(contacts))
        say_ms: float = self._clock.now_ms() + UNANSWERED_MS
        while not driver.node.overlay.takes_part:
            refusals = driver.node.refusals
            if contacts and all(self._name_of(each) in refusals for each in contacts):
                await self.stop(leave=False)
                raise StartError(_no_way_in(contacts, refusals))
            if self._clock.now_ms() > say_ms:
                say_ms = math.inf
                self._warn_unanswered(contacts, "trying on")
            await asyncio.sleep(0.01)
        if contacts and not list(driver.node.overlay.links()):
            self._warn_unanswered(contacts, "beginning a network, and trying on")

    def on_name_found(self, address: str, name: str) -> None:
        """A node has another name than this address: to join by it, it is sought by its name."""
        driver, kind = self._running(), overlay_kind(self.settings.overlay)
        may_join = kind.begins_alone or not driver.node.overlay.takes_part
        if address in self._contacts and may_join:
            driver.tell(Join(tuple(map(self._name_of, self._contacts))))

    def _name_of(self, address: str) -> str:
        """The name of the node at an address, as far as it is known."""
        return address if self._transport is None else self._transport.name_of(address)

    def _warn_unanswered(self, contacts: Sequence[str], what_now: str) -> None:
        """Say that none of the nodes to join answers."""
        driver = self._running()
        failures = driver.failures
        if self.security is None:
            hint = f"{HUNG_UP}; does it want a certificate, --tls FILE?"
            failures = {node: hint if why == HUNG_UP else why for node, why in failures.items()}
        reasons = {**failures, **driver.node.refusals}
        _log.warning("%s: %s", _no_way_in(contacts, reasons), what_now)

    async def stop(self, *, leave: bool = True) -> None:
        """Take leave, hand over what others need, and close all; without `leave`, close at once."""
        driver, transport = self._driver, self._transport
        if driver is None or transport is None:
            return
        if leave:
            driver.tell(Leave(), MIRROR_SLOT)
            driver.tell(Leave())
            deadline = self._clock.now_ms() + self.settings.leave_timeout_ms
            # Others may connect again meanwhile: what was to be said was said over these.
            links = list(transport.links.items())
            while self._clock.now_ms() < deadline and any(
                transport.links.get(node) is link for node, link in links
            ):
                await asyncio.sleep(0.01)
        driver.end()
        self._driver = None
        if self.on_end is not None:
            self.on_end(ENDED)
        if self._watching is not None:
            self._watching.cancel()
        if self._mirroring is not None:
            self._mirroring.end()
        if self._durables is not None:
            self._durables.end(ENDED)
        await transport.close()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
        self._publications.end_all(ENDED)
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.ended(ENDED)

    def _running(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the node is not running")
        return self._driver

    # --- publishing ----------------------------------------------------------------------------

    def publish(
        self,
        publications: Sequence[Publication],
        on_ended: OnEnded | None = None,
        source: str = "",
    ) -> None:
        """Publish for a source; `on_ended` is called once for each publication."""
        driver = self._running()
        for publication in publications:
            self._publications.begin(publication, on_ended, self._clock.now_ms())
        self._figures.published(len(publications))
        driver.tell(Publish(tuple(publications), source))

    @property
    def takes_batches(self) -> bool:
        """Whether events may be published in columns; who reads the trace wants to see each."""
        return self.settings.columns and self._observer is None and has_columns()

    def publish_batch(
        self, batch: Batch, on_ended: OnEnded | None = None, source: str = ""
    ) -> None:
        """Publish many events at once; `on_ended` is called once, with the name of the batch."""
        driver = self._running()
        self._publications.begin(batch, on_ended, self._clock.now_ms())
        self._figures.published(len(batch))
        driver.tell(PublishBatch(batch, source))

    def is_congested(self) -> bool:
        """Whether whoever publishes should hold back (`relief`)."""
        return self._transport is not None and self._transport.is_congested()

    async def relief(self) -> None:
        """Wait until no link is congested."""
        assert self._relieved is not None
        while self.is_congested():
            self._relieved.clear()
            with suppress(TimeoutError):
                # A congested link that is lost relieves as well, and nobody says so.
                async with asyncio.timeout(RELIEF_CHECK_S):
                    await self._relieved.wait()

    # --- subscribing ---------------------------------------------------------------------------

    @property
    def proposes_moves(self) -> bool:
        """Whether the overlay proposes to subscriptions to move to other nodes."""
        return overlay_kind(self.settings.overlay).proposes_moves

    def subscribe(
        self,
        name: str,
        wanted: Filter,
        sink: Sink,
        *,
        durable: DurableOptions | None = None,
        moved: bool = False,
    ) -> None:
        """A consumer on this node wants the events that match.

        One that `moved` follows the proposal of another node, and gets none here.

        Raises:
            SubscriptionRefusedError: the name is taken, or there are too many.
        """
        driver = self._running()
        durables = self._durables
        assert durables is not None
        if is_mirrors(name):
            raise SubscriptionRefusedError(f"the name {name!r} is one of those that mirrors use")
        self.bodies.note(wanted)
        if durable is not None and name not in self._sinks:
            is_known = name in durables

            def tell_overlay(filter_on_disk: Filter) -> None:
                if is_known:
                    driver.tell(Unsubscribe(name))
                self.bodies.note(filter_on_disk)  # It may be narrowed by permissions.
                driver.tell(Subscribe(name, filter_on_disk, durable=True))

            durables.attach(name, wanted, sink, durable, tell_overlay)
            return
        if name in self._sinks or name in durables:
            raise SubscriptionRefusedError(f"there is a subscription {name!r} on this node already")
        subscriptions_max = self.settings.limits.subscriptions_max
        if len(self._sinks) >= subscriptions_max:
            raise SubscriptionRefusedError(
                f"this node has {subscriptions_max:,} subscriptions already: subscribe at "
                "another, or start it with a higher --limit subscriptions_max=N"
            )
        self._sinks[name] = sink
        driver.tell(Subscribe(name, wanted, moved))

    def detach(self, name: str) -> None:
        """The consumer is gone: a durable subscription goes on without it, another one ends."""
        if self._durables is not None and name in self._durables:
            self._durables.detach(name)
        else:
            self.unsubscribe(name)

    def unsubscribe(self, name: str) -> None:
        """The subscription ends, also a durable one."""
        durables = self._durables
        if durables is not None and name in durables:
            durables.remove(name)
        elif self._sinks.pop(name, None) is None:
            return
        if self._driver is not None:
            self._driver.tell(Unsubscribe(name))

    def change_filter(self, name: str, wanted: Filter) -> None:
        """A subscription of this node gets other events from now on."""
        driver = self._running()
        durable = self._durables is not None and name in self._durables
        self.bodies.note(wanted)
        driver.tell(Unsubscribe(name))
        driver.tell(Subscribe(name, wanted, durable=durable))

    async def narrow_durables(self) -> None:
        """What owners of durable subscriptions may see is another now."""
        if self._durables is not None:
            await self._durables.narrow_again(self.change_filter)

    def acknowledge(self, name: str, position: int) -> None:
        """The consumer of a durable subscription has taken all up to this position."""
        if self._durables is not None:
            self._durables.acknowledge(name, position)

    def waiting_on(self, name: str) -> tuple[str, ...]:
        """The nodes that have not answered yet, of those that a subscription waits for."""
        peers = self._running().node.overlay.waiting_on(name)
        waiting = tuple(str(peer.node) for peer in peers)
        return waiting or (self._mirroring.waiting_on(name) if self._mirroring else ())

    # --- certificates --------------------------------------------------------------------------

    def tell_revocation(self, statement: bytes) -> str | None:
        """Let all nodes know that a certificate was taken back; why not, if it is not believed."""
        if self.security is None:
            return "the nodes of this network have no certificates"
        try:
            rumour = self.security.rumour_of(statement)
        except ValueError as error:
            return str(error)
        self._running().tell(Tell(rumour), slot=RUMOUR_SLOT)
        return None

    def _end_revoked(self) -> None:
        """End the connections of those whose certificates were taken back."""
        if self.security is not None and self._transport is not None:
            reason = "the certificate was taken back"
            ended = self._transport.close_where(self.security.is_revoked, reason)
            self.counters.add("a connection with a certificate that was taken back", ended)

    # --- for people ----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The state of the node as plain values."""
        driver = self._running()
        assert self._transport is not None
        described = driver.node.describe()
        return {
            "node": self._name,
            "network": self.settings.network,
            **self._figures.as_dict(),
            "overlay": {"name": self.settings.overlay, **described["overlay"]},
            "links": described["links"],
            "refused": dict(driver.node.refusals),
            "connections": self._transport.status(),
            "subscriptions": len(self._sinks),
            "publications_under_way": len(self._publications),
            "timers": driver.timer_count,
            "durable_subscriptions": sorted(self._durables.filters() if self._durables else ()),
            "mirrors": self._mirroring.status() if self._mirroring else {},
            "store": self._store.status() if self._store is not None else {},
            "loop": {} if self._monitor is None else self._monitor.status(),
            "counters": self.counters.as_dict(),
        }

    # --- what the driver says ------------------------------------------------------------------

    def on_deliver(self, effect: Deliver) -> None:
        """An event for subscriptions of this node."""
        sinks, publication, hops = self._sinks, effect.publication, effect.hops
        self._figures.delivered(len(effect.subscriptions))
        durable: list[str] = []
        for name in effect.subscriptions:
            sink = sinks.get(name)
            if sink is not None:
                sink.deliver(publication, hops, None)
            else:
                durable.append(name)
        if durable and self._durables is not None:
            self._durables.take(effect, durable)

    def on_deliver_batch(self, effect: DeliverBatch) -> None:
        """Many events for subscriptions of this node."""
        sinks, batch, hops = self._sinks, effect.batch, effect.hops
        self._figures.delivered(sum(len(rows) for _, rows in effect.wanted))
        durable: list[tuple[str, np.ndarray]] = []
        for name, rows in effect.wanted:
            sink = sinks.get(name)
            if sink is not None:
                sink.deliver_batch(batch, rows, hops)
            else:
                durable.append((name, rows))
        if durable and self._durables is not None:
            self._durables.take_batch(effect, durable)

    def on_ready(self, subscription: str) -> None:
        """The overlay keeps its promise for the subscription."""
        sink = self._sinks.get(subscription)
        if sink is not None:
            sink.ready()
        elif self._mirroring is not None:
            self._mirroring.on_ready(subscription)

    def on_move_proposed(self, subscription: str, node: str) -> None:
        """The subscriber may do as it likes; a durable subscription stays where its log is."""
        sink = self._sinks.get(subscription)
        if sink is not None:
            sink.move_proposed(node)

    def on_published(self, name: str, failure: str | None) -> None:
        """A publication has ended."""
        self._publications.end(name, failure)

    def persist(self, records: Sequence[tuple[int, Record]], then: OnPersisted) -> None:
        """Keep the records, as far as they are to outlive the node."""
        assert self._durables is not None
        self._durables.persist(records, then)

    def on_mirror_work(self, task: MirrorTask) -> None:
        """The mirror peer needs the disk, or a durable subscription."""
        if self._mirroring is not None:
            self._mirroring.work(task)

    def on_client(self, connection: Connection, messages: Sequence[Message]) -> bool:
        """Somebody who is no node has connected."""
        take = self.on_client_connection
        return take is not None and take(connection, messages)

    def on_relieved(self) -> None:
        """Congestion has ended."""
        if self._relieved is not None:
            self._relieved.set()
