"""The shell: a node's life, what waits for it, and when a subscription is ready."""

import pytest

from peersub.filters import Filter
from peersub.overlays import registry
from peersub.overlays.core.causes import (
    ConnectFailed,
    Join,
    Leave,
    PeerConnected,
    PeerLost,
    Persisted,
    Publish,
    Received,
    Start,
    Subscribe,
    TimerFired,
)
from peersub.overlays.core.effects import (
    HAS_LEFT,
    Connect,
    Deliver,
    Disconnect,
    Drop,
    Notice,
    Persist,
    PublishCompleted,
    PublishFailed,
    Send,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.router import Router
from peersub.overlays.core.shell import PUBLICATIONS_HELD_MAX, Phase, Shell, ShellSettings
from peersub.overlays.flood.messages import Flooded, NeighboursWanted
from peersub.overlays.settings import SettingsError

ME, B, C = PeerId("a"), PeerId("b"), PeerId("c")


class Notes(Router):
    """Sends nothing on, and writes down what it is told."""

    name = "notes"

    def __init__(self):
        self.told = []
        self.whole = True
        self.confirms = True

    def link_up(self, peer, greeting):
        self.told.append(("up", peer.node))

    def link_down(self, peer, reason):
        self.told.append(("down", peer.node))

    def on_message(self, peer, message, now_ms):
        if isinstance(message, Flooded):
            self.shell.forward((message.publication,), message.hops, peer, now_ms)
            return True
        return False

    def route(self, events, hops, sender):
        self.told.append(([event.id for event in events], hops, sender))

    def subscribe(self, name, wanted):
        if self.confirms:
            super().subscribe(name, wanted)

    def is_whole(self):
        return self.whole


def shell_of(**settings):
    router = Notes()
    return Shell(ME, router, ShellSettings(**settings), 1), router


def of(kind, effects):
    return [effect for effect in effects if isinstance(effect, kind)]


def publish(shell, *names, now_ms=0):
    return shell.handle(Publish(tuple(Publication(name, {"a": 1}) for name in names)), now_ms)


def test_a_node_that_is_told_to_begin_is_a_member_at_once():
    shell, router = shell_of()
    assert shell.phase is Phase.IDLE and not shell.takes_part
    shell.handle(Start(), 0)
    assert shell.takes_part
    assert of(PublishCompleted, publish(shell, "e")) and router.told == [(["e"], 0, None)]


def test_publications_wait_until_the_router_has_its_place_and_go_out_once():
    shell, router = shell_of()
    router.whole = False
    effects = shell.handle(Join(("b",)), 0)
    assert of(Connect, effects) == [Connect("b")]
    assert publish(shell, "e1", "e2") == []
    shell.handle(PeerConnected(B, b"", ()), 1)
    assert not shell.takes_part and router.told == [("up", "b")]
    router.whole = True
    effects = shell.handle(Received(B, ()), 2)
    assert [effect.event_id for effect in of(PublishCompleted, effects)] == ["e1", "e2"]
    assert router.told[1:] == [(["e1"], 0, None), (["e2"], 0, None)]
    assert of(PublishCompleted, shell.handle(Received(B, ()), 3)) == []


def test_what_waits_is_bounded_and_fails_when_the_node_leaves():
    shell, _ = shell_of()
    shell.handle(Join(("b",)), 0)
    names = [f"e{number}" for number in range(PUBLICATIONS_HELD_MAX + 1)]
    (failed,) = of(PublishFailed, publish(shell, *names))
    assert failed.event_id == names[-1] and "too much waits" in failed.reason
    left = of(PublishFailed, shell.handle(Leave(), 1))
    assert len(left) == PUBLICATIONS_HELD_MAX and {each.reason for each in left} == {HAS_LEFT}
    assert [each.reason for each in of(PublishFailed, publish(shell, "late"))] == [HAS_LEFT]


def test_who_finds_nobody_begins_a_network_and_goes_on_looking():
    shell, _ = shell_of(probe_ms=1_000)
    timers = of(SetTimer, shell.handle(Join(("b", "a")), 0))
    effects = shell.handle(ConnectFailed("b", "nobody answers"), 100)
    assert shell.takes_part and of(Notice, effects)
    now_ms, dialled = 0, []
    for _ in range(4):
        now_ms += timers[-1].delay_ms
        effects = shell.handle(TimerFired(timers[-1].timer), now_ms)
        timers = of(SetTimer, effects) or timers
        dialled += of(Connect, effects)
        shell.handle(ConnectFailed("b", "nobody answers"), now_ms)
    assert dialled and set(dialled) == {Connect("b")}


def test_who_is_refused_by_its_contact_is_no_network():
    shell, _ = shell_of()
    shell.handle(Join(("b",)), 0)
    shell.handle(ConnectFailed("b", "another network", refused=True), 1)
    assert not shell.takes_part


def test_a_neighbour_that_is_lost_is_looked_for():
    shell, router = shell_of(probe_ms=1_000)
    shell.handle(Start(), 0)
    shell.handle(PeerConnected(B, b"", ()), 1)
    (timer,) = of(SetTimer, shell.handle(PeerLost(B, "broke"), 2))
    assert router.told == [("up", "b"), ("down", "b")] and list(shell.links()) == []
    assert of(Connect, shell.handle(TimerFired(timer.timer), 2 + timer.delay_ms)) == [Connect("b")]


def test_a_subscription_is_ready_when_it_is_stored_and_confirmed_at_a_member():
    shell, router = shell_of()
    router.confirms = False
    shell.handle(Join(("b",)), 0)
    (stored,) = of(Persist, shell.handle(Subscribe("s", Filter("a = 1")), 1))
    assert of(SubscriptionReady, shell.handle(Persisted(stored.token), 2)) == []
    assert of(SubscriptionReady, shell.handle(PeerConnected(B, b"", ()), 3)) == []
    shell.confirm("s")
    assert of(SubscriptionReady, shell.handle(Received(B, ()), 4)) == [SubscriptionReady("s")]


def test_an_event_is_handed_over_and_routed_once_whichever_way_it_comes():
    shell, router = shell_of()
    shell.handle(Start(), 0)
    shell.handle(Subscribe("s", Filter("a = 1")), 0)
    for peer in (B, C):
        shell.handle(PeerConnected(peer, b"", ()), 1)
    event = Publication("e", {"a": 1})
    assert of(Deliver, shell.handle(Received(B, (Flooded(event, 1),)), 2))
    effects = shell.handle(Received(C, (Flooded(event, 1),)), 3)
    assert of(Deliver, effects) == [] and of(Drop, effects)[0].reason == "seen before"
    assert router.told[2:] == [(["e"], 1, B)]


def test_strangers_and_unknown_messages_are_not_heard():
    shell, router = shell_of()
    shell.handle(Start(), 0)
    (drop,) = shell.handle(Received(B, (Flooded(Publication("e", {}), 1),)), 1)
    assert "not linked" in drop.reason and router.told == []
    shell.handle(PeerConnected(B, b"", ()), 1)
    (drop,) = shell.handle(Received(B, (NeighboursWanted(),)), 2)
    assert drop.reason == "notes does not know neighbours-wanted"


def test_who_leaves_closes_its_links_and_makes_none():
    shell, _ = shell_of()
    shell.handle(Start(), 0)
    shell.handle(PeerConnected(B, b"", ()), 1)
    effects = shell.handle(Leave(), 2)
    assert of(Disconnect, effects) == [Disconnect(B, "leaves")]
    shell.handle(PeerConnected(C, b"", ()), 3)
    assert list(shell.links()) == [] and shell.handle(Leave(), 4) == []
    assert of(Send, shell.handle(Received(C, ()), 5)) == []


class EntryPoint:
    name = "mine"

    def __init__(self, loaded):
        self.load = lambda: loaded


@pytest.mark.parametrize(
    ("loaded", "complaint"),
    [
        (None, "there is no overlay 'mine'; there are: chord, "),
        (object(), "the entry point of the overlay 'mine' is no"),
        (registry.OVERLAYS["flood"], "the entry point of the overlay 'mine' is no"),
    ],
)
def test_an_overlay_that_is_none_is_refused(monkeypatch, loaded, complaint):
    points = [] if loaded is None else [EntryPoint(loaded)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    with pytest.raises(SettingsError) as error:
        registry.overlay_kind("mine")
    assert complaint in str(error.value)
