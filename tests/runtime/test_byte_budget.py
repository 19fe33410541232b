"""Bytes that clients hold: bounded for each and for all, and no client takes another's room."""

from __future__ import annotations

from random import Random

from peersub.runtime.byte_budget import ENTRY_BYTES, ByteBudget


def test_a_client_has_its_bound_and_gets_back_what_it_lets_go():
    share = ByteBudget(10_000, 2_000).share()
    events = [bytes(1) + str(n).encode() for n in range(3)]
    for event in events[:2]:
        assert share.has_room(event, 800)
        share.hold(event, 800)
    assert not share.has_room(events[2], 800)
    share.drop(events[0])
    assert share.has_room(events[2], 800)


def test_what_is_held_several_times_counts_once():
    budget = ByteBudget(10_000, 10_000)
    one, other = budget.share(), budget.share()
    event = object()
    for share in (one, one, other):
        share.hold(event, 1_000)
    assert one.used == 1_000 + 2 * ENTRY_BYTES and budget.used == 1_000 + 3 * ENTRY_BYTES
    one.drop(event)
    other.drop(event)
    assert budget.used == one.used == 1_000 + ENTRY_BYTES
    one.drop(event)
    assert budget.used == one.used == other.used == 0


def test_a_greedy_client_leaves_others_their_part():
    budget = ByteBudget(100_000, 80_000)
    greedy, second, modest = budget.share(), budget.share(), budget.share()
    held = []

    def fill(share, size):
        while share.has_room(event := object(), size):
            held.append(event)
            share.hold(event, size)

    fill(greedy, 1_000)
    assert greedy.used > 78_000
    fill(second, 1_000)
    assert 45_000 < second.used <= 50_000 and not greedy.has_room(object(), 1_000)
    fill(modest, 1_000)
    assert 30_000 < modest.used <= 34_000
    assert budget.used < 2 * budget.node_max


def fill(share, size, held):
    while share.has_room(event := object(), size):
        held.append(event)
        share.hold(event, size)


def test_many_clients_hold_no_more_than_twice_the_whole_and_leave_something():
    budget, held = ByteBudget(4_000_000, 500_000), []
    shares = [budget.share(origin="flood") for _ in range(1_000)]
    for share in shares:
        fill(share, 1_000, held)
    assert budget.used <= 2 * budget.node_max
    # Of another origin, one has as much as all of them.
    other = budget.share(origin="other")
    fill(other, 1_000, held)
    assert other.used > 498_000
    assert budget.used <= 2 * budget.node_max


def test_however_clients_come_and_go_the_sums_hold():
    random = Random(3)
    budget = ByteBudget(50_000, 20_000)
    shares = [budget.share() for _ in range(5)]
    contents = [object() for _ in range(40)]
    sizes = [random.randrange(5_000) for _ in contents]
    held: list[tuple[int, int]] = []
    for _ in range(5_000):
        if held and random.random() < 0.45:
            which, place = held.pop(random.randrange(len(held)))
            shares[which].drop(contents[place])
        else:
            which, place = random.randrange(5), random.randrange(40)
            if shares[which].has_room(contents[place], sizes[place]):
                shares[which].hold(contents[place], sizes[place])
                held.append((which, place))
        for which, share in enumerate(shares):
            own = [place for holder, place in held if holder == which]
            expected = ENTRY_BYTES * len(own) + sum(sizes[place] for place in set(own))
            assert share.used == expected <= budget.client_max
        together = {place for _, place in held}
        assert budget.used == ENTRY_BYTES * len(held) + sum(sizes[place] for place in together)
        assert budget.used <= 2 * budget.node_max
