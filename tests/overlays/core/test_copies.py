"""An acknowledged event is on the disks of as many nodes as promised, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.core.mirror_world import FEATURES, SETTINGS, MirrorWorld
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.causes import MirrorNews, PeerConnected, Received
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.mirror_copies import PUSHED_BYTES_MAX, Copies, Group
from peersub.overlays.core.mirror_duties import MirrorSide
from peersub.overlays.core.mirror_facts import HeldBatch, HeldCopy, SecureAsked
from peersub.overlays.core.mirror_links import MirrorLinks
from peersub.overlays.core.mirror_messages import (
    KeptFor,
    MirrorKeepBatch,
    MirrorKept,
    MirrorRowsKept,
)
from peersub.overlays.core.mirror_names import overlay_name
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.overlays.core.mirrors import MIRROR_SLOT
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.row_sets import rows_of
from peersub.overlays.core.versions import COPIES_FEATURE
from strategies import examples

WATCHED = replace(SETTINGS, witnesses=1)


def watched_world(names: str = "hxyz", settings: MirrorSettings = WATCHED) -> MirrorWorld:
    """A world with a durable subscription on h, which others look after."""
    world = MirrorWorld(names, settings)
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    return world


def test_nobody_confirms_before_an_event_is_on_two_disks():
    world = watched_world()
    (witness,) = world.peers["h"].home.witnesses
    mirror = world.peers["h"].home.mirror
    assert sorted(world.publish_acknowledged("h", "s", "e1", 7)) == sorted(["h", mirror, witness])
    assert world.answers(7) == {}
    world.settle()
    assert world.answers(7) == {"h": "", mirror: "", witness: ""}
    assert sorted(world.on_disks("h", "s", "e1")) == sorted(["h", mirror])


def test_one_copy_needs_no_mirror_and_still_somebody_watches():
    world = watched_world("hxy", replace(WATCHED, copies=1))
    assert world.peers["h"].home.mirror is None and len(world.peers["h"].home.witnesses) == 1
    (witness,) = world.peers["h"].home.witnesses
    world.publish_acknowledged("h", "s", "e1", 7)
    world.settle()
    assert world.answers(7) == {"h": "", witness: ""}
    world.stop("h")
    world.publish_acknowledged("h", "s", "e2", 8)
    world.pass_ms(WATCHED.lost_ms + 1_000)
    assert world.answers(8)[witness] == "" and world.on_disks("h", "s", "e2") == [witness]
    world.start("h")
    world.pass_ms(2_000)
    assert world.disks["h"].log["s"] == ["e1", "e2"]


def test_who_is_alone_waits_and_then_fails_in_clear_words():
    world = watched_world("h")
    world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(SETTINGS.copies_wait_ms - 1_000)
    assert world.answers(7) == {}
    world.pass_ms(2_000)
    reason = world.answers(7)["h"]
    assert "1 of 2 nodes" in reason and "--copies 1" in reason and "may have reached" in reason
    # Whoever asks again waits again.
    world.publish_acknowledged("h", "s", "e1", 8)
    world.pass_ms(1_000)
    assert world.answers(8) == {}


def test_a_publisher_learns_nothing_of_whose_event_lacks_copies_and_people_here_do():
    world = watched_world("h")
    names = tuple(f"subscription-{number:060}" for number in range(1_000))
    for name in names:
        world.subscribe("h", name)
    copy = HeldCopy(Publication("e1", {}), names, 1)
    world.tell("h", MirrorNews(SecureAsked(7, (copy,))))
    world.pass_ms(SETTINGS.copies_wait_ms + 1_000)
    reason = world.answers(7)["h"]
    assert reason == (
        "it is on the disks of 1 of 2 nodes for a durable subscription, and may have reached some: "
        "start more nodes with --data, or begin all with --copies 1"
    )
    assert world.notices == ["events have too few copies for durable subscriptions of h"]


def test_what_is_sent_to_a_new_holder_in_one_turn_is_bounded():
    sent: list[str] = []
    group = Group("h", True, ("x",), ("x",), 2)
    copies = Copies(
        "h",
        WATCHED,
        lambda home: group,
        lambda *_: None,
        lambda node, message: sent.append(message.publication.id),
        lambda effect: None,
        MirrorLinks(),
    )
    body = b"x" * (PUSHED_BYTES_MAX // 10)
    events = [HeldCopy(Publication(f"e{n}", {}, body), ("s",), 0) for n in range(25)]
    large = HeldCopy(Publication("large", {}, body * 20), ("s",), 0)
    copies.secure(1, [("h", each) for each in (*events, large)], 0)
    copies.push_all("h", "x")
    turns = [len(sent)]
    for turn in range(1, 4):
        copies.on_tick(turn)
        turns.append(len(sent) - sum(turns))
    assert max(turns) < 11 and sum(turns) == 26 and sorted(sent) == sorted({*sent})


def test_a_home_is_asked_often_enough_that_a_bad_link_may_lose_answers():
    """Of light answers a link that loses a tenth loses seven in a row once in ten million times."""
    sent: list[str] = []
    settings = MirrorSettings(copies=3)
    group = Group("h", True, (), ("h",), 3)
    copies = Copies(
        "m",
        settings,
        lambda home: group,
        lambda *_: None,
        lambda node, message: sent.append(node),
        lambda effect: None,
        MirrorLinks(),
    )
    copies.secure(1, [("h", HeldCopy(Publication("e", {}), ("s",), 0))], 0)
    for now_ms in range(0, settings.copies_wait_ms, settings.tick_ms):
        copies.on_tick(now_ms)
    assert len(sent) >= 7 and set(sent) == {"h"}


def test_copies_that_come_late_are_as_good():
    world = MirrorWorld("hx", WATCHED)
    world.subscribe("h", "s")
    world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(1_000)
    assert world.answers(7) == {}
    world.link("h", "x")
    world.pass_ms(1_000)
    assert world.answers(7)["h"] == "" and world.on_disks("h", "s", "e1") == ["h", "x"]


def test_home_and_mirror_die_together_and_two_others_hold():
    world = watched_world()
    (witness,) = world.peers["h"].home.witnesses
    mirror = world.peers["h"].home.mirror
    assert mirror is not None
    world.stop("h")
    world.stop(mirror)
    assert world.publish_acknowledged("h", "s", "e1", 7) == [witness]
    world.settle()
    assert world.answers(7) == {}
    world.pass_ms(SETTINGS.lost_ms + 1_000)
    assert world.answers(7)[witness] == ""
    assert len(world.on_disks("h", "s", "e1")) == 2
    for node in ("h", mirror):
        world.start(node)
    world.link_all()
    world.pass_ms(5_000)
    assert world.disks["h"].log["s"] == ["e1"]
    world.consume("h", "s")
    world.pass_ms(2_000)
    assert all(world.retained(node, "h") == [] for node in "xyz")


def test_who_is_needed_no_more_goes_on_watching_for_what_comes_late():
    """What was published before the present ones watched may reach nobody else."""
    world = watched_world(settings=replace(WATCHED, linger_ms=20_000, reserves=0))
    former = world.peers["h"].home.mirror
    assert former is not None
    world.stop(former)
    world.pass_ms(SETTINGS.lost_ms + 1_000)
    world.start(former)
    world.link_all()
    world.pass_ms(10_000)
    assert former not in world.mirrors_of("h") and world.peers[former].duties.describe() == {}
    late = HeldCopy(Publication("late", {}), (overlay_name("h", "s"),), 1)
    world.tell(former, MirrorNews(SecureAsked(7, (late,))))
    world.settle()
    assert world.answers(7) == {}
    world.pass_ms(2_000)
    assert world.answers(7) == {former: ""}
    assert sorted(world.on_disks("h", "s", "late")) == sorted(["h", *world.mirrors_of("h")])
    world.pass_ms(20_000)
    assert world.peers[former].duties.is_idle and ("h", "s") not in world.disks[former].mirrored


def watching_world(away_max_ms: int) -> tuple[MirrorWorld, str]:
    """A world in which former mirrors of h go on watching, and the one that others ask last."""
    settings = replace(WATCHED, linger_ms=300_000, reserves=0, away_max_ms=away_max_ms)
    world = watched_world("huvwxyz", settings)
    former = ""
    for _ in range(2):
        former = world.peers["h"].home.mirror or ""
        world.stop(former)
        world.pass_ms(SETTINGS.lost_ms + 1_000)
        world.start(former)
        world.link_all()
        world.pass_ms(10_000)
        assert former not in world.mirrors_of("h") and ("h", "s") in world.served[former]
    return world, former


def test_who_still_watches_for_a_suspended_home_learns_that_nothing_is_owed():
    world, former = watching_world(away_max_ms=10_000)
    world.stop("h")
    world.pass_ms(12_000)
    assert former in world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(5_000)
    assert world.answers(7) == {former: ""} and world.on_disks("h", "s", "e1") == []


def test_who_has_suspended_a_home_holds_again_for_one_who_has_not():
    """Cut off from all others it suspends; they saw the home later, and need it when that dies."""
    world = watched_world(settings=replace(WATCHED, away_max_ms=10_000))
    cut_off = world.peers["h"].home.mirror
    assert cut_off is not None
    for other in world.peers:
        world.blocked.add(frozenset((cut_off, other)))
        world.unlink(cut_off, other)
    world.pass_ms(12_000)
    assert world.disks[cut_off].mirrored["h", "s"].suspended_ms is not None
    present = world.peers["h"].home.mirror
    assert present not in (None, cut_off)
    world.blocked.clear()
    world.stop("h")
    world.link_all()
    for other in set(world.peers) - {present, cut_off}:
        world.stop(other)
    world.pass_ms(2_000)
    assert present in world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(1_000)
    assert world.answers(7)[present] == ""
    assert sorted(world.on_disks("h", "s", "e1")) == sorted([present, cut_off])


def test_who_watches_and_did_not_hear_of_the_end_asks_the_home():
    world, former = watching_world(away_max_ms=1_000_000)
    world.unlink("h", former)
    world.unsubscribe("h", "s")
    world.settle()
    assert former in world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(1_000)
    assert world.answers(7) == {former: ""} and world.peers[former].duties.is_idle


def test_who_watches_turns_from_one_that_is_silent_to_the_next_at_once():
    world, former = watching_world(away_max_ms=1_000_000)
    world.unlink("h", former)
    world.unsubscribe("h", "s")
    world.settle()
    world.stop("h")
    # Those that were told to forget look after nothing, and say nothing.
    assert former in world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(SETTINGS.lost_ms + 1_500)
    assert world.answers(7) == {former: ""} and len(world.on_disks("h", "s", "e1")) == 2


def test_who_only_watches_is_not_taken_for_one_that_holds_or_leads():
    """Former mirrors ask those who hold, and are asked nothing: each would wait for the other."""
    world = watched_world("hrstuvwxyz", replace(WATCHED, linger_ms=300_000, reserves=0))
    former: set[str] = set()
    for _ in range(4):
        mirror = world.peers["h"].home.mirror
        assert mirror is not None
        former.add(mirror)
        world.stop(mirror)
        world.pass_ms(SETTINGS.lost_ms + 1_000)
        world.start(mirror)
        world.link_all()
        world.pass_ms(10_000)
    (mirror,) = world.mirrors_of("h")
    world.stop("h")
    world.pass_ms(SETTINGS.lost_ms + 1_000)
    group = world.peers[mirror].duties.group("h")
    assert group is not None
    former -= {mirror, *group.members}
    assert len(former) > 1
    for token, event_id in enumerate(("e1", "e2"), start=7):
        asked = world.publish_acknowledged("h", "s", event_id, token)
        assert former < set(asked)
        world.pass_ms(WATCHED.push_ms // 2)
        # Nobody has asked about this one; who asked about the first hears of it all the same.
        assert bool(former.intersection(world.answers(token))) is (event_id == "e2")
        world.pass_ms(2_000)
        assert world.answers(token) == dict.fromkeys(asked, "")
        assert len(world.on_disks("h", "s", event_id)) == 2
        assert not former.intersection(world.on_disks("h", "s", event_id))


def test_reserves_have_replayed_what_nobody_watched_for():
    world = watched_world("hvwxyz", replace(WATCHED, reserves=2))
    home = world.peers["h"].home
    group = ["h", *world.mirrors_of("h"), *home.witnesses]
    reserves = [name for name in "vwxyz" if name not in group and world.disks[name].mirrored]
    assert len(reserves) == 2 and world.replays == []
    for node in group:
        world.stop(node)
    world.pass_ms(SETTINGS.lost_ms + 1_000)
    assert sorted({node for node, _ in world.replays}) == sorted(reserves)
    assert all(since_ms >= SETTINGS.lost_ms for _, since_ms in world.replays)


def knowing(world: MirrorWorld) -> list[str]:
    """The nodes that know of a durable subscription of h."""
    return ["h", *(node for node, disk in world.disks.items() if ("h", "s") in disk.mirrored)]


def test_a_home_that_starts_again_has_replayed_what_nobody_watched_for():
    """All who know of a subscription may die at once: publishers go on, and wait for nobody."""
    world = watched_world("huvwxyz", replace(WATCHED, reserves=2))
    group = knowing(world)
    assert len(group) == 5
    for node in group:
        world.stop(node)
    for node in group:
        world.start(node)
    world.link_all()
    world.pass_ms(SETTINGS.grace_ms + 2_000)
    assert [node for node, _ in world.replays] == ["h"]


@pytest.mark.parametrize("living", range(1, 5))
def test_nothing_is_replayed_if_one_has_lived_who_watches_when_nobody_else_does(living: int):
    world = watched_world("huvwxyz", replace(WATCHED, reserves=2))
    group = knowing(world)
    del group[living]
    for node in group:
        world.stop(node)
    for node in group:
        world.start(node)
    world.link_all()
    world.pass_ms(SETTINGS.grace_ms + 2_000)
    assert world.replays == []


def test_who_stands_in_after_a_start_has_replayed_what_nobody_watched_for():
    world = watched_world("huvwxyz", replace(WATCHED, reserves=2))
    group = knowing(world)
    for node in group:
        world.stop(node)
    for node in group[1:]:
        world.start(node)
    world.link_all()
    world.pass_ms(SETTINGS.grace_ms + 5_000)
    assert world.replays
    world.replays.clear()
    world.pass_ms(SETTINGS.grace_ms + 5_000)
    assert world.replays == []


def test_a_mirror_that_dies_is_replaced_before_the_next_acknowledgement():
    world = watched_world()
    mirror = world.peers["h"].home.mirror
    assert mirror is not None
    world.stop(mirror)
    world.publish_acknowledged("h", "s", "e1", 7)
    world.settle()
    assert world.answers(7) == {}
    world.pass_ms(SETTINGS.lost_ms + 200)
    assert world.answers(7)["h"] == "" and len(world.on_disks("h", "s", "e1")) == 2
    assert world.peers["h"].home.mirror not in (None, mirror)


def test_a_copy_counts_no_more_when_its_node_has_begun_anew():
    """What it said in a former life, and said late perhaps, may be of a disk that is gone."""
    world = watched_world("hvwxyz", replace(WATCHED, copies=3))
    one, other = world.mirrors_of("h")
    for node in ("h", one):
        assert node in world.publish_acknowledged("h", "s", "e1", 7, only=(node,))
    world.settle()
    assert world.answers(7) == {}
    world.stop(one)
    world.start(one, empty=True)
    world.link("h", one)
    world.disks[other].retain("h", "s", "e1")
    kept = MirrorKept("h", (KeptFor(("s",), ("e1",)),))
    peer = PeerId(other, world.life[other], MIRROR_SLOT)
    world.tell("h", Received(peer, (kept,), MIRROR_SLOT))
    assert world.answers(7) == {}
    world.pass_ms(5_000)
    assert world.answers(7)["h"] == "" and len(world.on_disks("h", "s", "e1")) == 3


def test_a_copy_of_what_has_not_come_here_counts_no_more_when_its_node_has_begun_anew():
    world = watched_world()
    (mirror,) = world.mirrors_of("h")
    world.publish_acknowledged("h", "s", "e1", 7, only=(mirror,))
    world.settle()
    world.stop(mirror)
    world.start(mirror, empty=True)
    world.link("h", mirror)
    world.publish_acknowledged("h", "s", "e1", 8, only=("h",))
    assert world.on_disks("h", "s", "e1") == ["h"] and world.answers(8) == {}
    world.pass_ms(5_000)
    assert world.answers(8) == {"h": ""} and len(world.on_disks("h", "s", "e1")) == 2


def test_a_copy_counts_again_when_the_link_of_its_node_is_back():
    world = watched_world()
    (mirror,) = world.mirrors_of("h")
    world.publish_acknowledged("h", "s", "e1", 7, only=(mirror,))
    world.settle()
    world.blocked.add(frozenset(("h", mirror)))
    world.unlink("h", mirror)
    world.blocked.clear()
    world.link("h", mirror)
    world.publish_acknowledged("h", "s", "e1", 8, only=("h",))
    assert world.answers(8) == {}
    world.settle()
    assert world.answers(8) == {"h": ""}


def test_a_home_that_is_away_for_too_long_is_suspended_and_its_consumer_hears_of_it():
    world = watched_world(settings=replace(WATCHED, away_max_ms=10_000))
    world.stop("h")
    world.pass_ms(5_000)
    assert world.publish_acknowledged("h", "s", "e1", 7) != []
    world.pass_ms(7_000)
    assert world.publish_acknowledged("h", "s", "e2", 8) == []  # Nobody waits for it.
    world.start("h")
    world.link_all()
    world.pass_ms(3_000)
    assert "s" in world.keepers["h"].gaps and world.disks["h"].log["s"] == ["e1"]
    assert world.publish_acknowledged("h", "s", "e3", 9) != []
    world.pass_ms(2_000)
    assert world.answers(9)["h"] == ""


def test_a_suspension_outlives_a_restart_of_those_who_suspended():
    world = watched_world(settings=replace(WATCHED, away_max_ms=10_000, reserves=0))
    others = [node for node in "xyz" if world.disks[node].mirrored]
    world.stop("h")
    world.pass_ms(12_000)
    for node in others:
        world.stop(node)
    for node in others:
        world.start(node)
    world.link_all()
    assert world.publish_acknowledged("h", "s", "e1", 7) == []
    world.start("h")
    world.link_all()
    world.pass_ms(3_000)
    assert "s" in world.keepers["h"].gaps
    # Once it was told they forget it: the next absence is another.
    assert all(
        each.suspended_ms is None
        for disk in world.disks.values()
        for each in disk.mirrored.values()
    )


def test_a_home_hears_for_whom_its_mirror_had_no_room_while_it_was_away():
    world = watched_world(settings=replace(WATCHED, reserves=0))
    mirror = world.peers["h"].home.mirror
    assert mirror is not None
    world.disks[mirror].dropped["h"] = ["s"]  # The home has these itself.
    world.stop("h")
    world.pass_ms(2_000)
    assert world.disks[mirror].dropped == {}
    world.disks[mirror].dropped["h"] = ["s"]
    for _ in range(2):
        world.stop(mirror)
        world.start(mirror)
    world.start("h")
    world.link_all()
    assert world.keepers["h"].gaps == {}
    world.pass_ms(1_000)
    assert list(world.keepers["h"].gaps) == ["s"] and world.disks[mirror].dropped == {}


def test_a_reserve_forgets_a_home_that_is_not_seen_for_too_long():
    world = watched_world("hvwxy", replace(WATCHED, reserves=2, horizon_ms=10_000))
    assert all(world.disks[node].mirrored for node in "vwxy")
    world.stop("h")
    world.pass_ms(25_000)
    assert all(world.peers[node].duties.is_idle for node in "vwxy")
    assert not any(world.disks[node].mirrored for node in "vwxy")


def test_people_hear_of_nodes_that_want_another_number_of_copies():
    world = MirrorWorld("hx", WATCHED)
    features = (COPIES_FEATURE, "copies=3")
    world.tell("h", PeerConnected(PeerId("y", 1), b"", features))
    world.tell("h", PeerConnected(PeerId("z", 1), b"", (COPIES_FEATURE, "copies=2")))
    (notice,) = world.notices
    assert "another number of copies" in notice and notice.endswith(" y")
    assert world.peers["h"].describe()["copies_elsewhere"] == {"y": "3"}


def test_a_home_of_an_earlier_version_is_mirrored_as_before():
    world = MirrorWorld("hx", WATCHED, features=())
    world.link("h", "x")
    world.subscribe("h", "s")
    world.settle()
    assert world.keepers["h"].ready_names == ["s"] and world.mirrors_of("h") == ["x"]
    world.publish_acknowledged("h", "s", "e1", 7)
    world.settle()
    assert world.answers(7)["x"] == ""  # As soon as it is on its own disk.
    world.pass_ms(1_000)
    assert world.answers(7)["h"] == ""  # It learns by the walk that the other one has it.


# --- batches -----------------------------------------------------------------------------------

FEW = 300
"""More events than messages may be sent for them."""


def a_batch(name: str, count: int = FEW) -> Batch:
    return Batch.of(name, pa.table({"number": list(range(count))}), None, Delivery.AT_LEAST_ONCE)


def secure_batch(world: MirrorWorld, batch: Batch, token: int, *, subscription: str = "s") -> None:
    """All events of a batch reach those who get the subscription's, as columns."""
    for node in list(world.peers):
        here = subscription
        if node == "h":
            for number in batch.numbers.tolist():
                world.disks["h"].append(subscription, f"{batch.id}/{number}")
        elif ("h", subscription) in world.served[node]:
            here = overlay_name("h", subscription)
        else:
            continue
        held = HeldBatch(batch, ((here, rows_of(batch.numbers.tolist())),), 1)
        world.tell(node, MirrorNews(SecureAsked(token, (held,))))


def test_a_batch_is_stored_and_acknowledged_as_a_whole():
    world = watched_world()
    before = len(world.messages)
    secure_batch(world, a_batch("b"), 7)
    assert world.answers(7) == {}
    world.settle()
    assert len(world.answers(7)) == 3 and set(world.answers(7).values()) == {""}
    mirror = world.peers["h"].home.mirror
    assert mirror is not None
    for number in range(FEW):
        assert sorted(world.on_disks("h", "s", f"b/{number}")) == sorted(["h", mirror])
    assert len(world.messages) - before <= 4
    assert all(not len(peer.copies) for peer in world.peers.values())


def test_a_batch_for_a_node_of_an_earlier_version_is_told_of_event_by_event():
    world = MirrorWorld("hx", WATCHED, features=(COPIES_FEATURE,))
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    secure_batch(world, a_batch("b"), 7)
    world.settle()
    assert world.answers(7) == {"h": "", "x": ""}
    told = {type(message) for _, _, message in world.messages}
    assert MirrorKept in told and MirrorRowsKept not in told


@pytest.mark.parametrize("features", [FEATURES, (COPIES_FEATURE,)])
def test_a_mirror_that_did_not_get_a_batch_is_sent_it(features: tuple[str, ...]) -> None:
    world = MirrorWorld("hx", WATCHED, features=features)
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    batch = a_batch("b", 40)
    world.served["x"].clear()  # The overlay brings nothing there.
    secure_batch(world, batch, 7)
    world.settle()
    assert world.answers(7) == {}
    world.pass_ms(2 * SETTINGS.push_ms)
    assert world.answers(7) == {"h": ""} and len(world.retained("x", "h")) == 40
    pushed = [message for _, _, message in world.messages if isinstance(message, MirrorKeepBatch)]
    assert len(pushed) == (1 if features == FEATURES else 0)


# --- under faults ------------------------------------------------------------------------------

steps = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4), st.integers(0, 4)), max_size=50)


def event_of(token: int) -> str:
    """Some events are alone, others of a batch."""
    return f"b/{token}" if token % 2 else f"e{token}"


def play(happenings: list[tuple[int, int, int]]) -> list[str]:
    """Let nodes come and go while events are published; what is wrong in the end."""
    names = "hvxyz"
    world = MirrorWorld(names, WATCHED)
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    asked: dict[int, list[str]] = {}
    safe: list[int] = []
    wrong: list[str] = []
    consumed: list[str] = []

    def look() -> None:
        """An event that all who got it have confirmed is acknowledged: by then it is on disks."""
        for token, got in asked.items():
            answers = world.answers(token)
            is_told = got and all(answers.get(node) == "" for node in got if node in world.peers)
            if token in safe or not is_told or not any(node in world.peers for node in got):
                continue
            safe.append(token)
            event_id = event_of(token)
            if event_id not in consumed and len(world.on_disks("h", "s", event_id)) < 2:
                wrong.append(f"{event_id} is confirmed too early")

    for kind, one, other in happenings:
        node, far = names[one], names[other]
        if kind <= 2:
            token = len(asked) + 1
            asked[token] = world.publish_acknowledged("h", "s", event_of(token), token)
        elif kind == 3 and node in world.peers:
            world.stop(node)
        elif kind == 4 and node not in world.peers:
            world.start(node)
            world.link_all()
        elif kind == 5:
            world.unlink(node, far)
        elif kind == 6 and "h" in world.peers:
            consumed += world.consume("h", "s", other)
        elif kind == 7:
            world.pass_ms(one * 400)
        for _ in range(other * 3):
            world.step()
            look()
    for node in names:
        if node not in world.peers:
            world.start(node)
    world.link_all()
    for _ in range(20):
        world.pass_ms(1_000)
        look()
    log = world.disks["h"].log["s"]
    wrong += [f"e{token} is lost" for token in safe if event_of(token) not in log]
    wrong += [f"{event} is there twice" for event in set(log) if log.count(event) > 1]
    return wrong


@examples(150)
@given(steps)
def test_what_all_have_confirmed_is_on_two_disks_and_reaches_the_home(happenings):
    assert play(happenings) == []


def _too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Copies.secure

    def secure(self: Copies, token: int, events: list, now_ms: int) -> None:  # type: ignore[type-arg]
        told(self, token, events, now_ms)
        for key in list(self._open):
            self._settle(key, None)

    monkeypatch.setattr(Copies, "secure", secure)


def _not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MirrorSide, "stand_in", lambda *_: None)
    group = MirrorSide.group

    def lonely(self: MirrorSide, home: str) -> Group | None:
        found = group(self, home)
        return None if found is None or found.leader == home else found._replace(copies=1)

    monkeypatch.setattr(MirrorSide, "group", lonely)


@pytest.mark.parametrize("plant", [_too_early, _not_replaced])
def test_a_planted_mistake_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    away = [(3, node, 0) for node in range(5)]
    stories = [
        [one, two, (0, 0, 1), (7, 4, 1), (0, 0, 1), (7, 4, 1)] for one in away for two in away
    ]
    assert any(play(story) for story in stories)


# --- nodes without a disk ----------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["xyz", "xy", "x"])
def test_copies_in_memory_do_not_count_for_a_home_with_a_disk(memory: str) -> None:
    world = MirrorWorld("hxyz", WATCHED, memory=memory)
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    assert world.keepers["h"].ready_names == ["s"]
    world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(10_000)
    on_disks = [node for node in world.on_disks("h", "s", "e1") if node not in memory]
    assert set(world.on_disks("h", "s", "e1")).isdisjoint(memory)
    assert len(on_disks) == min(2, 4 - len(memory))
    assert (world.answers(7).get("h") == "") == (len(on_disks) == 2)


def test_where_no_node_has_a_disk_copies_in_memory_count():
    world = MirrorWorld("hxyzw", WATCHED, memory="hxyzw")
    world.link_all()
    world.subscribe("h", "s")
    world.settle()
    world.publish_acknowledged("h", "s", "e1", 7)
    world.settle()
    assert world.answers(7)["h"] == "" and world.peers["h"].describe()["in_memory"]
    world.stop("h")
    world.stop(world.mirrors_of("h")[0])
    world.publish_acknowledged("h", "s", "e2", 8)
    world.pass_ms(5_000)
    assert set(world.answers(8).values()) == {""}
    assert len(world.on_disks("h", "s", "e2")) == 2


@pytest.mark.parametrize("memory", ["vw", "vwx", "vwxy"])
def test_who_stands_in_for_a_home_with_a_disk_counts_disks_alone(memory: str) -> None:
    """The home and its mirror die together; who watched may have no disk itself."""
    world = MirrorWorld("hmvwxyz", replace(WATCHED, reserves=2), memory=memory)
    world.link("h", "m")
    world.subscribe("h", "s")
    world.settle()
    assert world.mirrors_of("h") == ["m"]
    world.link_all()
    world.pass_ms(2_000)
    for node in "hm":
        world.stop(node)
    world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(15_000)
    on_disks = world.on_disks("h", "s", "e1")
    disks = [node for node in "vwxyz" if node not in memory]
    assert set(on_disks) <= set(disks) and len(on_disks) == min(2, len(disks))
    assert (set(world.answers(7).values()) == {""}) == (len(disks) >= 2)
    world.start("h")
    world.link_all()
    world.pass_ms(20_000)
    assert "e1" in world.disks["h"].log["s"]


def test_a_mirror_that_comes_back_without_its_disk_holds_no_more():
    world = watched_world("hxyz")
    mirror = world.peers["h"].home.mirror
    assert mirror is not None
    world.stop(mirror)
    world.memory = mirror
    world.start(mirror, empty=True)
    world.link_all()
    world.settle()
    world.publish_acknowledged("h", "s", "e1", 7)
    world.pass_ms(5_000)
    assert world.answers(7)["h"] == ""
    assert mirror not in world.on_disks("h", "s", "e1")
    assert len(world.on_disks("h", "s", "e1")) == 2
