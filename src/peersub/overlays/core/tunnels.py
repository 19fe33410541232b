"""Tunnels: an edge that fails is not a node that fails (section 5.3; the digest's row 18).

Terpstra et al. take a lost connection for a lost peer. If both ends live, that cuts a living node
out of the ring. Here a node whose connection to a peer breaks, or cannot be made, asks the nodes it
has direct links to whether they reach the peer. One that has a direct link says yes at once; one
that has none tries to get one first, and the overlays hear nothing of that link. The first yes
wins: HELLO goes over that relay, and if the other end answers, the same session goes on where it
was; what is unacknowledged is sent again. Only if all say no, or time is up, the link is lost.

A relay passes `Tunnelled` messages on over its own direct link, without looking inside, and says
`TunnelBroken` when it no longer can; then the search begins again. There is never more than one
relay in between. Each end has a path of its own: both look for one, and either may use what the
other found. The direct way is tried again and again, and taken back when it works: the session sees
to order and to what is sent twice.

A link that was closed on purpose, or refused, is not looked for: `Goodbye` came before its end. An
end that gave up may still be heard over a relay, by a greeting that it sent before: what the other
end then says on the link is answered by a `Goodbye` that names it.

Bounds: `tunnel_candidates` nodes are asked once per broken path; `ASKERS_MAX` questions wait at
a relay; `USERS_MAX` nodes are remembered per target. A relay's own link that nobody has used for a
while is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.effects import CancelTimer, Connect, Drop, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link import Link, LinkState, Search
from peersub.overlays.core.link_messages import (
    Acknowledgement,
    Carried,
    Goodbye,
    TunnelAnswer,
    TunnelBroken,
    Tunnelled,
    TunnelRequest,
)
from peersub.overlays.core.versions import TUNNELS_FEATURE

if TYPE_CHECKING:
    from peersub.overlays.core.links import Links

__all__ = ["ASKERS_MAX", "USERS_MAX", "Tunnels"]

ASKERS_MAX = 1_024
"""Questions that a relay keeps until it knows the answer; the rest get a no."""

USERS_MAX = 256
"""Nodes that a relay remembers per target, to tell them when it loses the target."""

RELAY_IDLE_ROUNDS = 3
"""How many times `direct_retry_ms` a relay keeps a link of its own that nobody uses."""

ENDED_HERE = "the link has ended at the other side"

SEARCH = "link/search"
DIRECT = "link/direct"
RELAY = "link/relay"


class Tunnels:
    """The tunnels of one node: those it uses, and those it is the relay of."""

    def __init__(self, links: Links, relays_for: Callable[[str], Iterable[PeerId]]) -> None:
        self._links = links
        self._relays_for = relays_for
        self._offers: dict[str, str] = {}
        """Relays over which others reach this node, by the node that does."""
        self._askers: dict[str, dict[str, None]] = {}
        """Who waits for an answer, by target."""
        self._asking = 0
        self._users: dict[str, dict[str, None]] = {}
        """Who sent something to a target over this relay."""
        self._last_use_ms: dict[str, int] = {}
        """When a link that no overlay wants was last part of a tunnel."""
        self._idle_ms = RELAY_IDLE_ROUNDS * links.settings.direct_retry_ms

    # --- looking for a way ---------------------------------------------------------------------

    def search(self, link: Link) -> bool:
        """Look for another way to a node; whether there is any hope."""
        node = link.node
        self._answer(node, reachable=False)
        if not link.holders and not link.asked:
            return False
        was_up = link.state is LinkState.UP
        candidates = self._candidates(node)
        if not candidates:
            return False  # An offer would be among them.
        search = link.search = Search(candidates, direct_pending=was_up)
        if was_up:
            self._knock(link)
        offer = self.offer(link)
        if offer is not None:
            search.waiting.pop(offer, None)
            search.ready.append(offer)
            self._greet(link)
        for relay in list(search.waiting):
            self._links.say_reliably(relay, TunnelRequest(node))
        self._set(SEARCH, node, self._links.settings.tunnel_timeout_ms)
        return True

    def _candidates(self, node: str) -> list[str]:
        """The nodes to ask: those the overlay thinks of first, then any other."""
        table = self._links.table
        found: dict[str, None] = {}
        preferred = [peer.node for peer in self._relays_for(node)]
        for name in (*preferred, *table):
            link = table.get(name)
            if link is not None and name != node and _can_relay(link):
                found[name] = None
                if len(found) == self._links.settings.tunnel_candidates:
                    break
        return list(found)

    def on_answer(self, relay: str, target: str, *, reachable: bool) -> None:
        """A node that was asked has answered."""
        link = self._links.table.get(target)
        if link is None or link.search is None or relay not in link.search.waiting:
            return
        del link.search.waiting[relay]
        if not reachable:
            self._end_if_hopeless(link)
            return
        link.search.ready.append(relay)
        if len(link.search.ready) == 1:
            self._greet(link)

    def greet_again(self, link: Link) -> None:
        """No answer came over the relay that was tried: try the next one."""
        if link.is_connected:
            self._links.say_hello(link, link.node, expect_answer=True)
        if link.search is not None and link.search.ready:
            link.search.ready.append(link.search.ready.pop(0))
            self._greet(link)

    def _greet(self, link: Link) -> None:
        assert link.search is not None
        if link.state is LinkState.DIALLING:
            link.state = LinkState.GREETING
        self._links.say_hello(link, link.search.ready[0], expect_answer=True)

    def _withdraw(self, link: Link, relay: str) -> None:
        """A node that was asked, or said yes, is of no use after all."""
        search = link.search
        assert search is not None
        search.waiting.pop(relay, None)
        if relay in search.ready:
            was_used = search.ready[0] == relay
            search.ready.remove(relay)
            if was_used and search.ready:
                self._greet(link)
        self._end_if_hopeless(link)

    def direct_failed(self, link: Link) -> None:
        """The direct way, which was tried as well, does not work."""
        assert link.search is not None
        link.search.direct_pending = False
        self._answer(link.node, reachable=False)
        self._end_if_hopeless(link)

    def _end_if_hopeless(self, link: Link) -> None:
        if link.search is not None and link.search.is_hopeless:
            self._links.end(link, "it cannot be reached, neither directly nor over another node")

    # --- using a way ---------------------------------------------------------------------------

    def found(self, link: Link) -> None:
        """The node answers over the link's path: the search is over."""
        self._end_search(link)
        if link.path != link.node:
            self._set(DIRECT, link.node, self._links.settings.direct_retry_ms)
        elif link.state is LinkState.UP:
            self._answer(link.node, reachable=_can_relay(link))

    def _end_search(self, link: Link) -> None:
        if link.search is not None:
            link.search = None
            self._links.effects.append(CancelTimer(Timer(SEARCH, link.node)))

    def offered(self, link: Link, relay: str) -> None:
        """The other end uses a relay, while this one needs none."""
        self._offers[link.node] = relay

    def offer(self, link: Link) -> str | None:
        """The relay that the other end used last, if it is of use."""
        relay = self._offers.pop(link.node, None)
        carrier = None if relay is None else self._links.table.get(relay)
        return relay if carrier is not None and _can_relay(carrier) else None

    def on_broken(self, relay: str, target: str) -> None:
        """A relay has lost the target."""
        link = self._links.table.get(target)
        if link is None:
            return
        if link.search is not None:
            self._withdraw(link, relay)
        elif link.path == relay:
            self._links.broken(link, f"{relay} no longer reaches it")

    def disown(self, relay: str, tunnelled: Tunnelled) -> None:
        """A node speaks, over a relay, on a link that has ended here: let it know.

        It took a greeting that was still under way then for a sign of life. Else it would speak to
        nobody until it has repeated itself often enough.
        """
        frame, link = tunnelled.message, self._links.table.get(relay)
        if link is not None and isinstance(frame, Carried | Acknowledgement):
            goodbye = Goodbye(frame.sender_epoch, frame.epoch, ENDED_HERE)
            self._links.say(link, Tunnelled(tunnelled.source.node, self._links.me, goodbye))

    def _try_direct(self, link: Link) -> None:
        """Try the direct way; and see whether the other end still answers over the relay."""
        if link.path is None or link.path == link.node or link.state is not LinkState.UP:
            return
        links = self._links
        self._knock(link)
        links.say_hello(link, link.path)
        self._set(DIRECT, link.node, links.settings.direct_retry_ms)

    def _knock(self, link: Link) -> None:
        """Try the direct way; there may be a connection over which no greeting has come yet."""
        if link.is_connected:
            self._links.say_hello(link, link.node, expect_answer=link.search is not None)
        else:
            self._links.effects.append(Connect(link.node))

    # --- being the relay -----------------------------------------------------------------------

    def on_request(self, asker: str, target: str) -> None:
        """Somebody wants to know whether this node reaches another."""
        link = self._links.table.get(target)
        if link is None and target != self._links.me.node and self._asking < ASKERS_MAX:
            self._links.dial(target)
        elif link is None or not self._may_become_direct(link) or self._asking >= ASKERS_MAX:
            reachable = link is not None and _can_relay(link)
            self._links.say_reliably(asker, TunnelAnswer(target, reachable))
            return
        askers = self._askers.setdefault(target, {})
        if asker not in askers:
            askers[asker] = None
            self._asking += 1

    def _may_become_direct(self, link: Link) -> bool:
        if link.search is not None:
            return link.search.direct_pending
        return link.state in (LinkState.DIALLING, LinkState.GREETING)

    def _answer(self, target: str, *, reachable: bool) -> None:
        askers = self._askers.pop(target, None)
        if askers:
            self._asking -= len(askers)
            for asker in askers:
                self._links.say_reliably(asker, TunnelAnswer(target, reachable))

    def relay(self, sender: str, tunnelled: Tunnelled) -> None:
        """Pass a message on."""
        target, source = tunnelled.target, tunnelled.source.node
        link = self._links.table.get(target)
        if source != sender:
            reason = f"a message that is to be relayed again: of {source}, over {sender}"
            self._links.effects.append(Drop(reason, None, tunnelled.source))
        elif link is None or not _can_relay(link):
            self._links.say_reliably(sender, TunnelBroken(target))
        else:
            self._links.say(link, tunnelled)
            self.used(target)
            users = self._users.setdefault(target, {})
            if len(users) < USERS_MAX:
                users[source] = None

    def used(self, node: str) -> None:
        """Something went through a tunnel over the link to a node, at either end or as a relay."""
        link = self._links.table.get(node)
        if link is not None and not link.wanted:
            self._last_use_ms[node] = self._links.now_ms

    def _close_if_idle(self, link: Link) -> None:
        """A link that no overlay wants is kept while it is used."""
        used_ms = self._last_use_ms.get(link.node)
        if link.wanted or link.state is not LinkState.UP:
            self._last_use_ms.pop(link.node, None)
        elif used_ms is None or self._links.now_ms - used_ms >= self._idle_ms:
            self._links.close(link, "nobody uses it as a tunnel any more")
        else:
            self._set(RELAY, link.node, self._idle_ms)

    # --- what happens to links -----------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        """A link is up: those who asked for it get their answer."""
        if not link.wanted:
            self._set(RELAY, link.node, self._idle_ms)
        self._answer(link.node, reachable=_can_relay(link))

    def link_ended(self, link: Link) -> None:
        """A link is gone for good."""
        node = link.node
        self._offers.pop(node, None)
        self._last_use_ms.pop(node, None)
        self._end_search(link)
        self._answer(node, reachable=False)
        self.connection_lost(node)

    def connection_lost(self, node: str) -> None:
        """There is no direct way to a node: it relays nothing, and nothing is relayed to it."""
        for user in self._users.pop(node, {}):
            self._links.say_reliably(user, TunnelBroken(node))
        for link in list(self._links.table.values()):
            if link.node == node or self._links.table.get(link.node) is not link:
                continue
            if link.search is not None:
                self._withdraw(link, node)
            elif link.path == node:
                self._links.broken(link, f"the relay {node} was lost")

    def timer_fired(self, timer: Timer) -> None:
        """A timer of the tunnels."""
        link = self._links.table.get(timer.about)
        if link is None:
            return
        if timer.purpose == SEARCH and link.search is not None:
            self._links.end(link, "no way to it was found in time")
        elif timer.purpose == DIRECT:
            self._try_direct(link)
        elif timer.purpose == RELAY:
            self._close_if_idle(link)

    def _set(self, purpose: str, node: str, delay_ms: int) -> None:
        self._links.effects.append(SetTimer(Timer(purpose, node), delay_ms))


def _can_relay(link: Link) -> bool:
    return link.is_direct and TUNNELS_FEATURE in link.features
