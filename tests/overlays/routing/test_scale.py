"""What a subscription costs does not depend on how many there are.

Work is counted in bytecodes, which no busy machine changes, and in messages.
"""

import sys
from random import Random

import numpy as np
import pytest

from overlays.core.batch_rows import batch_of
from overlays.routing.filter_networks import FilterNetwork, random_tree, ring, table_of
from overlays.routing.wishes import wish
from peersub.filters import Filter
from peersub.overlays.core.home import Home, HomeSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing import batch_routing
from peersub.overlays.routing import rows as rows_module
from peersub.overlays.routing.batch_routing import BatchRouting
from peersub.overlays.routing.combination import Pool
from peersub.overlays.routing.covering_order import CoveringOrder
from peersub.overlays.routing.messages import Entry, FilterConfirmed, FilterUpdate
from peersub.overlays.routing.publishers import Publisher
from peersub.overlays.routing.rows import NO_ROWS, Rows, WireSizes, row_key
from peersub.overlays.routing.strategies import StrategySettings
from peersub.overlays.routing.topology import NOWHERE

GROWTH_MAX = 1.5
"""How much more a change may take where there are 16 times as many rows: look-ups are deeper."""


def count_bytecodes(call):
    """How many bytecodes a call executes, in all functions that it leads to."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def wanted(number):
    return Filter(f"symbol = 'S{number % 50}' AND price > {number} AND price < {number + 40}")


def pair(burst_ms=1, **settings):
    """Two peers, of which one subscribes."""
    network = FilterNetwork(
        random_tree(2, Random(0)), StrategySettings(), Random(1), burst_ms=burst_ms, **settings
    )
    network.connect_all()
    network.run()
    network.sent.clear()
    return network, PeerId("n0"), PeerId("n1")


def subscribe_some(network, peer, numbers):
    for number in numbers:
        network.subscribe(peer, f"s{number}", wanted(number))
    network.run()


def work_of_changes(present, changes=32):
    """Bytecodes per subscription that comes, and per one that goes, beside so many others."""
    network, home, _ = pair()
    subscribe_some(network, home, range(present))
    more = range(present, present + changes)
    came = count_bytecodes(lambda: subscribe_some(network, home, more))

    def end():
        for number in more:
            network.unsubscribe(home, f"s{number}")
        network.run()

    return came / changes, count_bytecodes(end) / changes


def test_a_change_costs_the_same_however_many_subscriptions_there_are():
    few, many = work_of_changes(250), work_of_changes(4_000)
    assert many[0] <= GROWTH_MAX * few[0], "subscribing"
    assert many[1] <= GROWTH_MAX * few[1], "unsubscribing"


def test_an_event_between_changes_costs_the_same_however_many_rows_there_are():
    def work(present):
        network, home, other = pair()
        subscribe_some(network, home, range(present))
        table = network.peers[other]

        def ask():
            for number in range(20):
                network.subscribe(home, f"t{present}.{number}", wanted(present + number))
                network.run()
                event = Publication(f"e{number}", {"symbol": f"S{number}", "price": 7.5})
                table.matches(home, event, (0, 1))

        return count_bytecodes(ask)

    assert work(4_000) <= GROWTH_MAX * work(250)


def test_many_subscriptions_of_one_turn_are_few_messages():
    network, home, _ = pair()
    for number in range(1_000):
        network.subscribe(home, f"s{number}", wanted(number))
    network.run()
    assert len(network.ready) == 1_000
    assert network.sent[FilterUpdate] <= 1_000 // 64 + 9
    assert network.sent[FilterConfirmed] <= 1_000 // 64 + 9
    network.sent.clear()
    for number in range(1_000):
        network.unsubscribe(home, f"s{number}")
    network.run()
    assert network.sent[FilterUpdate] <= 1_000 // 64 + 9
    assert not any(len(rows) for rows in network.tables().values())


def test_one_flush_takes_in_a_bounded_number_of_rows():
    network, home, other = pair(burst_ms=0)
    for number in range(1_000):
        network.peers[home].subscribe(f"s{number}", wanted(number))
    network.flush(home)
    (update,) = network.links[home, other]
    assert len(update.added) == 64
    assert list(network.timers) == [home], "the rest follows"
    network.run()
    assert len(network.ready) == 1_000


def test_events_find_the_rows_that_are_not_taken_in_yet():
    network, home, other = pair(burst_ms=0)
    for number in range(1_000):
        network.peers[home].subscribe(f"s{number}", wanted(number))
    event = Publication("e", {"symbol": "S7", "price": 8})
    network.flush(home)
    while network.timers:
        network.timers.clear()
        network.peers[home].on_timer()
        network.flush(home)
    # The whole table has come, and no turn was given to it.
    for message in network.links.pop((home, other)):
        network.deliver(other, home, message)
    assert network.peers[other].matches(home, event, (0, 1))
    network.flush(other)
    network.run()
    assert network.peers[other].matches(home, event, (0, 1))
    assert not network.peers[other].matches(home, Publication("f", {"price": 8}), (0, 1))


def unions(gap):
    """Many boxes: whether one covers another takes thousands of steps."""
    return Filter(
        " OR ".join(f"(a >= {n} AND a < {n + 1 - (n == gap)} AND b{n % 5} > 0)" for n in range(60))
    )


def test_a_dear_row_is_taken_in_over_several_flushes_and_misses_no_event_meanwhile():
    network, home, other = pair(burst_ms=0, rows_per_turn=2)
    for gap in range(24):
        network.peers[home].subscribe(f"s{gap}", unions(gap))
    event = Publication("e", {"a": 7, "b2": 1})
    flushes = 0

    def flush_all(peer):
        nonlocal flushes
        network.flush(peer)
        while network.timers:
            flushes += 1
            assert network.peers[other].matches(home, event, (0, 1)) == bool(arrived)
            network.timers.clear()
            network.peers[peer].on_timer()
            network.flush(peer)

    arrived = False
    flush_all(home)
    # Both share a covering order: the first puts the filters in.
    assert flushes > 2 * 24 / 2
    arrived = True
    for message in network.links.pop((home, other)):
        network.deliver(other, home, message)
    flush_all(other)
    network.run()
    assert network.peers[other].matches(home, event, (0, 1))
    assert len(network.ready) == 24


def test_a_dear_row_has_a_message_to_itself():
    many = " OR ".join(f"(a{n} > %d AND b{n % 7} < 'k{n}')" for n in range(40))
    dear = [Entry("", Filter(many.replace("%d", str(number)))) for number in range(5)]
    cheap = [Entry("", wanted(number)) for number in range(20)]
    publisher = Publisher()
    publisher.update_to(Rows.of(dear + cheap), WireSizes(), 8, is_answer=True)
    updates = list(publisher.next_updates(1_000))
    assert sum(len(update.added) for update in updates) == 25
    for update in updates:
        dear_rows = [entry for entry in update.added if len(entry.filter.boxes) > 1]
        assert len(dear_rows) <= 1 or len(update.added) == 1
        assert len(update.added) <= 8


def test_the_first_are_ready_while_others_still_come():
    network = FilterNetwork(
        random_tree(2, Random(0)), StrategySettings(), Random(1), rows_per_turn=4
    )
    network.connect_all()
    network.run()
    home = PeerId("n0")
    for number in range(800):
        network.peers[home].subscribe(f"s{number}", wanted(number))
        if not number % 8:
            # More come than a turn takes in.
            network.flush(home)
            for _ in range(4):
                network.step()
    assert len(network.ready) > 100, "they do not wait for those that came after them"
    network.flush(home)
    network.run()
    assert len(network.ready) == 800


def test_of_many_that_come_at_once_the_first_are_ready_before_the_last_are_told():
    network, home, other = pair(rows_per_turn=4, rows_told_per_turn=16, rows_per_lot=32)
    told_at_first = []

    def note(peer, name):
        told_at_first.append(network.peers[other].table(home).rows.entry_count)

    network.on_ready = note
    subscribe_some(network, home, range(800))
    assert len(network.ready) == 800
    assert told_at_first[0] <= 4 * 32


def test_of_many_that_come_faster_than_they_are_told_the_first_do_not_wait_for_the_last():
    network, home, other = pair(
        rows_per_turn=8, rows_told_per_turn=4, rows_per_message=4, rows_per_lot=16
    )
    told, lags = network.peers[other].table(home), []
    for number in range(800):
        network.peers[home].subscribe(f"s{number}", wanted(number))
        if not number % 8:
            network.flush(home)
            network.step()
            lags.append(told.rows.entry_count - len(network.ready))
    network.run()
    assert len(network.ready) == 800
    assert max(lags) <= 4 * 16


@pytest.mark.parametrize("rows_per_lot", [512, 7])
@pytest.mark.parametrize("seed", range(5))
def test_ready_are_only_those_whose_rows_were_told_also_if_they_came_during_an_update(
    seed, rows_per_lot
):
    random = Random(seed)
    network = FilterNetwork(
        random_tree(2, random),
        StrategySettings(),
        random,
        rows_per_turn=3,
        rows_told_per_turn=2,
        rows_per_lot=rows_per_lot,
        rows_per_message=1,
    )
    network.connect_all()
    network.run()
    home = PeerId("n0")

    def check(peer, name):
        number = int(name[1:])
        event = Publication("e", {"symbol": f"S{number % 50}", "price": number + 1})
        assert network.peers[PeerId("n1")].matches(home, event, (0, 1)), name

    network.on_ready = check
    for number in range(300):
        network.peers[home].subscribe(f"s{number}", wanted(number))
        if random.random() < 0.3:
            network.flush(home)
        for _ in range(random.randrange(3)):
            network.step()
    network.flush(home)
    network.run()
    assert len(network.ready) == 300


# --- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_old_rows_stay_what_they_were_and_know_what_changed_since(seed, monkeypatch):
    monkeypatch.setattr(rows_module, "LINKED_MIN", 6)
    random = Random(seed)
    held: list[tuple[Rows, dict]] = [(NO_ROWS, {})]
    for _ in range(60):
        rows, content = random.choice(held[-3:])
        added = [Entry("", wish(random), random.choice(((), (1, 2)))) for _ in range(3)]
        added = [entry for entry in added if not entry.filter.is_nothing]
        removed = random.sample(sorted(content), min(len(content), random.randrange(4)))
        after = {key: entry for key, entry in content.items() if key not in removed}
        after.update((row_key(entry), entry) for entry in added)
        held.append((rows.changed(added, removed), after))
        if random.random() < 0.2:
            held.pop(random.randrange(len(held)))
    for rows, content in held:
        assert rows.entries == tuple(content[key] for key in sorted(content))
        assert rows.digest == Rows.of(content.values()).digest
        assert len(rows) == len(content)
    for _ in range(100):
        (old, before), (new, after) = random.choice(held), random.choice(held)
        added, removed = old.change_to(new)
        assert [row_key(entry) for entry in added] == sorted(
            key for key in after if key not in before or before[key].reach != after[key].reach
        )
        assert list(removed) == sorted(key for key in before if key not in after)


def test_an_index_follows_the_changes():
    rows = Rows.of(Entry("", wanted(number)) for number in range(100))
    event = Publication("e", {"symbol": "S7", "price": 8})
    for _ in range(rows_module.INDEX_AFTER + 1):
        assert rows.want(event)
    assert rows._index is not None
    without = rows.changed([], [row_key(Entry("", wanted(7)))])
    assert without._index is not None and not without.want(event)
    again = without.changed([Entry("", wanted(7))], [])
    assert [entry.filter for entry in again.wanting(event)] == [wanted(7)]


def test_an_index_that_nobody_asks_does_not_follow():
    rows = Rows.of(Entry("", wanted(number)) for number in range(100))
    event = Publication("e", {"symbol": "S7", "price": 8})
    for _ in range(rows_module.INDEX_AFTER + 1):
        assert rows.want(event)
    for number in range(100, 300):
        rows = rows.changed([Entry("", wanted(number))], [])
        if not number % 20:
            assert rows.want(event), "now and then it is asked: it stays"
    assert rows._index is not None
    for number in range(300, 650):
        rows = rows.changed([Entry("", wanted(number))], [])
    assert rows._index is None
    assert rows.want(Publication("f", {"symbol": "S49", "price": 650}))
    for _ in range(rows_module.INDEX_AFTER):
        assert rows.want(event)
    assert rows._index is not None, "it pays again"


def test_rows_that_change_while_others_are_taken_in_cost_no_copy(monkeypatch):
    copies = []
    rebuilt = rows_module._Version._rebuilt
    monkeypatch.setattr(
        rows_module._Version, "_rebuilt", lambda version: copies.append(1) or rebuilt(version)
    )
    pool, peer = Pool(CoveringOrder(), None), PeerId("a", 1)
    table = NO_ROWS
    for begin in range(0, 400, 20):
        new = table.changed([Entry("", wanted(begin + number)) for number in range(20)], [])
        pool.replace(peer, table, new)
        # More comes over the link before this has had its turns.
        table = new.changed([], [row_key(Entry("", wanted(begin)))])
        event = Publication("e", {"symbol": f"S{(begin + 3) % 50}", "price": begin + 4})
        while not pool.is_complete:
            pool.work(3)
            assert pool.wants(peer, event)
        pool.replace(peer, new, table)
    assert not copies
    pool.work(None)
    assert pool.rows([peer], NOWHERE).entries == table.entries


def test_a_publisher_that_is_told_now_and_then_costs_no_whole_table(monkeypatch):
    made = []
    view = Pool._view
    monkeypatch.setattr(Pool, "_view", lambda *given: made.append(1) or view(*given))
    pool, peer = Pool(CoveringOrder(), None), PeerId("a", 1)
    table, sent = NO_ROWS, NO_ROWS
    for begin in range(0, 4_000, 20):
        new = table.changed([Entry("", wanted(begin + number)) for number in range(20)], [])
        pool.replace(peer, table, new)
        pool.work(None)
        pool.rows([], NOWHERE)
        table = new
        if not begin % 800:
            # In between its view has followed more often than it was asked for.
            told = pool.rows([peer], NOWHERE)
            sent = sent.changed(*sent.change_to(told))
            assert sent == told == table
    assert len(made) == 2


# --- batches -----------------------------------------------------------------------------------


def test_batches_go_where_large_tables_want_them(monkeypatch):
    monkeypatch.setattr(batch_routing, "LARGE", 20)
    network = FilterNetwork(ring([10, 80, 160]), StrategySettings(), Random(1), pooled_from=1)
    network.connect_all()
    home, other = PeerId("n10"), PeerId("n80")
    subscribe_some(network, home, range(60))
    own = Home(HomeSettings(), lambda effect: None)
    for number in range(30):
        own.subscribe(f"s{number}", wanted(number))
    routing = BatchRouting(network.peers[other], own)
    batch = batch_of(
        [{"symbol": f"S{number}", "price": number + 1.5} for number in range(0, 99, 3)]
    )
    events = list(batch.publications())
    assert routing.match(batch) == {
        edge: [
            place
            for place, event in enumerate(events)
            if any(
                entry.filter.matches(event.event)
                for entry in network.peers[other].told(edge).entries
            )
        ]
        for edge in network.topologies[other].edges()
    }
    found = {name: its.tolist() for name, its in routing.at_home(batch)}
    expected: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        for name in own.matching(event):
            expected.setdefault(name, []).append(place)
    assert found == expected and list(found) == sorted(found)
    part = routing.for_edge(routing.match(batch), batch, home, (0, 1))
    assert part is not None
    assert np.array_equal(part.numbers, routing.match(batch)[home])
    assert table_of(network.tables()[other, home])


def dearest_step_of_a_new_link(rows):
    """The most bytecodes of a step in which two peers with a new link tell their rows."""
    slices = {"rows_per_turn": 4, "rows_told_per_turn": 16, "rows_per_message": 8}
    network, home, other = pair(**slices)
    subscribe_some(network, home, range(rows))
    before = network.tables()
    for peer, neighbour in ((home, other), (other, home)):
        network.peers[peer].peer_connected(neighbour)
    dearest = 0

    def measured(step):
        def call(*given):
            nonlocal dearest
            dearest = max(dearest, count_bytecodes(lambda: step(*given)))

        return call

    network.flush, network.deliver = measured(network.flush), measured(network.deliver)
    for peer in (home, other):
        network.flush(peer)
    network.run()
    assert network.tables() == before
    return dearest


def test_no_step_of_a_new_link_costs_more_where_there_are_many_rows():
    few, many = map(dearest_step_of_a_new_link, (250, 4_000))
    assert many < GROWTH_MAX * few
