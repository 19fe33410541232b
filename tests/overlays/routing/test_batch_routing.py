"""All tables of a node against a batch at once: what asking each table about each event gives."""

from random import Random

import numpy as np
import pytest

from matching.populations import event, filter_text
from overlays.core.batch_rows import batch_of
from peersub.filters import Filter
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.home import Home, HomeSettings
from peersub.overlays.core.identity import PeerId
from peersub.overlays.routing.batch_routing import BatchRouting
from peersub.overlays.routing.messages import Entry
from peersub.overlays.routing.rows import Rows
from peersub.overlays.routing.tables import EdgeTable

PEERS = [PeerId(f"n{number}") for number in range(5)]
STRANGER = PeerId("nobody")
PARTS = [(0, 64), (64, 64), (128, 100)]


class _Tables:
    """What the routing of batches sees of the filters on edges."""

    def __init__(self, reach: ChordTopology | None) -> None:
        self.reach = reach
        self.tables = {peer: EdgeTable((0, 256), 1) for peer in PEERS}

    def table(self, peer: PeerId) -> EdgeTable | None:
        return self.tables.get(peer)

    def large_edges(self, rows_min: int) -> tuple[PeerId, ...]:
        return ()

    def all_rows(self) -> tuple[Rows, ...]:
        return tuple(table.rows for table in self.tables.values())


def some_rows(random: Random, pool: list[Filter], reaches: list[tuple[int, ...]]) -> Rows:
    chosen = random.sample(pool, random.choice((0, 1, 3, 6)))
    return Rows.of([Entry("", wanted, random.choice(reaches)) for wanted in chosen])


@pytest.mark.parametrize("has_reach", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_edges_and_subscriptions_get_what_they_want(seed, has_reach):
    random = Random(seed)
    pool = [Filter(filter_text(random)) for _ in range(30)] + [
        Filter.xpath("/a"),
        Filter.xpath("//b"),
    ]
    reaches: list[tuple[int, ...]] = [(), (3, 1), (70, 80)] if has_reach else [()]
    tables = _Tables(ChordTopology(PeerId("me"), 0, 8) if has_reach else None)
    home = Home(HomeSettings(), lambda effect: None)
    routing = BatchRouting(tables, home)  # type: ignore[arg-type]
    handed = 0
    for number in range(12):
        for table in random.sample(list(tables.tables.values()), 2):
            if random.random() < 0.3:
                table.hold(some_rows(random, pool, reaches))
            else:
                table.install(some_rows(random, pool, reaches))
        for name in [name for name in home.subscriptions if random.random() < 0.3]:
            home.unsubscribe(name)
        for place in range(random.randint(0, 3)):
            home.subscribe(f"s{number}.{place}", random.choice(pool))
        rows = [event(random) for _ in range(9)]
        bodies = [random.choice((None, b"<a><b/></a>", b"<c/>")) for _ in rows]
        batch = batch_of(rows, bodies=bodies).part(np.arange(1, 9))
        events = list(batch.publications())
        wanted = routing.match(batch)
        found = {name: [events[row].id for row in its] for name, its in routing.at_home(batch)}
        expected: dict[str, list[str]] = {}
        for each in events:
            for name in home.matching(each):
                expected.setdefault(name, []).append(each.id)
        assert found == expected and list(found) == sorted(found)
        handed += len(found)
        for peer, table in tables.tables.items():
            for part in PARTS:
                its = routing.for_edge(wanted, batch, peer, part)
                asked = [e.id for e in events if table.matches(e, part, tables.reach)]
                assert ([] if its is None else [e.id for e in its.publications()]) == asked
        assert routing.for_edge(wanted, batch, STRANGER, PARTS[0]) is batch
    assert handed > 10


def test_an_edge_of_which_nothing_is_known_gets_all_events_but_no_empty_batch():
    tables = _Tables(None)
    routing = BatchRouting(tables, Home(HomeSettings(), lambda effect: None))  # type: ignore[arg-type]
    batch = batch_of([{"a": 1}, {"a": 2}])
    assert routing.for_edge(routing.match(batch), batch, PEERS[0], (0, 1)) is batch
    nothing = batch.part(np.arange(0))
    assert routing.for_edge(routing.match(nothing), nothing, PEERS[0], (0, 1)) is None
    assert routing.at_home(nothing) == ()
