"""Deduplication never forgets what may be repeated: what is new waits for room, then fails."""

from overlays.chord.ring_world import World
from overlays.core.batch_rows import batch_of
from peersub.overlays.core.causes import Publish, PublishBatch
from peersub.overlays.core.effects import PublishFailed
from peersub.overlays.core.event_history import EVENT_BYTES
from peersub.overlays.core.home import Home
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.routing import intake
from peersub.trace.schema import Step

HORIZON_MS = 40_000
SMALL = {
    "history_horizon_ms": HORIZON_MS,
    "give_up_ms": 30_000,
    "replay_horizon_ms": 5_000,
    "room_wait_ms": 10_000,
    "retry_ms": 500,
    "retry_ms_max": 1_000,
}


class _Ring(World):
    """A ring whose homes remember so many acknowledged events; one subscription wants them all."""

    def __init__(self, remembered: int, nodes: int) -> None:
        self.failed: dict[str, str] = {}
        super().__init__(7, **SMALL, history_bytes_max=remembered * EVENT_BYTES)
        self.grow(nodes)
        self.settle()
        self.home = self.nodes[-1]
        self.wanted = self.subscribe(self.home, "x >= 0")
        self.settle()

    def observe(self, record) -> None:
        super().observe(record)
        if isinstance(record, Step):
            for effect in record.effects:
                if isinstance(effect, PublishFailed):
                    self.failed[effect.event_id] = effect.reason

    def send(self, node: str, names: list[str], source: str = "p") -> None:
        """Publish at least once."""
        events = [Publication(n, {"x": 1}, delivery=Delivery.AT_LEAST_ONCE) for n in names]
        self.simulation.cause(node, Publish(tuple(events), source))


def test_an_event_that_is_repeated_within_the_horizon_is_not_handed_over_twice():
    """However many others came meanwhile; 3 nodes, from elsewhere and at the home itself."""
    ring = _Ring(remembered=60, nodes=3)
    for place, node in enumerate((ring.nodes[0], ring.home)):
        first = f"first-{place}"
        ring.send(node, [first])
        ring.simulation.run_for(200)
        ring.send(node, [f"e{place}-{number}" for number in range(500)])
        ring.simulation.run_for(3_000)
        ring.send(node, [first])
        ring.simulation.run_for(1_000)
        assert ring.delivered[first] == [ring.wanted]
        ring.simulation.run_for(HORIZON_MS)
    ring.settle()
    assert all(names == [ring.wanted] for names in ring.delivered.values())
    # What found no room in time has failed in clear words, and what completed was handed over.
    assert ring.failed and ring.completed.keys() <= ring.delivered.keys()
    assert all("no room to remember more" in reason for reason in ring.failed.values())


def test_what_waits_is_taken_when_older_events_may_be_forgotten():
    ring = _Ring(remembered=200, nodes=2)
    sender = ring.nodes[0]
    taken = [f"e{number}" for number in range(60)]
    ring.send(sender, taken)
    ring.simulation.run_for(HORIZON_MS - 5_000)
    assert ring.completed.keys() == set(taken)
    ring.send(sender, [f"f{number}" for number in range(30)])
    ring.simulation.run_for(2_000)
    late = {name for name in ring.delivered if name.startswith("f")}
    assert len(late) < 30 and not ring.failed
    ring.simulation.run_for(10_000)
    assert {f"f{number}" for number in range(30)} <= ring.completed.keys() and not ring.failed


def test_a_publisher_that_floods_takes_no_room_from_another():
    ring = _Ring(remembered=600, nodes=3)
    sender = ring.nodes[0]
    ring.send(sender, [f"flood-{number}" for number in range(2_000)], "flooder")
    ring.simulation.run_for(2_000)
    for number in range(20):
        # At the flooder's own node, and at another one.
        ring.send(sender, [f"beside-{number}"], "victim")
        ring.send(ring.nodes[1], [f"elsewhere-{number}"], "victim")
    ring.simulation.run_for(2_000)
    for number in range(20):
        assert {f"beside-{number}", f"elsewhere-{number}"} <= ring.completed.keys()
    floods = sum(name.startswith("flood") for name in ring.delivered)
    assert 100 <= floods <= 200, "two thirds of what its node may publish"


def test_a_turn_asks_about_few_of_those_that_wait_and_none_waits_for_ever(monkeypatch):
    monkeypatch.setattr(intake, "REFUSED_AT_ONCE", 10)
    ring = _Ring(remembered=60, nodes=2)
    names = [f"e{number}" for number in range(500)]
    ring.send(ring.nodes[0], names)
    ring.simulation.run_for(2_000)
    asked, admit = [], Home.admit
    monkeypatch.setattr(Home, "admit", lambda *about: asked.append(about[1].id) or admit(*about))
    ring.simulation.run_for(2_000)
    assert 0 < len(asked) <= 50 and len(set(asked)) > 10, "others have their turn"
    ring.simulation.run_for(10_000)
    assert ring.completed.keys() | ring.failed.keys() >= set(names)


def test_batches_wait_as_well():
    ring = _Ring(remembered=400, nodes=2)
    rows = [{"x": 1} for _ in range(60)]
    batches = [
        batch_of(rows, name=f"b{number}", delivery=Delivery.AT_LEAST_ONCE) for number in range(8)
    ]
    for _ in range(2):
        for batch in batches:
            ring.simulation.cause(ring.nodes[0], PublishBatch(batch, "p"))
        ring.simulation.run_for(2_000)
    done = {name for name in ring.completed if name.startswith("b")}
    assert 0 < len(done) < 8
    ring.simulation.run_for(15_000)
    assert ring.completed.keys() | ring.failed.keys() >= {batch.id for batch in batches}


def test_best_effort_events_push_out_no_acknowledged_ones():
    ring = _Ring(remembered=60, nodes=2)
    ring.send(ring.nodes[0], ["sure"])
    ring.simulation.run_for(1_000)
    for number in range(1_000):
        event = Publication(f"light-{number}", {"x": 1})
        ring.simulation.cause(ring.nodes[0], Publish((event,)))
    ring.simulation.run_for(1_000)
    ring.send(ring.nodes[0], ["sure", "next"])
    ring.simulation.run_for(1_000)
    assert ring.delivered["sure"] == [ring.wanted] and "next" in ring.completed
