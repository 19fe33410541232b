"""A disk that lost its last transactions looks whole: those who look after the node know better."""

from __future__ import annotations

from copy import deepcopy

import pytest

from overlays.core.mirror_world import SETTINGS, Disk, MirrorWorld
from peersub.overlays.core.store_marks import LifeMark


def world_of(names: str = "hab") -> MirrorWorld:
    world = MirrorWorld(names, SETTINGS)
    world.link_all()
    world.settle()
    return world


def lose(world: MirrorWorld, disk: Disk) -> None:
    """The home crashes, and comes back with its disk as it was earlier."""
    world.stop("h")
    world.disks["h"] = disk
    world.start("h")
    world.link_all()
    world.pass_ms(2_000)


def test_a_subscription_that_the_disk_lost_comes_back_and_the_loss_is_named():
    world = world_of()
    world.subscribe("h", "old")
    world.pass_ms(1_000)
    earlier = deepcopy(world.disks["h"])
    world.subscribe("h", "s")
    world.pass_ms(1_000)
    world.publish("h", "s", "e1")
    lose(world, earlier)
    assert world.disks["h"].log["s"] == ["e1"]
    assert world.keepers["h"].losses == 1
    assert "the disk lost what other nodes know that it had" in world.drops
    # The new epoch is told, and nothing is lost a second time.
    world.stop("h")
    world.start("h")
    world.link_all()
    world.pass_ms(2_000)
    assert set(world.disks["h"].durables) == {"old", "s"}
    assert world.keepers["h"].losses == 0


@pytest.mark.parametrize("lives", [0, 1])
def test_a_loss_is_found_out_later_as_well(lives):
    """Nobody is there who knows of it until the disk is further than it ever was."""
    world = world_of("ha")
    world.subscribe("h", "old")
    world.pass_ms(1_000)
    earlier = deepcopy(world.disks["h"])
    world.subscribe("h", "s")
    world.pass_ms(1_000)
    world.publish("h", "s", "e1")
    world.blocked.add(frozenset("ha"))
    lose(world, earlier)
    for number in range(20):
        world.publish("h", "old", f"later{number}")
    if lives:
        world.stop("h")
        world.start("h")
    world.blocked.clear()
    world.link_all()
    world.pass_ms(2_000)
    assert world.disks["h"].log["s"] == ["e1"]
    assert world.keepers["h"].losses == 1


def test_events_that_the_disk_lost_are_a_loss_as_well():
    world = world_of()
    world.subscribe("h", "s")
    world.pass_ms(1_000)
    earlier = deepcopy(world.disks["h"])
    world.publish("h", "s", "e1")
    world.pass_ms(1_000)
    lose(world, earlier)
    assert world.disks["h"].log["s"] == ["e1"]
    assert world.keepers["h"].losses == 1


def test_what_ended_before_a_loss_stays_so():
    world = world_of("ha")
    world.subscribe("h", "s")
    world.pass_ms(1_000)
    world.blocked.add(frozenset("ha"))
    world.unlink("h", "a")
    world.unsubscribe("h", "s")
    earlier = deepcopy(world.disks["h"])
    world.subscribe("h", "later")
    world.blocked.clear()
    lose(world, earlier)
    assert world.disks["h"].durables == {}
    assert world.disks["a"].mirrored == {}


def test_one_that_was_made_again_is_not_taken_for_the_one_before():
    world = world_of("ha")
    world.subscribe("h", "s")
    world.pass_ms(1_000)
    world.blocked.add(frozenset("ha"))
    world.unlink("h", "a")
    world.unsubscribe("h", "s")
    earlier = deepcopy(world.disks["h"])
    world.subscribe("h", "s")
    world.blocked.clear()
    world.link_all()
    world.pass_ms(1_000)
    world.stop("a")
    world.start("a")
    world.publish("h", "s", "e1")
    lose(world, earlier)
    assert "s" in world.disks["h"].durables
    assert world.keepers["h"].losses == 1


def test_a_disk_that_kept_its_word_is_not_suspected():
    world = world_of()
    world.subscribe("h", "s")
    for number in range(5):
        world.publish("h", "s", f"e{number}")
        world.pass_ms(1_000)
        world.unlink("h", "a")
        world.link_all()
        if number % 2:
            world.stop("h")
            world.start("h")
            world.link_all()
        world.pass_ms(1_000)
        assert world.keepers["h"].losses == 0
    assert world.drops == []


@pytest.mark.parametrize("text", ["", "~~", "a~1", "a~-1~5", "a~1~\u0663", "a~1~" + "9" * 5_000])
def test_what_is_no_mark_says_nothing(text):
    assert LifeMark.read(text) == LifeMark(text)
    assert not LifeMark.read(text).is_lost(world_of().disks["h"].lives)
