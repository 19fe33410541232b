"""Connections and messages of the simulated network."""

import pytest

from peersub.overlays.core.causes import (
    ConnectFailed,
    PeerConnected,
    PeerHeard,
    PeerInDoubt,
    PeerLost,
    Received,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import Connect, Disconnect, Send, SetTimer
from peersub.overlays.core.identity import PeerId
from peersub.simulator.network import DriverRuleError
from simulator.toys import Numbered, simulate_toys, toy
from wire.samples import MESSAGES


def linked(*names, **settings):
    """Toys of which the first has a link to the second, and nothing is under way."""
    simulation = simulate_toys(*names, **settings)
    simulation.carry_out(names[0], [Connect(names[1])])
    simulation.run_until_idle(10_000)
    assert names[1] in simulation.hosts[names[0]].links
    return simulation


def send(simulation, sender, receiver, *numbers):
    messages = tuple(Numbered(number) for number in numbers)
    incarnation = simulation.hosts[receiver].incarnation
    simulation.carry_out(sender, [Send(PeerId(receiver, incarnation), messages)])


# --- connecting --------------------------------------------------------------------------------


def test_both_ends_learn_of_a_connection_the_other_end_first():
    simulation = simulate_toys("a", "b")
    simulation.carry_out("a", [Connect("b"), Connect("b")])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "a").causes(PeerConnected) == [PeerConnected(PeerId("b"))]
    assert toy(simulation, "b").causes(PeerConnected) == [PeerConnected(PeerId("a"))]
    assert toy(simulation, "b").times(PeerConnected) == [10]
    assert toy(simulation, "a").times(PeerConnected) == [20]


def test_two_who_connect_to_each_other_get_one_connection():
    simulation = simulate_toys("a", "b")
    simulation.carry_out("a", [Connect("b")])
    simulation.run_for(3)
    simulation.carry_out("b", [Connect("a")])
    simulation.run_until_idle(1_000)
    for name in "ab":
        assert len(toy(simulation, name).causes(PeerConnected)) == 1
        assert not toy(simulation, name).causes(ConnectFailed, PeerLost)


def test_what_the_other_end_says_comes_after_the_connection():
    for seed in range(20):
        simulation = simulate_toys("a", "b", seed=seed, jitter_ms=80, reorder=0.9, reorder_ms=0)
        said = (Numbered(1), Numbered(2))
        toy(simulation, "b").answers[PeerConnected] = [Send(PeerId("a"), said)]
        simulation.carry_out("a", [Connect("b")])
        simulation.run_until_idle(1_000)
        kinds = [type(cause) for _, cause in toy(simulation, "a").seen[1:]]
        assert kinds[0] is PeerConnected and sorted(toy(simulation, "a").numbers()) == [1, 2]


@pytest.mark.parametrize("obstacle", ["nobody", "crashed", "partition", "edge"])
def test_who_cannot_be_reached_makes_the_attempt_fail_after_a_while(obstacle):
    simulation = simulate_toys("a", "b", connect_failed_ms=300)
    match obstacle:
        case "crashed":
            simulation.crash(["b"])
        case "partition":
            simulation.partition([["b"]])
        case "edge":
            simulation.break_edges([("b", "a")])
    node = "nobody" if obstacle == "nobody" else "b"
    simulation.carry_out("a", [Connect(node)])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "a").causes(ConnectFailed) == [ConnectFailed(node, "nobody answers")]
    assert toy(simulation, "a").times(ConnectFailed) == [300]


def test_who_asked_and_crashed_leaves_the_other_with_a_link_to_nobody():
    simulation = simulate_toys("a", "b", detection_ms=200, detection_jitter_ms=0)
    simulation.carry_out("a", [Connect("b")])
    simulation.run_for(15)
    simulation.crash(["a"])
    simulation.run_until_idle(1_000)
    assert len(toy(simulation, "b").causes(PeerConnected)) == 1
    assert toy(simulation, "b").causes(PeerLost) == [PeerLost(PeerId("a"), "the connection broke")]


def test_who_was_asked_and_crashes_makes_the_attempt_fail():
    simulation = simulate_toys("a", "b")
    simulation.carry_out("a", [Connect("b")])
    simulation.run_for(15)
    simulation.crash(["b"])
    simulation.run_until_idle(1_000)
    assert len(toy(simulation, "a").causes(ConnectFailed)) == 1
    assert not toy(simulation, "a").causes(PeerConnected)


def test_a_new_life_replaces_a_connection_that_nobody_missed_yet():
    simulation = linked("a", "b", detection_ms=5_000)
    simulation.crash(["a"])
    simulation.restart("a", ["b"])
    simulation.carry_out("a", [Connect("b")])
    simulation.run_until_idle(20_000)
    of_links = toy(simulation, "b").causes(PeerConnected, PeerLost)
    reason = "the other end knows nothing of the connection"
    assert of_links[1:] == [PeerLost(PeerId("a"), reason), PeerConnected(PeerId("a", 1))]


# --- messages ----------------------------------------------------------------------------------


def test_messages_keep_their_order_on_a_link_however_long_each_takes():
    simulation = linked("a", "b", jitter_ms=50)
    for number in range(200):
        send(simulation, "a", "b", number)
        simulation.run_for(number % 3)
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").numbers() == list(range(200))
    assert simulation.in_flight == 0


def test_messages_of_one_send_arrive_together():
    simulation = linked("a", "b")
    send(simulation, "a", "b", 1, 2, 3)
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").causes(Received) == [
        Received(PeerId("a"), (Numbered(1), Numbered(2), Numbered(3)))
    ]


@pytest.mark.parametrize("loss", [0.05, 0.5])
def test_the_share_that_is_lost_is_about_what_the_settings_say(loss):
    simulation = linked("a", "b", loss=loss, seed=3)
    for number in range(2_000):
        send(simulation, "a", "b", number)
    simulation.run_until_idle(1_000)
    got = toy(simulation, "b").numbers()
    assert got == sorted(got), "what is not lost keeps its order"
    assert abs((1 - len(got) / 2_000) - loss) < 0.03
    assert simulation.counters.lost == 2_000 - len(got)


def test_messages_are_doubled_and_stay_in_order():
    simulation = linked("a", "b", duplicate=0.3, jitter_ms=20)
    for number in range(1_000):
        send(simulation, "a", "b", number)
    simulation.run_until_idle(1_000)
    got = toy(simulation, "b").numbers()
    assert got == sorted(got) and sorted({*got}) == list(range(1_000))
    assert abs(len(got) / 1_000 - 1.3) < 0.05


def test_messages_are_overtaken_and_none_is_lost():
    simulation = linked("a", "b", reorder=0.3)
    for number in range(500):
        send(simulation, "a", "b", number)
        simulation.run_for(1)
    simulation.run_until_idle(1_000)
    got = toy(simulation, "b").numbers()
    assert sorted(got) == list(range(500)) and got != sorted(got)


def test_a_send_without_a_link_is_an_error_of_the_node():
    simulation = simulate_toys("a", "b")
    with pytest.raises(DriverRuleError, match="a sends to b"):
        send(simulation, "a", "b", 1)


# --- breaking ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["partition", "edge"])
def test_what_is_under_way_dies_with_the_connection(fault):
    simulation = linked("a", "b", detection_ms=100, detection_jitter_ms=0)
    send(simulation, "a", "b", 1)
    if fault == "partition":
        simulation.partition([["a"]])
        simulation.heal()
    else:
        simulation.break_edges([("a", "b")])
        simulation.mend_edges()
    # The connection is gone, though all is well again; messages go nowhere until it is noticed.
    send(simulation, "b", "a", 2)
    broken_ms = simulation.now_ms
    simulation.run_until_idle(1_000)
    simulation.carry_out("a", [Connect("b")])
    simulation.run_until_idle(1_000)
    for name in "ab":
        assert toy(simulation, name).numbers() == []
        assert toy(simulation, name).times(PeerLost) == [broken_ms + 100]
        assert len(toy(simulation, name).causes(PeerConnected)) == 2


def test_what_a_node_sent_before_it_crashed_may_arrive_but_not_later():
    simulation = linked("a", "b", detection_ms=100, detection_jitter_ms=0)
    send(simulation, "a", "b", 1)
    send(simulation, "b", "a", 2)
    simulation.crash(["a"])
    send(simulation, "b", "a", 3)
    simulation.restart("a", ["b"])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").numbers() == [1]
    assert toy(simulation, "a").numbers() == []
    assert len(toy(simulation, "b").causes(PeerLost)) == 1


def test_nodes_on_one_side_of_a_partition_go_on_talking():
    simulation = linked("a", "b", "c", "d")
    simulation.carry_out("c", [Connect("d")])
    simulation.run_until_idle(1_000)
    simulation.partition([["c", "d"]])
    send(simulation, "a", "b", 1)
    send(simulation, "c", "d", 2)
    simulation.carry_out("a", [Connect("c")])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").numbers() == [1] and toy(simulation, "d").numbers() == [2]
    assert len(toy(simulation, "a").causes(ConnectFailed)) == 1
    simulation.heal()
    simulation.carry_out("a", [Connect("c")])
    simulation.run_until_idle(1_000)
    assert PeerConnected(PeerId("c")) in toy(simulation, "a").causes(PeerConnected)


def test_an_edge_failure_concerns_one_pair_only():
    simulation = linked("a", "b", "c")
    simulation.carry_out("a", [Connect("c")])
    simulation.run_until_idle(1_000)
    simulation.break_edges([("a", "b")])
    simulation.run_until_idle(1_000)
    send(simulation, "a", "c", 1)
    simulation.run_until_idle(1_000)
    assert toy(simulation, "c").numbers() == [1]
    assert [cause.peer.node for cause in toy(simulation, "a").causes(PeerLost)] == ["b"]


# --- closing -----------------------------------------------------------------------------------


def test_a_close_comes_after_what_was_sent_and_only_to_the_other_end():
    simulation = linked("a", "b", jitter_ms=30)
    for number in range(20):
        send(simulation, "a", "b", number)
    simulation.carry_out("a", [Disconnect(PeerId("b"), "enough")])
    send(simulation, "b", "a", 99)
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").numbers() == list(range(20))
    assert toy(simulation, "b").causes(PeerLost) == [PeerLost(PeerId("a"), "enough")]
    assert type(toy(simulation, "b").seen[-1][1]) is PeerLost
    assert not toy(simulation, "a").causes(PeerLost, Received)


def test_a_connection_made_again_waits_for_the_close_of_the_former():
    simulation = linked("a", "b", jitter_ms=30)
    for number in range(20):
        send(simulation, "a", "b", number)
    simulation.carry_out("a", [Disconnect(PeerId("b"), "enough"), Connect("b")])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").numbers() == list(range(20))
    kinds = [type(cause) for cause in toy(simulation, "b").causes(PeerConnected, PeerLost)]
    assert kinds == [PeerConnected, PeerLost, PeerConnected]
    assert len(toy(simulation, "a").causes(PeerConnected)) == 2


def test_what_was_sent_on_a_former_connection_never_arrives_on_a_later_one():
    simulation = linked("a", "b", reorder=0.999, reorder_ms=5_000)
    for number in range(20):
        send(simulation, "a", "b", number)
    simulation.carry_out("b", [Disconnect(PeerId("a"), "enough"), Connect("a")])
    simulation.run_for(200)
    assert "a" in simulation.hosts["b"].links and simulation.in_flight
    early = len(toy(simulation, "b").numbers())
    send(simulation, "a", "b", 99)
    simulation.run_until_idle(10_000)
    assert early < 10 and toy(simulation, "b").numbers()[early:] == [99]


def test_closing_what_is_gone_is_no_error():
    simulation = simulate_toys("a", "b")
    simulation.carry_out("a", [Disconnect(PeerId("b"))])
    assert simulation.next_ms is None


# --- hosts that stand still --------------------------------------------------------------------


def test_who_stands_still_takes_all_in_order_when_it_goes_on():
    simulation = linked("a", "b", detection_ms=1_000)
    begin_ms = simulation.now_ms
    send(simulation, "a", "b", 1)
    simulation.stall(["b"], 100)
    send(simulation, "a", "b", 2)
    simulation.run_for(90)  # The third is due when the stall ends, and comes after the others.
    send(simulation, "a", "b", 3)
    simulation.carry_out("b", [SetTimer(Timer("early"), 0)])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "b").numbers() == [1, 2, 3]
    assert toy(simulation, "b").times(Received, TimerFired) == [begin_ms + 100] * 4
    assert toy(simulation, "a").causes(PeerLost, PeerInDoubt) == []


def test_who_stands_still_is_doubted_and_heard_again():
    simulation = linked("a", "b", detection_ms=1_000, doubt_ms=100)
    simulation.stall(["b"], 500)
    simulation.run_until_idle(2_000)
    assert toy(simulation, "a").causes(PeerInDoubt, PeerHeard, PeerLost) == [
        PeerInDoubt(PeerId("b")),
        PeerHeard(PeerId("b")),
    ]


def test_who_stands_still_for_long_is_given_up_and_learns_of_it():
    simulation = linked("a", "b", detection_ms=300, detection_jitter_ms=0)
    simulation.stall(["b"], 1_000)
    send(simulation, "a", "b", 1)
    simulation.run_for(500)
    assert toy(simulation, "a").causes(PeerLost) != []
    assert toy(simulation, "b").causes(PeerLost) == []
    simulation.run_until_idle(2_000)
    assert toy(simulation, "b").numbers() == [1]
    assert len(toy(simulation, "b").causes(PeerLost)) == 1


def test_who_stands_still_lets_nobody_in():
    simulation = simulate_toys("a", "b")
    simulation.stall(["b"], 5_000)
    simulation.carry_out("a", [Connect("b")])
    simulation.run_for(1_000)
    assert len(toy(simulation, "a").causes(ConnectFailed)) == 1


def test_who_crashes_while_it_stands_still_is_gone():
    simulation = linked("a", "b", detection_ms=300)
    simulation.stall(["b"], 1_000)
    send(simulation, "a", "b", 1)
    simulation.run_for(100)
    simulation.crash(["b"])
    simulation.restart("b")
    simulation.run_until_idle(5_000)
    assert simulation.in_flight == 0
    assert toy(simulation, "b").numbers() == []
    assert len(toy(simulation, "a").causes(PeerLost)) == 1


# --- turns -------------------------------------------------------------------------------------


def receive(simulation, *messages, run_ms=10_000):
    """What a receiver takes of these, in its order."""
    simulation.carry_out("a", [Send(PeerId("b"), messages)])
    simulation.run_for(run_ms)
    return [m for _, cause in toy(simulation, "b").seen for m in getattr(cause, "messages", ())]


def test_events_overtake_filters_and_all_else_waits_behind_them():
    rows, event, later = (
        MESSAGES[name] for name in ("filter-update", "notify", "filter-confirmed")
    )
    told = (later, rows, later, event, rows)
    assert receive(linked("a", "b"), *told) == list(told)
    simulation = linked("a", "b", turn_ms=50)
    assert receive(simulation, *told) == [later, event, rows, later, rows]
    assert simulation.in_flight == 0


def test_a_connection_that_closes_takes_along_what_has_not_had_its_turn():
    rows, event = MESSAGES["filter-update"], MESSAGES["notify"]
    simulation = linked("a", "b", turn_ms=10_000, seed=3)
    assert event in receive(simulation, *(rows for _ in range(200)), event, run_ms=10)
    simulation.crash(["a"])
    simulation.run_until_idle(100_000)
    taken = toy(simulation, "b").causes(Received)
    assert 1 < len(taken) < 201 and simulation.in_flight == 0
    assert simulation.counters.lost == 201 - len(taken)
