"""Who owes a confirmation: parts of peers in doubt go to others, and their places end with them."""

from dataclasses import dataclass, field

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.delegations import Delegations, DelegationSettings, Part, Task
from peersub.overlays.routing.messages import Confirm, Notify
from peersub.overlays.routing.topology import NOWHERE, Scope

SLOW, NEAR, FAR = PeerId("slow"), PeerId("near"), PeerId("far")
EVENT = Publication("e1", {"x": 1})
WHOLE, PLACE, REST = (0, 100), (10, 1), (11, 39)


REPEAT_MS = DelegationSettings().repeat_after_ms


@dataclass
class Owed:
    """Delegations of a node that knows three peers; the slow one stands at 10."""

    place: Scope = PLACE
    sent: list[tuple[PeerId, Notify | Confirm]] = field(default_factory=list)
    finished: list[Task] = field(default_factory=list)
    spread: list[Scope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.delegations = Delegations(
            DelegationSettings(),
            lambda peer, message: self.sent.append((peer, message)),
            lambda task, scope, now_ms: self.spread.append(scope),
            self.detour,
            self.serve,
            self.finished.append,
        )
        task = self.delegations.own(EVENT, WHOLE, 0)
        assert task is not None
        self.delegations.delegate(task, SLOW, (10, 40), 0, EVENT)
        self.delegations.delegate(task, FAR, (50, 50), 0, EVENT)

    def detour(self, task: Task, part: Part, now_ms: int) -> Scope:
        self.delegations.delegate(task, NEAR, REST, now_ms, part.content)
        return self.place

    def serve(self, task: Task, scope: Scope, now_ms: int) -> None:
        self.spread.append(scope)
        self.delegations.check(task, now_ms)

    def confirm(self, *peers: PeerId) -> None:
        """Let them confirm all that was sent to them."""
        for peer, message in list(self.sent):
            if peer in peers and isinstance(message, Notify):
                self.delegations.on_confirm(peer, Confirm("e1", message.delegation), 0)


def test_others_serve_what_a_peer_in_doubt_owes_and_it_keeps_its_place():
    owed = Owed()
    owed.delegations.relieve(SLOW, 300)
    assert [(peer, message.scope) for peer, message in owed.sent[2:]] == [(NEAR, REST)]
    owed.confirm(FAR, NEAR)
    assert owed.finished == []
    owed.delegations.repeat(SLOW, 400)
    assert owed.sent[-1][1].scope == PLACE
    owed.confirm(SLOW)
    assert len(owed.finished) == 1


def test_a_doubt_that_returns_relieves_nobody_twice():
    owed = Owed()
    owed.delegations.relieve(SLOW, 300)
    owed.delegations.relieve(SLOW, 600)
    assert len(owed.sent) == 3


def test_the_place_of_a_peer_ends_with_it():
    owed = Owed()
    owed.delegations.relieve(SLOW, 300)
    owed.confirm(FAR, NEAR)
    owed.delegations.peer_gone(SLOW)
    owed.delegations.redelegate(700)
    # Others may hold for who was lost, after a while: all is served once more, and nobody waits for
    # the lost one.
    assert owed.delegations.has_repeats
    owed.delegations.on_repeat(700 + REPEAT_MS - 1)
    assert owed.spread == [] and owed.finished == []
    owed.delegations.on_repeat(700 + REPEAT_MS)
    assert owed.spread == [WHOLE] and not owed.delegations.has_repeats
    assert len(owed.finished) == 1


def test_what_is_published_while_a_member_is_lost_is_served_twice_before_it_is_confirmed():
    owed = Owed()
    owed.delegations.member_lost(100)
    owed.confirm(FAR, SLOW)
    assert owed.finished == []
    owed.delegations.on_repeat(100 + REPEAT_MS)
    assert owed.spread == [WHOLE] and len(owed.finished) == 1
    for began_ms, is_near in ((100 + REPEAT_MS, True), (101 + REPEAT_MS, False)):
        task = owed.delegations.own(EVENT, WHOLE, began_ms)
        assert task is not None
        owed.delegations.check(task, began_ms)
        assert (task in owed.finished) is not is_near


def test_what_was_never_relieved_is_spread_anew():
    owed = Owed()
    owed.delegations.peer_gone(SLOW)
    owed.delegations.redelegate(700)
    assert owed.spread == [(10, 40)]


def test_a_peer_that_stands_elsewhere_is_not_waited_for():
    owed = Owed(place=NOWHERE)
    owed.delegations.relieve(SLOW, 300)
    owed.confirm(FAR, NEAR)
    assert len(owed.finished) == 1
