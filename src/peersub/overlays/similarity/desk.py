"""`Desk`: what a node, not one of its members, does in the similarity graph.

* It knows some nodes, and some members elsewhere (*contacts*). Whoever joins asks a node for
  members; a node that has its first member tells the nodes that it knows, so that those without
  members have somewhere to publish.
* Now and then it asks one of the nodes that it knows, so that groups of members meet that know
  nothing of each other.
* It offers its sample to the nodes that it has links to: at once to all of them when the sample has
  changed, else to one at a time.
* It goes on trying to reach nodes that it lost and those that it joined by (`core.probing`): so
  parts of a split network find each other, and a node is found that starts again and knows nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from peersub.overlays.core.causes import Timer
from peersub.overlays.core.draws import draw
from peersub.overlays.core.effects import SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.probing import Probing
from peersub.overlays.semantic.hosting import ANY_LIFE
from peersub.overlays.semantic.sample_messages import SampleEvents, SampleKeys, SampleOffered
from peersub.overlays.similarity import messages as say
from peersub.overlays.similarity.messages import Profile

if TYPE_CHECKING:
    from peersub.overlays.similarity.member import SimilarityMember
    from peersub.overlays.similarity.peer import SimilarityPeer

__all__ = ["PROBE", "Desk"]

PROBE: Final = Timer("similarity/probe")
CONTACTS_MAX: Final = 16
"""Members elsewhere that a desk remembers."""
NODES_MAX: Final = 64
"""Nodes that it remembers."""
NAMED_NODES_MAX: Final = 8
"""Nodes that it names to others, and that it tells of its first member."""
ASK_EVERY: Final = 6
"""Ticks, on average, between questions to one of the nodes that are known,"""
ASK_RARELY: Final = 24
"""and when so many ticks have brought nothing new."""
OFFER_EVERY: Final = 4
"""Ticks between offers of a sample that has not changed."""
_KEPT_NODES: Final = 2
"""Nodes that it keeps links to while it has no member."""


class Desk:
    """The peer in slot 0."""

    def __init__(self, host: SimilarityPeer, emit: Callable[[SetTimer], None]) -> None:
        self.takes_part = False
        self.probing = Probing(host.me, host.seed, PROBE, host.settings.probe_ms, emit)
        self._host = host
        self._contacts: dict[PeerId, Profile] = {}
        self._nodes: dict[str, None] = {}
        self._join_nodes: tuple[str, ...] = ()
        self._asked: dict[str, int] = {}
        """Nodes that were asked for members, and until when an answer is waited for."""
        self._newcomers: list[SimilarityMember] = []
        """Members that wait for an answer about others, to begin their search."""
        self._turn = 0
        self._news_until = ASK_RARELY
        self._offered = b""

    # --- coming --------------------------------------------------------------------------------

    @property
    def is_awake(self) -> bool:
        """Whether there is anything to do as time goes by."""
        return bool(self._nodes or self._asked or self._join_nodes or self._host.links())

    def start(self, now_ms: int) -> None:
        """Begin a network."""
        self.takes_part = True
        self._let_newcomers_search(now_ms)

    def join(self, nodes: tuple[str, ...], now_ms: int) -> None:
        """Take part in the network of these nodes."""
        self._join_nodes = tuple(node for node in nodes if node != self._host.me.node)
        if not self._join_nodes:
            self.start(now_ms)
            return
        self.probing.add_contacts(self._join_nodes, now_ms)
        for node in self._join_nodes:
            self._remember_node(node)
        self._ask(self._join_nodes[0], now_ms)

    def introduce(self, member: SimilarityMember, now_ms: int) -> None:
        """A member has moved in: find others for it."""
        self._newcomers.append(member)
        for other in self._host.members():
            if other is not member:
                member.learn(tuple(other.known.values()))
        member.learn(tuple(self._contacts.values()))
        if len(self._host.members()) == 1 or not member.known:
            # Those that know of no member are to learn of this one.
            for node in list(self._nodes)[:NAMED_NODES_MAX]:
                self._ask(node, now_ms)
        if self.takes_part and not self._asked:
            self._let_newcomers_search(now_ms)

    def _let_newcomers_search(self, now_ms: int) -> None:
        newcomers, self._newcomers = self._newcomers, []
        for member in newcomers:
            if self._host.hosts(member.me):
                member.learn(tuple(self._contacts.values()))
                member.search(now_ms)

    def _ask(self, node: str, now_ms: int) -> None:
        if node in self._asked or self._host.is_leaving:
            return
        self._asked[node] = now_ms + self._host.settings.answer_ms
        self._send_wanted(node)

    def _send_wanted(self, node: str) -> None:
        profiles = tuple(member.profile for member in self._host.members())
        message = say.MembersWanted(0, 0, profiles[: self._host.settings.answer_profiles])
        self._host.send(PeerId(node, ANY_LIFE), message)

    # --- messages ------------------------------------------------------------------------------

    def on_message(self, sender: PeerId, message: Message, now_ms: int) -> None:
        """Another desk says something."""
        match message:
            case say.MembersWanted(profiles=profiles):
                self._on_members_wanted(sender, profiles)
            case say.MembersKnown(profiles=profiles, nodes=nodes):
                self._on_members_known(sender, profiles, nodes, now_ms)
            case SampleOffered() | SampleKeys() | SampleEvents():
                for answer in self._host.sample.answers(message):
                    self._host.send(sender, answer)
            case _:
                self._host.drop(f"a node does not know {type(message).__name__}", sender)

    def _on_members_wanted(self, sender: PeerId, profiles: tuple[Profile, ...]) -> None:
        if not self.takes_part:
            return  # It waits for an answer itself, and is asked again.
        self._remember_node(sender.node)
        self._remember(profiles)
        answer_profiles = max(self._host.settings.answer_profiles, self._host.settings.clique_up_to)
        own = [member.profile for member in self._host.members()]
        # Hearsay only while somebody keeps a link there: who is gone is soon forgotten.
        known = [
            profile
            for peer, profile in self._contacts.items()
            if peer.node != sender.node and self._host.hosting.is_linked(peer.node)
        ]
        nodes = [node for node in self._nodes if node != sender.node][:NAMED_NODES_MAX]
        named = tuple((own + known)[:answer_profiles])
        self._host.send(sender, say.MembersKnown(0, 0, named, tuple(nodes)))

    def _on_members_known(
        self, sender: PeerId, profiles: tuple[Profile, ...], nodes: tuple[str, ...], now_ms: int
    ) -> None:
        self._asked.pop(sender.node, None)
        was_missing = sender.node in self.probing.missing
        self.probing.found(sender.node, now_ms)
        self.takes_part = True
        self._remember_node(sender.node)
        for node in nodes:
            self._remember_node(node)
        self._remember(profiles)
        if not self._asked:
            self._let_newcomers_search(now_ms)
        if was_missing:
            for member in self._host.members():
                member.search(now_ms)

    # --- what it knows -------------------------------------------------------------------------

    def contact(self) -> PeerId | None:
        """A member elsewhere, one on a node with a link first."""
        linked = [peer for peer in self._contacts if self._host.hosting.is_linked(peer.node)]
        return next(iter(linked or self._contacts), None)

    def remember_contacts(self, member: SimilarityMember) -> None:
        """The member goes: whom it was linked with may still be of use."""
        known = member.known
        self._remember(tuple(known[peer] for peer in member.neighbours() if peer in known))

    def _remember(self, profiles: tuple[Profile, ...]) -> None:
        for member in self._host.members():
            member.learn(profiles)
        for profile in profiles:
            if profile.peer.node != self._host.me.node:
                if profile.peer not in self._contacts and len(self._contacts) < CONTACTS_MAX:
                    self._news_until = self._turn + ASK_RARELY
                self._contacts[profile.peer] = profile
                self._remember_node(profile.peer.node)
        while len(self._contacts) > CONTACTS_MAX:
            del self._contacts[next(iter(self._contacts))]

    def _remember_node(self, node: str) -> None:
        if node == self._host.me.node:
            return
        self._nodes.pop(node, None)
        self._nodes[node] = None
        while len(self._nodes) > NODES_MAX:
            del self._nodes[next(iter(self._nodes))]

    def needs(self, node: str) -> bool:
        """Whether it needs the link to a node."""
        if node in self._asked or self._newcomers:
            return True
        contact = None if self._host.members() else self.contact()
        if contact is not None:
            return contact.node == node
        linked = [known for known in self._nodes if self._host.hosting.is_linked(known)]
        return not self._host.members() and node in linked[:_KEPT_NODES]

    # --- as time goes by -----------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Ask again where nobody answered, and offer the sample."""
        self._turn += 1
        for node in [node for node, until_ms in self._asked.items() if until_ms <= now_ms]:
            del self._asked[node]
        self._look_for_members(now_ms)
        self._offer_sample()
        if self.takes_part and not self._asked:
            self._let_newcomers_search(now_ms)

    def _look_for_members(self, now_ms: int) -> None:
        """While it takes no part yet, or it knows of no member at all."""
        is_alone = not self._contacts and not any(m.neighbours() for m in self._host.members())
        nodes = self._join_nodes if not self.takes_part else tuple(self._nodes)
        if not nodes or self._asked:
            return
        every = ASK_EVERY if self._turn < self._news_until else ASK_RARELY
        if not self.takes_part or is_alone:
            self._ask(nodes[self._turn % len(nodes)], now_ms)
        elif self._drawn("pause") % every == 0:
            # Two groups of members that know nothing of each other meet over nodes.
            self._ask(nodes[self._drawn("ask") * len(nodes) >> 64], now_ms)

    def _offer_sample(self) -> None:
        digest = self._host.sample.digest
        # Links that nobody needs are not kept busy by this.
        linked = [peer for peer in self._host.links() if self._host.is_needed(peer.node)]
        if not linked:
            return
        if digest == self._offered:
            if self._turn % OFFER_EVERY:
                return
            linked = [linked[self._drawn("offer") * len(linked) >> 64]]
        self._offered = digest
        for peer in linked:
            self._host.send(peer, self._host.sample.offer())

    def _drawn(self, purpose: str) -> int:
        return draw(self._host.seed, f"similarity/{purpose}", *self._host.me, self._turn)

    def on_probe_timer(self, now_ms: int) -> None:
        """Ask the nodes whose turn it is: nobody waits for their answer."""
        due = self.probing.take_due(now_ms)
        if self.takes_part and not self._host.is_leaving:
            for node in due:
                self._send_wanted(node)

    def on_lost(self, peer: PeerId, now_ms: int) -> None:
        """A node, or a single member, cannot be reached."""
        for contact in [
            contact
            for contact in self._contacts
            if contact.node == peer.node
            and peer.incarnation in (contact.incarnation, ANY_LIFE)
            and peer.slot in (contact.slot, 0)
        ]:
            del self._contacts[contact]
        if peer.slot or peer.node == self._host.me.node:
            return
        self._asked.pop(peer.node, None)
        self._nodes.pop(peer.node, None)
        if self.takes_part:
            if peer.node not in self.probing.missing:
                self.probing.lost(peer, now_ms)
        elif peer.node in self._join_nodes:
            rest = [node for node in self._join_nodes if node not in self._asked]
            after = rest.index(peer.node) + 1
            if after < len(rest):
                self._ask(rest[after], now_ms)
        if self.takes_part and not self._asked:
            self._let_newcomers_search(now_ms)

    def install(self, others: list[SimilarityPeer]) -> None:
        """Know some nodes and members: for a start that is set."""
        others.sort(
            key=lambda peer: draw(
                self._host.seed, "similarity/contact", self._host.me.node, peer.me.node
            )
        )
        for peer in others[:NAMED_NODES_MAX]:
            self._remember_node(peer.me.node)
        for peer in others:
            for member in peer.members():
                if len(self._contacts) < CONTACTS_MAX // 2:
                    self._contacts[member.me] = member.profile
