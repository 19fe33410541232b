"""`Node`: what a driver drives. It hosts overlay peers, and gives them links that can be trusted.

A driver hands every cause to `Node.handle` and carries out the effects; it sees connections and
frames. The peers see links and plain messages:

* `PeerConnected` once both HELLOs agree, with the greeting of the peer at the other end; then
  reliable messages in order and exactly once until `PeerLost` (`links`, `session`, `tunnels`);
  `PeerInDoubt` while that may come, or not (`doubts`);
* `Received` with all that one batch held for the peer; what the peer sends to one other in answer
  to one cause leaves in one `Send`.

Slots: a node may host several peers. They share its links: each hears of every link, messages name
the slots, and a link is closed when none of the peers holds it any more. A *passive* peer uses the
links of the others: it keeps none open, and hears PeerLost when the others close one; one that it
asks for is theirs to keep. A `Send` between peers of one node is handed over here, in order, and
touches no link; a chain of such messages that does not end is cut off after `CAUSES_MAX` steps.

A *watcher* is a passive peer that has subscriptions of its own in the overlay (`mirror_names`), and
answers for the others' `Secure`: what concerns them passes between the two here.

Causes that are not about links are for the peer in one slot, which the driver names. Timers and
disk tokens of slots other than 0 are marked on their way out, and unmarked on their way in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from peersub.overlays.core.arrivals import LINK_MESSAGES, Arrivals
from peersub.overlays.core.causes import (
    Cause,
    ConnectFailed,
    MirrorNews,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    Persisted,
    PersistFailed,
    Received,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Deliver,
    DeliverBatch,
    Disconnect,
    Drop,
    Effect,
    Persist,
    Secure,
    Send,
    SetTimer,
    SubscriptionReady,
    TellOverlay,
)
from peersub.overlays.core.greetings import settings_digest
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import Link, LinkSettings, LinkState
from peersub.overlays.core.link_messages import Hello
from peersub.overlays.core.links import Links
from peersub.overlays.core.mirror_facts import (
    HeldBatch,
    HeldCopy,
    MirrorFact,
    OverlayDelivered,
    OverlayServes,
    SecureAsked,
)
from peersub.overlays.core.mirror_names import is_mirrors
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.core.publication import Delivery
from peersub.overlays.core.row_sets import rows_of
from peersub.overlays.core.versions import (
    KEYS_FEATURE,
    PROTOCOL_VERSION,
    TUNNELS_FEATURE,
    known_features,
)

__all__ = ["CAUSES_MAX", "SLOTS_MAX", "LinkSettings", "Node"]

CAUSES_MAX = 100_000
"""Causes that the peers of a node may give each other in answer to one from outside."""

SLOTS_MAX = 65_536

_LINK_TIMERS = "link/"
_SLOT_TIMER = "slot"
_LINK_MESSAGES = frozenset(LINK_MESSAGES)


class Node:
    """A node: its peers, and its links.

    Args:
        overlay: the peer in slot 0; its name, settings and greeting are the node's in HELLO.
        network: the name of the network; nodes of different networks refuse each other.
        settings: how links behave; the driver knows which suit its connections.
        version: the version of the protocol that HELLO names; for tests of upgrades.
        features: what HELLO offers beyond that version, next to what the settings offer.
    """

    def __init__(
        self,
        overlay: Overlay,
        *,
        network: str = "",
        settings: LinkSettings | None = None,
        version: tuple[int, int] = PROTOCOL_VERSION,
        features: tuple[str, ...] = (),
    ) -> None:
        assert overlay.me.slot == 0, "the first peer of a node lives in slot 0"
        self.overlay = overlay
        self.me = overlay.me
        self.network = network
        self.settings = settings or LinkSettings()
        self._version = version
        tunnels = (TUNNELS_FEATURE,) if self.settings.tunnels else ()
        self.features = (*tunnels, KEYS_FEATURE, *features)
        """What HELLO offers."""
        shared = {
            **overlay.shared_settings(),
            "links.acknowledge": str(self.settings.acknowledge).lower(),
        }
        self._shared = tuple(sorted(shared.items()))
        self._digest = settings_digest(shared)
        self._peers: dict[int, Overlay] = {0: overlay}
        self._slots: tuple[int, ...] = (0,)
        self._watcher: int | None = None
        self._links = Links(
            self.me,
            self.settings,
            self._hello,
            lambda: self._slots,
            lambda node: overlay.relays_for(node),
        )
        self._arrivals = Arrivals(self._links, self._hello)

    # --- for the driver ------------------------------------------------------------------------

    def handle(self, cause: Cause, now_ms: int, slot: int = 0) -> list[Effect]:
        """Take the cause in, and say what is to be done, in this order.

        `slot` names the peer that a cause is for if it is not about links.
        """
        links = self._links
        links.now_ms = now_ms
        if isinstance(cause, Received):
            self._on_received(cause)
        elif isinstance(cause, TimerFired):
            self._on_timer_fired(cause.timer)
        elif isinstance(cause, PeerConnected):
            links.connected(cause.peer)
        elif isinstance(cause, PeerLost):
            links.lost(cause.peer, cause.reason)
        elif isinstance(cause, ConnectFailed):
            links.connect_failed(cause.node, cause.reason, refused=cause.refused)
        elif isinstance(cause, PeerInDoubt):
            links.doubts.silent(cause.peer.node)
        elif isinstance(cause, PeerHeard):
            links.doubts.heard(cause.peer.node)
        elif isinstance(cause, Persisted | PersistFailed) and cause.token < 0:
            token, marked = divmod(-cause.token, SLOTS_MAX)
            self._tell(marked, replace(cause, token=token))
        else:
            self._tell(slot, cause)
        if links.causes:
            self._tell_all()
        return links.take_effects()

    def host(
        self,
        overlay: Overlay,
        *,
        passive: bool = False,
        feature: str = "",
        offers: tuple[str, ...] = (),
        watches: bool = False,
    ) -> None:
        """Another peer lives on this node from now on; links that are up it gets by Connect.

        A passive one must be there before the first link: it hears of all of them. One with a
        feature hears of those to nodes that offer it as well: others would not understand it.
        `offers` are further features, which it uses towards those that offer them.
        """
        slot = overlay.me.slot
        assert overlay.me == self.me._replace(slot=slot), "the peer is of another node"
        assert 0 < slot < SLOTS_MAX, f"there is no slot {slot}"
        assert slot not in self._peers, f"slot {slot} is not free"
        if passive:
            assert not self._links.table, "a passive peer comes before the first link"
            self._links.passive |= {slot}
        if feature:
            self._links.feature_of_slot[slot] = feature
            self.features = (*self.features, feature, *offers)
        if watches:
            self._watcher = slot
        self._peers[slot] = overlay
        self._slots = tuple(self._peers)

    def adopt_link(
        self, peer: PeerId, greeting: bytes = b"", features: tuple[str, ...] | None = None
    ) -> None:
        """A link is up from the start, without HELLO; the overlay knows of it already.

        For networks that are set up in a state which joins would reach. Both ends must be told,
        before anything else happens to the nodes. What the node at the other end offers, by
        default the same as this one, is all that the overlay is told of it.
        """
        if features is None:
            features = self.features
        self._links.adopt(peer, features)
        self._links.table[peer.node].greeting = greeting
        for overlay in self._peers.values():
            overlay.peer_offers(peer, features)

    # --- for people and checkers ---------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether nothing is half done: no HELLO, goodbye, search or resending under way."""
        return all(
            link.state is LinkState.UP
            and link.path is not None
            and (link.session is None or link.session.is_idle)
            for link in self._links.table.values()
        )

    def waiting_links(self) -> list[str]:
        """The nodes that have not acknowledged all that was said to them, on links that are up."""
        return [
            node
            for node, link in self._links.table.items()
            if link.state is LinkState.UP and link.session is not None and not link.session.is_idle
        ]

    def path_to(self, node: str) -> str | None:
        """Where messages for a node go now: to it, to a relay, or nowhere."""
        link = self._links.table.get(node)
        return None if link is None else link.path

    @property
    def refusals(self) -> Mapping[str, str]:
        """Nodes with which this one cannot work together, and what differs."""
        return self._links.refusals

    def describe(self) -> Mapping[str, Any]:
        """The state as plain values: links by node, and what the overlay says of itself."""
        table = self._links.table
        return {
            "links": {
                node: {"path": table[node].path, "state": table[node].state.value}
                for node in sorted(table)
            },
            "overlay": self.overlay.describe(),
        }

    # --- causes --------------------------------------------------------------------------------

    def _on_received(self, cause: Received) -> None:
        peer, messages = cause.peer, cause.messages
        link = self._links.table.get(peer.node)
        if link is not None and link.session is None and 0 in link.holders:
            for message in messages:
                if type(message) in _LINK_MESSAGES:
                    break
            else:
                # Nothing to open, and nothing to keep: the peer gets it as it is.
                if link.peer != peer:
                    cause = Received(link.peer, messages)
                self._perform(0, self.overlay.handle(cause, self._links.now_ms))
                return
        self._arrivals.receive(peer.node, messages)

    def _on_timer_fired(self, timer: Timer) -> None:
        if timer.purpose.startswith(_LINK_TIMERS):
            self._links.timer_fired(timer)
        elif timer.purpose == _SLOT_TIMER:
            slot, inner = timer.about
            self._tell(slot, TimerFired(inner))
        else:
            self._tell(0, TimerFired(timer))

    def _tell(self, slot: int, cause: Cause) -> None:
        self._perform(slot, self._peers[slot].handle(cause, self._links.now_ms))

    def _tell_all(self) -> None:
        """Hand on what links and peers have for the peers, in order, until there is no more."""
        links = self._links
        for _ in range(CAUSES_MAX):
            self._tell(*links.causes.take())
            if not links.causes:
                return
        links.causes.clear()
        reason = f"the peers of {self.me.node} have given each other {CAUSES_MAX:,} causes"
        self._links.effects.append(Drop(reason))

    # --- effects -------------------------------------------------------------------------------

    def _perform(self, slot: int, effects: Iterable[Effect]) -> None:
        links = self._links
        for effect in effects:
            if isinstance(effect, Send):
                self._send(slot, effect)
            elif isinstance(effect, Connect):
                links.connect(slot, effect.node)
            elif isinstance(effect, Disconnect):
                links.disconnect(slot, effect.peer, effect.reason)
            elif slot:
                if isinstance(effect, TellOverlay):
                    links.causes.add(0, effect.cause)
                else:
                    links.effects.append(_marked(slot, effect))
            elif isinstance(effect, Deliver | DeliverBatch | SubscriptionReady | Secure):
                links.effects.extend(self._show_watcher(effect))
            else:
                links.effects.append(effect)

    def _show_watcher(
        self, effect: Deliver | DeliverBatch | SubscriptionReady | Secure
    ) -> Iterable[Effect]:
        """Let the watcher have what is for it; what of the effect is left for the driver."""
        facts: list[MirrorFact] = []
        left: Effect | None = effect
        match effect:
            case Secure(token, events):
                left = None
                if self._watcher is None:
                    self._links.causes.add(0, Persisted(token))
                facts.append(SecureAsked(token, events))
            case SubscriptionReady(name) if is_mirrors(name):
                left = None
                facts.append(OverlayServes(name))
            case Deliver(publication, names, hops, again):
                its = tuple(filter(is_mirrors, names))
                if its:
                    others = tuple(name for name in names if not is_mirrors(name))
                    left = Deliver(publication, others, hops, again) if others else None
                    if publication.delivery is Delivery.BEST_EFFORT:
                        facts.append(OverlayDelivered(HeldCopy(publication, its, hops)))
            case DeliverBatch(batch, wanted, hops, again):
                if any(is_mirrors(name) for name, _ in wanted):
                    rest = tuple(each for each in wanted if not is_mirrors(each[0]))
                    left = DeliverBatch(batch, rest, hops, again) if rest else None
                    if batch.delivery is Delivery.BEST_EFFORT:
                        facts.append(_delivered(effect))
        if self._watcher is not None:
            for fact in facts:
                self._links.causes.add(self._watcher, MirrorNews(fact))
        return () if left is None else (left,)

    def _send(self, slot: int, send: Send) -> None:
        peer = send.peer
        if peer.node != self.me.node:
            self._links.send(slot, send)
        elif peer.incarnation == self.me.incarnation and peer.slot in self._peers:
            received = Received(self.me._replace(slot=slot), send.messages, peer.slot)
            self._links.causes.add(peer.slot, received)
        else:
            self._links.effects.append(Drop(f"{peer} does not live here", None, peer))

    # --- HELLO ---------------------------------------------------------------------------------

    def _hello(self, link: Link) -> Hello:
        return Hello(
            peer=self.me,
            epoch=link.epoch,
            network=self.network,
            version=self._version,
            features=known_features(self._version, self.features),
            overlay=self.overlay.name,
            settings_digest=self._digest,
            settings=self._shared,
            greeting=self.overlay.greeting(),
            heard=link.epoch_there,
            wanted=link.wanted,
        )


def _delivered(effect: DeliverBatch) -> OverlayDelivered:
    """The events of a batch that the watcher's subscriptions want."""
    numbers = effect.batch.numbers
    wanted = tuple(
        [
            (name, rows_of(numbers[rows].tolist()))
            for name, rows in effect.wanted
            if is_mirrors(name)
        ]
    )
    return OverlayDelivered(HeldBatch(effect.batch, wanted, effect.hops))


def _marked(slot: int, effect: Effect) -> Effect:
    """The effect of a peer that is not in slot 0, so that the answer finds its way back."""
    match effect:
        case SetTimer(timer, delay_ms):
            return SetTimer(Timer(_SLOT_TIMER, (slot, timer)), delay_ms)
        case CancelTimer(timer):
            return CancelTimer(Timer(_SLOT_TIMER, (slot, timer)))
        case Persist(token, record):
            return Persist(-(token * SLOTS_MAX + slot), record)
        case _:
            return effect
