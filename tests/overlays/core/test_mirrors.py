"""Mirrors of durable subscriptions: who looks after what, and what passes when somebody returns."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from overlays.core.mirror_world import SETTINGS, MirrorWorld
from peersub.filters import Filter
from peersub.overlays.core.causes import Leave, PeerConnected, PeerInDoubt, Received
from peersub.overlays.core.effects import Drop, Effect, MirrorWork
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.mirror_home import STEADY_MS
from peersub.overlays.core.mirror_messages import (
    HeldEvent,
    MirrorCopy,
    MirrorEnded,
    MirrorHolds,
    MirrorMisses,
    MirrorReady,
    MirrorReleased,
    MirrorWanted,
    NamedFilter,
)
from peersub.overlays.core.mirror_tasks import ReadHeld
from peersub.overlays.core.mirror_walks import WALKS_AT_ONCE, WalkKey, Walks
from peersub.overlays.core.mirrors import MIRROR_SLOT
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.rumour_messages import RumourSet
from peersub.overlays.core.store_marks import LifeMark
from strategies import examples


def mirrored_world(names: str = "hxy") -> tuple[MirrorWorld, str]:
    """A world with a durable subscription on h, and its mirror."""
    world = MirrorWorld(names)
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    (mirror,) = world.mirrors_of("h")
    assert world.peers["h"].home.mirror == mirror
    return world, mirror


def sent(world: MirrorWorld, kind: type) -> list[tuple[str, str]]:
    return [(source, target) for source, target, what in world.messages if isinstance(what, kind)]


# --- ready -------------------------------------------------------------------------------------


def test_a_subscription_is_ready_when_its_mirror_is():
    world = MirrorWorld("hx")
    world.link("h", "x")
    world.subscribe("h", "s")
    assert world.keepers["h"].ready_names == [] and world.peers["h"].home.waits_for("s") == "x"
    world.settle()
    assert world.keepers["h"].ready_names == ["s"] and world.peers["h"].home.waits_for("s") is None
    assert world.served["x"] == {("h", "s")}


def test_who_is_alone_waits_for_nobody_and_is_mirrored_as_soon_as_there_is_somebody():
    world = MirrorWorld("hx")
    world.subscribe("h", "s")
    assert world.keepers["h"].ready_names == ["s"]
    assert world.publish("h", "s", "e1")
    world.link("h", "x")
    world.settle()
    assert world.retained("x", "h") == ["e1"]


def test_nobody_waits_for_ever_for_a_mirror_that_does_not_answer():
    world = MirrorWorld("hx")
    world.link("h", "x")
    world.keepers["x"].look_after = lambda *_: None  # type: ignore[method-assign]
    world.subscribe("h", "s")
    world.pass_ms(SETTINGS.ready_ms - 200)
    assert world.keepers["h"].ready_names == []
    world.pass_ms(400)
    assert world.keepers["h"].ready_names == ["s"]
    assert any("without its mirror" in reason for reason in world.drops)


# --- what passes -------------------------------------------------------------------------------


def test_what_the_consumer_took_is_released():
    world, mirror = mirrored_world()
    for number in range(10):
        world.publish("h", "s", f"e{number}")
    assert len(world.retained(mirror, "h")) == 10
    world.consume("h", "s", 4)
    world.settle()
    assert world.retained(mirror, "h") == [f"e{number}" for number in range(4, 10)]


def test_a_home_that_returns_gets_what_it_missed_and_nothing_else():
    world, _ = mirrored_world()
    for number in range(5):
        world.publish("h", "s", f"a{number}")
    world.pass_ms(1_000)
    world.stop("h")
    for number in range(10):
        world.publish("h", "s", f"b{number}")
    world.pass_ms(5_000)
    world.start("h")
    world.pass_ms(1_000)  # The mirror dials: nobody else links the two.
    disk = world.disks["h"]
    assert disk.log["s"] == [f"a{n}" for n in range(5)] + [f"b{n}" for n in range(10)]
    assert sorted(world.keepers["h"].copies) == [f"b{n}" for n in range(10)]
    # Both held while it was away. One of them is its mirror now, and the other is let go.
    assert world.peers["h"].home.mirror in ("x", "y")
    world.consume("h", "s")
    world.settle()
    assert world.retained("x", "h") == world.retained("y", "h") == []


def test_an_empty_node_in_the_place_of_a_home_gets_subscriptions_and_events():
    world, mirror = mirrored_world()
    for number in range(5):
        world.publish("h", "s", f"a{number}")
    world.consume("h", "s", 2)
    world.settle()
    world.stop("h")
    world.publish("h", "s", "b0")
    world.start("h", empty=True)
    world.pass_ms(1_000)
    assert list(world.disks["h"].durables) == ["s"]
    assert world.disks["h"].log["s"] == ["a2", "a3", "a4", "b0"]
    told = LifeMark.read(world.disks[mirror].mirrored["h", "s"].epoch)
    assert told.epoch == world.disks["h"].epoch
    assert world.mirrors_of("h") == [mirror]


def test_a_subscription_that_ended_while_the_mirror_was_away_does_not_come_back():
    world, mirror = mirrored_world()
    world.publish("h", "s", "e1")
    world.stop(mirror)
    world.unsubscribe("h", "s")
    world.start(mirror)
    world.pass_ms(1_000)
    assert world.disks["h"].durables == {} and world.mirrors_of("h") == []
    assert world.retained(mirror, "h") == []


def test_a_release_that_was_lost_is_made_good():
    world, mirror = mirrored_world()
    for number in range(7):
        world.publish("h", "s", f"e{number}")
    world.blocked.add(frozenset(("h", mirror)))
    world.unlink("h", mirror)
    world.consume("h", "s", 5)
    world.settle()
    assert len(world.retained(mirror, "h")) == 7
    world.blocked.clear()
    world.pass_ms(500)
    assert world.retained(mirror, "h") == ["e5", "e6"]
    assert world.keepers["h"].copies == [] == world.keepers[mirror].copies


def test_what_only_the_mirror_got_reaches_the_home_without_an_interruption():
    """As when the home is back, and not yet subscribed again."""
    world, mirror = mirrored_world()
    world.pass_ms(1_000)
    world.disks[mirror].retain("h", "s", "lost")
    world.pass_ms(500)
    assert world.disks["h"].log["s"] == ["lost"]


def test_a_copy_that_was_not_stored_is_sent_again():
    world, _ = mirrored_world()
    world.stop("h")
    for number in range(4):
        world.publish("h", "s", f"e{number}")
    world.start("h")
    keeper = world.keepers["h"]
    take, lost = keeper.take, ["e1", "e2"]

    def take_all_but_some_the_first_time(partner: str, copy: MirrorCopy) -> None:
        if copy.publication.id in lost:
            lost.remove(copy.publication.id)
        else:
            take(partner, copy)

    keeper.take = take_all_but_some_the_first_time  # type: ignore[method-assign]
    world.pass_ms(500)
    assert sorted(world.disks["h"].log["s"]) == [f"e{number}" for number in range(4)]


def test_an_event_that_the_other_side_never_stores_holds_nothing_up():
    world, mirror = mirrored_world()
    world.stop("h")
    for number in range(9):
        world.publish("h", "s", f"e{number}")
    world.start("h")
    keeper = world.keepers["h"]
    take = keeper.take
    keeper.take = lambda partner, copy: (  # type: ignore[method-assign]
        None if copy.publication.id == "e4" else take(partner, copy)
    )
    world.pass_ms(500)
    assert sorted(world.disks["h"].log["s"]) == [f"e{n}" for n in range(9) if n != 4]
    assert world.drops == ["a mirrored event that the other side does not store"]
    assert "e4" in world.retained(mirror, "h")


def test_another_filter_is_another_subscription_of_the_mirror():
    world, mirror = mirrored_world()
    world.subscribe("h", "s", Filter("a = 1"))
    world.settle()
    assert world.disks[mirror].mirrored["h", "s"].filter.digest == Filter("a = 1").digest
    assert world.keepers["h"].ready_names == ["s", "s"]


# --- the choice --------------------------------------------------------------------------------


def test_a_mirror_that_is_away_for_a_moment_stays_the_mirror():
    world, mirror = mirrored_world()
    world.stop(mirror)
    world.pass_ms(SETTINGS.lost_ms // 2)
    world.start(mirror)
    world.pass_ms(5_000)
    assert world.peers["h"].home.mirror == mirror and world.mirrors_of("h") == [mirror]


def test_one_that_is_away_for_long_is_replaced_and_told_to_forget_when_it_returns():
    world, first = mirrored_world()
    for number in range(8):
        world.publish("h", "s", f"e{number}")
    world.consume("h", "s", 2)
    world.settle()
    world.stop(first)
    world.pass_ms(SETTINGS.lost_ms + 200)
    second = world.peers["h"].home.mirror
    assert second not in (None, first) and isinstance(second, str)
    assert world.retained(second, "h") == [f"e{n}" for n in range(2, 8)]
    world.start(first)
    world.pass_ms(1_000)
    assert world.mirrors_of("h") == [second] and world.retained(first, "h") == []


def test_a_former_mirror_first_hands_over_what_only_it_has():
    world, first = mirrored_world()
    world.stop("h")
    world.publish("h", "s", "e1")
    world.stop(first)
    world.start("h")
    world.link_all()
    world.pass_ms(SETTINGS.grace_ms + 200)
    second = world.peers["h"].home.mirror
    assert second not in (None, first) and world.disks["h"].log["s"] == []
    world.start(first)
    world.pass_ms(1_000)
    assert world.disks["h"].log["s"] == ["e1"] and world.mirrors_of("h") == [second]
    assert isinstance(second, str) and world.retained(second, "h") == ["e1"]


def test_a_former_mirror_hears_that_a_subscription_has_ended():
    world, first = mirrored_world()
    world.tell("h", PeerInDoubt(PeerId(first, 1)))
    world.pass_ms(SETTINGS.lost_ms + 200)
    assert world.peers["h"].home.mirror != first and ("h", "s") in world.served[first]
    world.unsubscribe("h", "s")
    world.settle()
    assert all(("h", "s") not in served for served in world.served.values())
    assert all(disk.mirrored == {} for disk in world.disks.values())


def test_walks_that_wait_have_their_turn_when_those_before_end_with_their_home():
    read: list[str] = []

    def emit(effect: Effect) -> None:
        assert isinstance(effect, MirrorWork) and isinstance(effect.task, ReadHeld)
        read.append(effect.task.name)

    def ignore(*_: object) -> None:
        pass

    walks = Walks(ignore, emit, ignore, SETTINGS.answer_ms, SETTINGS.recheck_ms)
    for number in range(WALKS_AT_ONCE):
        walks.begin(WalkKey("x", "a", f"a{number}"), 0, stays=False)
    walks.begin(WalkKey("x", "b", "b"), 0, stays=False)
    assert "b" not in read
    walks.end_home("a")
    walks.on_tick(100)
    assert read[-1] == "b"


def test_a_link_that_the_overlay_does_not_keep_is_no_place_for_a_mirror():
    world, first = mirrored_world()
    for _ in range(3):
        world.unlink("h", first)
        if world.peers["h"].home.mirror != first:
            break
        world.pass_ms(200)
    assert world.peers["h"].home.mirror != first


def test_losses_long_ago_do_not_count():
    world, first = mirrored_world()
    for _ in range(5):
        world.unlink("h", first)
        world.pass_ms(STEADY_MS + 1_000)
    assert world.peers["h"].home.mirror == first


def test_who_leaves_dials_nobody():
    world, mirror = mirrored_world()
    for node in (mirror, "h"):
        world.tell(node, Leave())
    world.unlink("h", mirror)
    world.pass_ms(2_000)
    assert ("h", mirror) not in world.links


def test_a_home_that_is_never_seen_again_is_forgotten():
    world = MirrorWorld("hx", replace(SETTINGS, horizon_ms=10_000))
    world.link("h", "x")
    world.subscribe("h", "s")
    world.settle()
    world.publish("h", "s", "e1")
    world.stop("h")
    world.pass_ms(9_000)
    assert world.mirrors_of("h") == ["x"]
    world.pass_ms(2_000)
    assert world.mirrors_of("h") == [] and world.retained("x", "h") == []
    world.pass_ms(1_000)
    assert not any(node == "x" for node, _ in world.ticks)  # Nothing is left to look after.


def test_two_nodes_are_each_others_mirrors():
    world = MirrorWorld("hx")
    world.link("h", "x")
    for home in "hx":
        world.subscribe(home, "s")
    world.settle()
    for number in range(5):
        world.publish("h", "s", f"h{number}")
        world.publish("x", "s", f"x{number}")
    assert world.retained("x", "h") == [f"h{n}" for n in range(5)]
    world.stop("x")
    world.publish("x", "s", "x5")
    world.start("x", empty=True)
    world.pass_ms(2_000)
    assert sorted(world.disks["x"].log["s"]) == [f"x{n}" for n in range(6)]
    assert world.retained("x", "h") == [f"h{n}" for n in range(5)]


# --- what others say ---------------------------------------------------------------------------


def test_many_subscriptions_are_gone_through_a_few_at_a_time():
    world, mirror = mirrored_world("hx")
    names = [f"s{number}" for number in range(30)]
    for name in names:
        world.subscribe("h", name)
    world.settle()
    for name in names:
        world.publish("h", name, f"e-{name}")
    world.stop(mirror)
    world.start(mirror, empty=True)
    world.pass_ms(2_000)
    assert world.retained(mirror, "h") == sorted(f"e-{name}" for name in names)
    assert world.peers["h"].home.mirrored == 31


def test_a_node_speaks_of_its_own_subscriptions_only():
    world, mirror = mirrored_world()
    other = "y" if mirror == "x" else "x"
    world.publish("h", "s", "e1")
    peer = PeerId(other, 1, MIRROR_SLOT)
    foul = (
        MirrorEnded(()),
        MirrorReleased("s", ("e1",)),
        MirrorCopy("h", ("s",), 1, Publication("forged", {})),
        MirrorHolds("h", "s", 1, (HeldEvent("e9", ("s",)),)),
        MirrorMisses("h", "s", 1, ("e1",)),
    )
    world.tell(mirror, Received(peer, foul, MIRROR_SLOT))
    world.settle()
    assert world.retained(mirror, "h") == ["e1"] and world.mirrors_of("h") == [mirror]
    # One that is not the mirror is not believed to be.
    world.tell("h", Received(peer, (MirrorReady(("s",)),), MIRROR_SLOT))
    assert world.peers["h"].home.mirror == mirror


def test_what_is_no_message_about_mirrors_is_dropped():
    world = MirrorWorld("h")
    peer = PeerId("x", 1, MIRROR_SLOT)
    wanted = MirrorWanted("x1", (NamedFilter("s", Filter("TRUE")),))
    assert world.peers["h"].handle(Received(peer, (wanted,), MIRROR_SLOT), 0) == []
    world.peers["h"].handle(PeerConnected(PeerId("x", 1)), 0)
    (drop,) = world.peers["h"].handle(Received(peer, (RumourSet(b""),), MIRROR_SLOT), 0)
    assert isinstance(drop, Drop)
    unsound = Publication("e", packed=b"?", unpack=lambda _: (_ for _ in ()).throw(ValueError()))
    (drop,) = world.peers["h"].handle(
        Received(peer, (MirrorCopy("h", ("s",), 1, unsound),), MIRROR_SLOT), 0
    )
    assert isinstance(drop, Drop) and world.keepers["h"].copies == []


# --- under faults ------------------------------------------------------------------------------

steps = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 3)), max_size=60)


@examples(150)
@given(steps)
def test_what_was_stored_anywhere_reaches_the_home_once_when_the_faults_are_over(happenings):
    names = "hxyz"
    world = MirrorWorld(names)
    world.link_all()
    world.subscribe("h", "s")
    stored: list[str] = []
    consumed: list[str] = []
    published = 0
    for kind, one, other in happenings:
        node, far = names[one], names[other]
        if kind <= 1:
            published += 1
            if world.publish("h", "s", f"e{published}"):
                stored.append(f"e{published}")
        elif kind == 2 and "h" in world.peers:
            consumed += world.consume("h", "s", other)
        elif kind == 3 and node in world.peers:
            world.stop(node)
        elif kind == 4 and node not in world.peers:
            world.start(node)
        elif kind == 5:
            world.unlink(node, far)
        elif kind == 6 and node != far:
            world.link(node, far)
        elif kind == 7:
            world.pass_ms(one * 400)
        for _ in range(other * 3):
            world.step()
    for node in names:
        if node not in world.peers:
            world.start(node)
    world.link_all()
    world.pass_ms(10_000)
    assert sorted(world.disks["h"].log["s"]) == sorted(stored)
    consumed += world.consume("h", "s")
    world.pass_ms(2_000)
    assert sorted(consumed) == sorted(stored)
    (mirror,) = world.mirrors_of("h")
    assert world.peers["h"].home.mirror == mirror and world.peers["h"].home.mirrored == 1
    assert all(world.retained(node, "h") == [] for node in names)
