"""The engine: causes, effects, disks, faults, observers."""

import pytest

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import (
    ConsumerAcked,
    Join,
    Leave,
    PeerLost,
    Persisted,
    Publish,
    Restored,
    Start,
    Subscribe,
    Timer,
    TimerFired,
)
from peersub.overlays.core.effects import (
    CancelTimer,
    Connect,
    Deliver,
    Disconnect,
    Persist,
    PublishCompleted,
    SetTimer,
    SubscriptionReady,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import EventHandedOver, IdentityStored
from peersub.simulator.engine import RunawayError, Simulation
from peersub.trace.schema import Disk, Fault, FaultKind, Phase, Step
from simulator.toys import Recorder, Toy, simulate_toys, toy


def test_timers_fire_once_and_the_last_setting_counts():
    simulation = simulate_toys("a")
    one, other = Timer("one"), Timer("other", ("about", 1))
    simulation.carry_out("a", [SetTimer(one, 5), SetTimer(other, 10), SetTimer(one, 20)])
    simulation.carry_out("a", [SetTimer(Timer("never"), 5), CancelTimer(Timer("never"))])
    simulation.run_until_idle(1_000)
    fired = [(at, cause.timer) for at, cause in toy(simulation, "a").seen[1:]]
    assert fired == [(10, other), (20, one)]
    assert not simulation.hosts["a"].timers


def test_timers_end_with_the_life_of_the_node():
    simulation = simulate_toys("a")
    simulation.carry_out("a", [SetTimer(Timer("one"), 50)])
    simulation.crash(["a"])
    simulation.restart("a")
    simulation.run_until_idle(1_000)
    assert not toy(simulation, "a").causes(TimerFired)


def test_a_restart_is_a_new_incarnation_with_what_the_disk_holds():
    simulation = simulate_toys("a", disk_ms=5)
    record = IdentityStored(b"x")
    simulation.carry_out("a", [Persist(7, record)])
    simulation.run_until_idle(1_000)
    assert toy(simulation, "a").seen[-1] == (5, Persisted(7))
    simulation.crash(["a"])
    simulation.restart("a", ["b", "c"])
    assert toy(simulation, "a").me == PeerId("a", 1)
    assert [cause for _, cause in toy(simulation, "a").seen] == [
        Restored((record,)),
        Join(("b", "c")),
    ]
    simulation.crash(["a"])
    simulation.restart("a")
    assert toy(simulation, "a").me == PeerId("a", 2)
    assert [cause for _, cause in toy(simulation, "a").seen] == [Restored((record,)), Start()]


def test_a_disk_that_is_lost_is_empty_and_says_nothing():
    simulation = simulate_toys("a")
    simulation.carry_out("a", [Persist(1, IdentityStored(b"x"))])
    simulation.run_until_idle(1_000)
    simulation.crash(["a"])
    simulation.restart("a", ["b"], Disk.LOST)
    assert [cause for _, cause in toy(simulation, "a").seen] == [Join(("b",))]
    assert not simulation.hosts["a"].disk.records


def records_after_crash(seed, fate=Disk.KEPT):
    """Ten records that are on disk and ten that are on their way when the node crashes."""
    simulation = simulate_toys("a", disk_ms=5, seed=seed)
    for number in range(20):
        if number == 10:
            simulation.run_until_idle(1_000)
        simulation.carry_out("a", [Persist(number, EventHandedOver(f"e{number}"))])
    simulation.crash(["a"])
    simulation.restart("a", disk=fate)
    simulation.run_until_idle(1_000)
    assert not toy(simulation, "a").causes(Persisted), "nobody is told of an earlier life's records"
    (restored,) = toy(simulation, "a").causes(Restored)
    return [int(record.event_id[1:]) for record in restored.records]


def test_a_crash_keeps_what_was_confirmed_and_loses_a_tail_of_the_rest():
    found = [records_after_crash(seed) for seed in range(30)]
    assert all(numbers == list(range(len(numbers))) for numbers in found)
    sizes = sorted(len(numbers) for numbers in found)
    assert sizes[0] >= 10 and sizes[-1] <= 20
    assert sizes[0] < 14 and sizes[-1] > 16, "how much is lost is drawn"


def test_a_disk_may_lose_its_tail_though_it_was_confirmed():
    found = [len(records_after_crash(seed, Disk.TAIL_LOST)) for seed in range(30)]
    assert min(found) < 10


def test_consumers_acknowledge_what_was_promised_and_only_that():
    simulation = simulate_toys("a", consumer_ms=30)
    simulation.carry_out("a", [Deliver(Publication("e1", {}), ("s1",))])
    promised = Publication("e2", {}, delivery=Delivery.AT_LEAST_ONCE)
    simulation.carry_out("a", [Deliver(promised, ("s1", "s2"))])
    simulation.run_until_idle(1_000)
    acknowledged = toy(simulation, "a").causes(ConsumerAcked)
    assert acknowledged == [ConsumerAcked("s1", "e2"), ConsumerAcked("s2", "e2")]
    assert toy(simulation, "a").times(ConsumerAcked) == [30, 30]
    assert simulation.counters.delivered == 3


def test_obligations_are_what_living_nodes_owe():
    simulation = simulate_toys("a", "b")
    simulation.cause("a", Subscribe("s1", Filter("a = 1")))
    promised = Publication("e1", {}, delivery=Delivery.AT_LEAST_ONCE)
    simulation.cause("b", Publish((promised, Publication("e2", {}))))
    assert simulation.obligations() == ["a: subscription s1", "b: publication e1"]
    simulation.carry_out("a", [SubscriptionReady("s1")])
    assert simulation.obligations() == ["b: publication e1"]
    simulation.carry_out("b", [PublishCompleted("e1")])
    assert simulation.obligations() == []
    simulation.cause("a", Subscribe("s2", Filter("a = 1")))
    simulation.crash(["a"])
    assert simulation.obligations() == []
    toy(simulation, "b").is_joining = True
    assert simulation.obligations() == ["b: join"]


def test_who_takes_leave_is_off_once_its_links_are_closed():
    simulation = simulate_toys("a", "b")
    simulation.carry_out("a", [Connect("b")])
    simulation.run_until_idle(1_000)
    node = toy(simulation, "a")
    node.answers[Leave] = [SetTimer(Timer("gone"), 70)]
    node.answers[TimerFired] = [Disconnect(PeerId("b"), "leaves")]
    simulation.leave("a")
    simulation.run_for(69)
    assert simulation.is_on("a")
    simulation.run_for(1)
    assert not simulation.is_on("a")
    simulation.run_for(100)
    assert toy(simulation, "b").causes(PeerLost) == [PeerLost(PeerId("a"), "leaves")]


def test_who_takes_too_long_to_leave_is_switched_off():
    simulation = simulate_toys("a", "b", leave_limit_ms=500)
    simulation.carry_out("a", [Connect("b")])
    simulation.run_until_idle(1_000)
    simulation.leave("a")
    simulation.run_until_idle(10_000)
    assert not simulation.is_on("a")
    assert [cause.reason for cause in toy(simulation, "b").causes(PeerLost)] == ["left"]


def test_observers_are_told_all_in_order():
    recorder = Recorder()
    simulation = simulate_toys("a", observers=[recorder])
    simulation.mark("crashing", disturbed=True)
    simulation.crash(["a"])
    simulation.restart("a", disk=Disk.LOST)
    assert recorder.records == [
        Step(0, "a", Start(), []),
        Phase(0, "crashing", disturbed=True),
        Fault(0, FaultKind.CRASH, nodes=("a",)),
        Fault(0, FaultKind.RESTART, nodes=("a",), disk=Disk.LOST),
        Step(0, "a", Start(), []),
    ]


def test_faults_are_told_with_whom_they_concern():
    recorder = Recorder()
    simulation = simulate_toys("a", "b", observers=[recorder])
    simulation.partition([["a"]])
    simulation.heal()
    simulation.break_edges([("a", "b")])
    simulation.mend_edges()
    simulation.stall(["b"], 100)
    simulation.run_for(100)
    faults = [record for record in recorder.records if isinstance(record, Fault)]
    assert faults == [
        Fault(0, FaultKind.PARTITION, groups=(("a",),)),
        Fault(0, FaultKind.HEAL),
        Fault(0, FaultKind.EDGE_FAILURE, pairs=(("a", "b"),)),
        Fault(0, FaultKind.EDGE_HEAL, pairs=(("a", "b"),)),
        Fault(0, FaultKind.STALL, nodes=("b",)),
        Fault(100, FaultKind.STALL_OVER, nodes=("b",)),
    ]


class Restless(Toy):
    """Sets its timer again and again."""

    def handle(self, cause, now_ms):
        return [SetTimer(Timer("again"), 1)]


def test_a_run_that_does_not_end_is_ended():
    simulation = Simulation(1, Restless, steps_max=10_000)
    simulation.start("a")
    with pytest.raises(RunawayError, match="more than 10,000 steps"):
        simulation.run_for(10**9)


def test_progress_is_reported_now_and_then():
    seen = []
    simulation = Simulation(1, Restless, progress=lambda s: seen.append(s.counters.steps))
    simulation.start("a")
    simulation.run_for(10_000)
    assert seen == [4_096, 8_192]


def test_running_until_a_condition_holds_stops_at_once():
    simulation = simulate_toys("a", "b")
    simulation.carry_out("a", [Connect("b")])
    assert simulation.run_until(lambda: "a" in simulation.hosts["b"].links, 1_000)
    assert simulation.now_ms == 10 and "b" not in simulation.hosts["a"].links
    assert not simulation.run_until(lambda: False, 100)
