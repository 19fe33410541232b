"""Filter maintenance in small networks, under random orders of messages."""

from random import Random

import pytest

from overlays.routing.filter_networks import (
    SIZE,
    FilterNetwork,
    random_tree,
    ring,
    ring_oracle,
    table_of,
    tree_oracle,
)
from overlays.routing.wishes import EVENTS, any_wish, wish
from peersub.filters.filter import Filter
from peersub.filters.price import PART_PRICE_MAX, ROW_PRICE_MAX
from peersub.filters.widened import UnreadFilter
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing import publishers
from peersub.overlays.routing.control_filters import control_attributes, control_filter
from peersub.overlays.routing.messages import (
    Entry,
    FilterConfirmed,
    FilterMismatch,
    FilterUpdate,
    ResponsibilityChange,
)
from peersub.overlays.routing.rows import Rows
from peersub.overlays.routing.strategies import STRATEGIES, StrategySettings
from peersub.overlays.tree.topology import TreeTopology

EXACT = ("simple", "identity", "covering", "perfect")


def publication(attributes):
    return Publication("e", attributes)


class Story:
    """A network with random subscriptions that come and go while messages are on their way."""

    def __init__(self, shape, strategy, seed, make=wish, coalesce_ms=0, **settings):
        self.random = random = Random(seed)
        self.strategy = strategy
        self.keys = []
        if shape == "ring":
            self.keys = random.sample(range(SIZE), random.randint(2, 9))
            topologies = ring(self.keys)
        else:
            topologies = random_tree(random.randint(2, 9), random)
        chosen = StrategySettings(strategy=strategy, sample=tuple(EVENTS[::3]), **settings)
        # Changes that come in slices, and tables that are asked together, make no difference.
        slices = {"rows_per_turn": (64, 1, 3)[seed % 3], "pooled_from": (256, 1)[seed // 3 % 2]}
        slices["burst_ms"] = (0, 0, 0, 5)[seed % 4]
        self.network = FilterNetwork(topologies, chosen, random, coalesce_ms, **slices)
        self.network.on_ready = self.check_ready
        self.network.connect_all()
        self.network.run()
        self.make = make
        self.subscriptions = {peer: {} for peer in self.network.peers}
        self.names = 0

    def subscribe(self):
        peer = self.random.choice(list(self.network.peers))
        name, wanted = f"s{self.names}", self.make(self.random)
        self.names += 1
        self.subscriptions[peer][name] = wanted
        self.network.subscribe(peer, name, wanted)

    def unsubscribe(self):
        live = [(peer, name) for peer, names in self.subscriptions.items() for name in names]
        if live:
            peer, name = self.random.choice(live)
            del self.subscriptions[peer][name]
            self.network.unsubscribe(peer, name)

    def tell(self, changes=25):
        for _ in range(changes):
            self.random.choice([self.subscribe, self.subscribe, self.unsubscribe])()
            for _ in range(self.random.randrange(25)):
                self.network.step()
        self.network.run()

    def check_ready(self, peer, name):
        """Ready: an event that the subscription wants finds the way from everywhere, right now."""
        wanted = self.subscriptions[peer][name]
        found = [event for event in EVENTS if wanted.matches(event)]
        for event in self.random.sample(found, min(3, len(found))):
            for publisher in self.network.peers:
                assert peer in self.network.reached(publisher, publication(event))

    def expected(self):
        if self.keys:
            return ring_oracle(self.strategy, self.keys, self.subscriptions)
        return tree_oracle(self.strategy, self.network.topologies, self.subscriptions)

    def tables(self):
        return {edge: table_of(rows) for edge, rows in self.network.tables().items()}

    def is_ready(self):
        live = {(peer, name) for peer, names in self.subscriptions.items() for name in names}
        return live <= set(self.network.ready)


@pytest.fixture(params=["whole", "in-parts"])
def slices(request, monkeypatch):
    """How much is done at once: tables are small here, and large ones are worked out in parts."""
    if request.param == "whole":
        return {}
    monkeypatch.setattr("peersub.overlays.routing.combination.LOOKED_AT_ONCE", 1)
    monkeypatch.setattr("peersub.overlays.routing.combination.LOOKED_AT_PER_ROW", 1)
    return {"rows_per_turn": 1, "rows_told_per_turn": 1, "rows_per_message": 1}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strategy", EXACT)
@pytest.mark.parametrize("shape", ["ring", "tree"])
def test_at_rest_the_tables_are_the_fixpoint(slices, shape, strategy, seed):
    """Digest section 5 and rows 7, 8, 13: F*, readiness, and nothing left in the end."""
    story = Story(shape, strategy, seed, coalesce_ms=5 * (seed % 2))
    story.tell()
    assert story.tables() == story.expected()
    assert story.is_ready()
    while any(story.subscriptions.values()):
        story.unsubscribe()
    story.network.run()
    assert not any(len(rows) for rows in story.network.tables().values())
    assert story.network.drops == []
    assert FilterMismatch not in story.network.sent


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["ring", "tree"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_filters_of_all_kinds_find_the_way(strategy, shape, seed):
    story = Story(shape, strategy, 100 + seed, any_wish, rows_max=5)
    story.tell(15)
    assert story.is_ready()
    for peer, names in story.subscriptions.items():
        for wanted in names.values():
            for event in [event for event in EVENTS if wanted.matches(event)][:2]:
                for publisher in story.network.peers:
                    assert peer in story.network.reached(publisher, publication(event))
    for rows in story.network.tables().values():
        assert strategy != "imperfect" or len(rows.entries) <= 5


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strategy", ["identity", "covering"])
def test_exact_reaches_visit_the_nodes_between_and_no_others(strategy, seed):
    """Digest section 5, imprecision (a): who relays an event has a wish behind it, in its arc."""
    story = Story("ring", strategy, 200 + seed, exact_reach=True)
    story.tell()
    assert story.is_ready()
    network = story.network
    for event in story.random.sample(EVENTS, 8):
        wanting = {
            peer
            for peer, names in story.subscriptions.items()
            if any(wanted.matches(event) for wanted in names.values())
        }
        for publisher in network.peers:
            served = {}
            waiting = [(publisher, network.topologies[publisher].whole())]
            while waiting:
                peer, scope = waiting.pop()
                served[peer] = scope
                waiting += [
                    (other, part)
                    for other, part in network.topologies[peer].parts(scope, None)
                    if network.peers[peer].matches(other, publication(event), part)
                ]
            assert wanting <= set(served)
            for peer, scope in served.items():
                inside = [one for one in wanting if network.topologies[one].holds_me(scope)]
                assert inside or peer == publisher


@pytest.mark.parametrize("seed", range(5))
def test_labels_fall_along_every_chain_of_updates(seed):
    """Section 4.4: what v forwards of its edge with label k goes to who has a lower one for v."""
    random = Random(seed)
    network = FilterNetwork(
        ring(random.sample(range(SIZE), 12)), StrategySettings(strategy="identity"), random
    )
    network.connect_all()
    network.run()
    lengths = {}
    for number in range(6):
        peer = random.choice(list(network.peers))
        wanted = Filter(f"a = {number}")
        label = {peer: network.topologies[peer].bits + 1}
        depth = {peer: 0}

        def on_message(sender, receiver, message, label=label, depth=depth):
            if isinstance(message, FilterUpdate):
                mine = network.topologies[receiver].label_of(sender)
                assert mine < label[sender]
                if receiver not in label or label[receiver] < mine:
                    label[receiver] = mine
                    depth[receiver] = depth[sender] + 1

        network.on_message = on_message
        network.subscribe(peer, f"s{number}", wanted)
        # One link after the other in the order of sending: each peer hears of one edge first.
        network.run()
        lengths[number] = max(depth.values())
    assert max(lengths.values()) <= network.topologies[peer].bits


def two_in_a_row():
    """A chain n0 - n1 - n2 in which n0 hears of n2 only through n1."""
    names = [PeerId(f"n{number}") for number in range(3)]
    topologies = {name: TreeTopology() for name in names}
    for one, other in ((0, 1), (1, 2)):
        topologies[names[one]].add(names[other])
        topologies[names[other]].add(names[one])
    network = FilterNetwork(topologies, StrategySettings(strategy="covering"), Random(1))
    network.connect_all()
    network.run()
    network.sent.clear()
    return network, names


def test_a_covered_subscription_waits_for_its_pending_coverer():
    """Digest row 13."""
    network, (first, middle, last) = two_in_a_row()
    network.subscribe(last, "wide", Filter("a > 1"))
    network.deliver(middle, last, network.links[last, middle].popleft())
    network.flush(middle)
    assert len(network.links[middle, first]) == 1, "the wide filter is on its way to the first"
    network.subscribe(last, "narrow", Filter("a > 2"))
    network.subscribe(middle, "narrow too", Filter("a > 3"))
    assert not network.links[last, middle], "covered: nothing more is sent"
    assert network.ready == []
    assert network.peers[last].pending("narrow") == (middle,)
    network.run()
    assert sorted(name for _, name in network.ready) == ["narrow", "narrow too", "wide"]
    assert network.peers[last].pending("narrow") == ()


def test_a_covered_filter_is_stored_and_comes_to_light():
    """Digest rows 7 and 8: when the coverer goes, what it covered is passed on."""
    network, (first, middle, last) = two_in_a_row()
    network.subscribe(last, "narrow", Filter("a > 2"))
    network.subscribe(middle, "wide", Filter("a > 1"))
    network.run()
    assert table_of(network.tables()[first, middle]) == (("", "a > 1"),)
    network.unsubscribe(middle, "wide")
    network.run()
    assert table_of(network.tables()[first, middle]) == (("", "a > 2"),)


def test_a_lost_publisher_is_not_waited_for():
    network, (first, middle, last) = two_in_a_row()
    network.subscribe(last, "s", Filter("a = 1"))
    network.deliver(middle, last, network.links[last, middle].popleft())
    network.flush(middle)
    assert not network.ready
    network.cut(first, middle)
    network.flush(middle)
    network.run()
    assert network.ready == [(last, "s")]


def test_what_an_earlier_link_was_to_confirm_confirms_nothing_on_a_later_one():
    """Numbers begin anew with a link: the 2 of before is not the 2 of now."""
    network, (first, middle, last) = two_in_a_row()
    network.subscribe(last, "s", Filter("a = 1"))
    network.deliver(middle, last, network.links[last, middle].popleft())
    network.flush(middle)
    network.cut(middle, last)
    reconnect(network, middle, last)
    between = [(middle, last), (last, middle)]
    deliver_all(network, between)
    network.subscribe(last, "t", Filter("b = 1"))
    deliver_all(network, between)
    # The first peer takes in what came of the earlier link, and confirms that.
    update = network.links[middle, first].popleft()
    network.deliver(first, middle, update)
    network.flush(first)
    deliver_all(network, [(first, middle), *between])
    assert (last, "t") not in network.ready
    network.run()
    assert (last, "t") in network.ready


def deliver_all(network, links):
    """Deliver what is on these links, and what comes of it on them, until nothing is left."""
    while any(network.links.get(link) for link in links):
        for sender, receiver in links:
            queue = network.links.get((sender, receiver))
            while queue:
                network.deliver(receiver, sender, queue.popleft())
            network.flush(receiver)


def test_a_publisher_that_comes_while_a_subscription_waits_is_waited_for_too():
    network, (_, middle, last) = two_in_a_row()
    network.subscribe(last, "s", Filter("a = 1"))
    newcomer = PeerId("n3")
    network.peers[last].peer_connected(newcomer)
    network.topologies[last].add(newcomer)
    network.peers[last].edges_changed({}, {})
    network.deliver(last, newcomer, ResponsibilityChange(1, (1,)))
    network.flush(last)
    assert network.peers[last].pending("s") == (middle, newcomer)
    deliver_all(network, [link for link in network.links if newcomer not in link])
    assert network.ready == []
    network.deliver(last, newcomer, FilterConfirmed(1))
    network.flush(last)
    assert network.ready == [(last, "s")]


def test_an_unsubscribed_name_never_becomes_ready():
    network, (_, middle, last) = two_in_a_row()
    network.subscribe(last, "s", Filter("a = 1"))
    network.unsubscribe(last, "s")
    network.subscribe(middle, "t", Filter("a = 1"))
    network.run()
    assert network.ready == [(middle, "t")]


def test_readiness_can_be_held_until_a_node_has_joined():
    network, (_, _, last) = two_in_a_row()
    network.peers[last].hold_ready(True)
    network.subscribe(last, "s", Filter("a = 1"))
    network.run()
    assert network.ready == []
    network.peers[last].hold_ready(False)
    network.flush(last)
    network.run()
    assert network.ready == [(last, "s")]


def test_a_planted_difference_is_found_by_its_digest_and_healed():
    """Decision 10: a mismatch triggers a full exchange."""
    network, (first, middle, last) = two_in_a_row()
    network.subscribe(last, "s", Filter("a = 1"))
    network.run()
    table = network.peers[first]._tables[middle]
    table.install(Rows.of([Entry("", Filter("z = 1"))]))
    network.subscribe(last, "t", Filter("b = 1"))
    network.subscribe(last, "u", Filter("c = 1"))
    network.run()
    expected = (("", "a = 1"), ("", "b = 1"), ("", "c = 1"))
    assert table_of(network.tables()[first, middle]) == expected
    assert not table.held
    assert network.sent[FilterMismatch] >= 1
    assert {name for _, name in network.ready} == {"s", "t", "u"}


def test_a_table_that_never_fits_its_digest_is_not_asked_for_for_ever():
    network, (first, middle, _) = two_in_a_row()
    wrong = FilterUpdate(9, 99, (Entry("", Filter("a = 1")),), (), b"wrong", first=True)
    for _ in range(10):
        network.deliver(first, middle, wrong)
    network.flush(first)
    asked = [m for m in network.links[first, middle] if isinstance(m, FilterMismatch)]
    assert len(asked) == 3
    assert "digest" in network.drops[0].reason


def test_long_tables_travel_in_chunks(monkeypatch):
    monkeypatch.setattr(publishers, "ROWS_PER_UPDATE_MAX", 4)
    network, (first, middle, last) = two_in_a_row()
    for number in range(30):
        network.peers[last].subscribe(f"s{number}", Filter(f"a = {number}"))
    network.flush(last)
    chunks = list(network.links[last, middle])
    assert [len(chunk.added) for chunk in chunks] == [4] * 7 + [2]
    assert [chunk.last for chunk in chunks] == [False] * 7 + [True]
    network.run()
    assert len(network.tables()[first, middle]) == 30
    for number in range(29):
        network.peers[last].unsubscribe(f"s{number}")
    network.flush(last)
    assert [len(chunk.removed) for chunk in network.links[last, middle]] == [4] * 7 + [1]
    network.run()
    assert table_of(network.tables()[first, middle]) == (("", "a = 29"),)


def test_chunks_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(publishers, "BYTES_PER_UPDATE_MAX", 200)
    network, (_, middle, last) = two_in_a_row()
    wanted = Filter(f"a IN ({', '.join(map(str, range(300)))})")
    network.peers[last].subscribe("large", wanted)
    for number in range(20):
        network.peers[last].subscribe(f"s{number}", Filter(f"b = {number}"))
    network.flush(last)
    for chunk in network.links[last, middle]:
        sizes = [len(entry.filter.to_bytes()) for entry in chunk.added]
        assert len(sizes) == 1 or sum(sizes) <= 200
    network.run()
    assert len(network.tables()[middle, last]) == 21


def test_several_changes_are_one_update():
    network, (_, middle, last) = two_in_a_row()
    for number in range(5):
        network.peers[last].subscribe(f"s{number}", Filter(f"a = {number}"))
    network.flush(last)
    assert len(network.links[last, middle]) == 1
    network.run()
    assert network.sent[FilterUpdate] == 2
    assert network.sent[FilterConfirmed] == 2


def test_changes_can_be_collected_over_time():
    topologies = random_tree(2, Random(0))
    network = FilterNetwork(topologies, StrategySettings(), Random(1), coalesce_ms=50)
    network.connect_all()
    network.run()
    network.sent.clear()
    peer = PeerId("n0")
    for number in range(5):
        network.subscribe(peer, f"s{number}", Filter(f"a = {number}"))
    assert network.sent == {}
    assert list(network.timers) == [peer]
    network.run()
    assert network.sent == {FilterUpdate: 1, FilterConfirmed: 1}
    assert len(network.ready) == 5


def test_the_first_of_many_changes_are_passed_on_at_once():
    topologies = random_tree(2, Random(0))
    network = FilterNetwork(topologies, StrategySettings(), Random(1), burst_ms=50)
    network.connect_all()
    network.run()
    network.sent.clear()
    network.now_ms += 1_000
    peer = PeerId("n0")
    for number in range(20):
        network.subscribe(peer, f"s{number}", Filter(f"a = {number}"))
    assert network.sent == {FilterUpdate: 8}
    network.run()
    assert network.sent[FilterUpdate] == 9
    assert len(network.ready) == 20


def test_scopes_that_cannot_be_understood_are_refused():
    network, (first, middle, _) = two_in_a_row()
    before = dict(network.peers[first].publishers())
    network.deliver(first, middle, ResponsibilityChange(7, (3, 1, 4)))
    network.flush(first)
    assert network.peers[first].publishers() == before
    assert len(network.drops) == 1


# --- edges come and go -------------------------------------------------------------------------


def ring_network(keys, seed=0, strategy="covering"):
    network = FilterNetwork(ring(keys), StrategySettings(strategy=strategy), Random(seed))
    network.connect_all()
    network.run()
    return network


def name_of(key):
    return PeerId(f"n{key}")


def know(network, key, keys):
    """The peer knows these members from now on; heirs and copies are the neighbours before."""
    topology = network.topologies[name_of(key)]
    before = list(topology.edges())
    topology.know([RingMember(other, name_of(other)) for other in keys if other != key])
    after = list(topology.edges())
    distance = {name_of(other): (other - key) % SIZE for other in range(SIZE)}

    def behind(peer, candidates):
        """The last edge before the peer; the first one if there is none before."""
        ordered = sorted(candidates, key=distance.__getitem__)
        earlier = [one for one in ordered if distance[one] < distance[peer]]
        return earlier[-1] if earlier else (ordered[0] if ordered else None)

    heirs = {lost: behind(lost, after) for lost in before if lost not in after}
    copies = {new: behind(new, before) for new in after if new not in before}
    network.peers[name_of(key)].edges_changed(heirs, copies)
    network.flush(name_of(key))


@pytest.mark.parametrize("seed", range(8))
def test_no_filter_is_missing_between_a_loss_and_the_heir(slices, seed):
    """Digest section 7, make before break: whoever lives and can be reached always is."""
    random = Random(seed)
    keys = sorted(random.sample(range(SIZE), 9))
    network = ring_network(keys, seed, random.choice(EXACT))
    wanted = Filter("a = 1")
    owner = random.choice(keys)
    network.subscribe(name_of(owner), "s", wanted)
    network.run()
    event = publication({"a": 1})
    lost = random.choice([key for key in keys if key != owner])
    network.crash(name_of(lost))
    left = [key for key in keys if key != lost]
    order = random.sample(left, len(left))
    for place, key in enumerate(order):
        know(network, key, left)
        for _ in range(random.randrange(6)):
            network.step()
            for publisher in order[: place + 1]:
                check_path(network, name_of(publisher), name_of(owner), event, order[: place + 1])
    while network.step():
        for publisher in left:
            assert name_of(owner) in network.reached(name_of(publisher), event)
    expected = ring_oracle(
        network.peers[name_of(owner)].strategy.name, left, {name_of(owner): {"s": wanted}}
    )
    assert {edge: table_of(rows) for edge, rows in network.tables().items()} == expected
    assert all(not table.held for peer in network.peers.values() for table in peer._tables.values())


def check_path(network, publisher, owner, event, repaired):
    """Where all on the way have repaired their edges, no filter on it is missing."""
    peer, scope = publisher, network.topologies[publisher].whole()
    while peer != owner:
        if int(peer.node[1:]) not in repaired:
            return
        key = int(owner.node[1:])
        parts = network.topologies[peer].parts(scope, None)
        other, part = next(
            (other, part) for other, part in parts if (key - part[0]) % SIZE < part[1]
        )
        assert network.peers[peer].matches(other, event, part)
        peer, scope = other, part


def check_all(network, keys):
    """Each has subscribed to its place in the list: all events find all their subscribers."""
    for number, owner in enumerate(keys):
        event = publication({"a": number})
        for publisher in keys:
            assert name_of(owner) in network.reached(name_of(publisher), event)


@pytest.mark.parametrize("seed", [*range(6), 16])
def test_a_new_edge_begins_with_its_neighbours_rows(slices, seed):
    random = Random(seed)
    keys = sorted(random.sample(range(SIZE), 9))
    newcomer = random.choice(keys)
    old = [key for key in keys if key != newcomer]
    topologies = ring(keys)
    network = FilterNetwork(topologies, StrategySettings(strategy="identity"), random, **slices)
    for key in keys:
        known = old if key != newcomer else []
        topologies[name_of(key)].know(
            [RingMember(other, name_of(other)) for other in known if other != key]
        )
    network.connect_all()
    network.run()
    wishes = {}
    for number, key in enumerate(old):
        wishes[key] = Filter(f"a = {number}")
        network.subscribe(name_of(key), f"s{number}", wishes[key])
    network.run()
    # The newcomer has its edges, and their rows, before others adopt it.
    know(network, newcomer, keys)
    network.run()
    for key in random.sample(old, len(old)):
        know(network, key, keys)
        for _ in range(random.randrange(5)):
            network.step()
        check_all(network, old)
    while network.step():
        check_all(network, old)
    subscriptions = {name_of(key): {f"s{n}": wishes[key]} for n, key in enumerate(old)}
    expected = ring_oracle("identity", keys, subscriptions)
    assert {edge: table_of(rows) for edge, rows in network.tables().items()} == expected


def test_what_a_new_edge_copied_is_passed_on_until_it_answers():
    """Digest section 7: the neighbour's table may shrink before the new edge has told its own."""
    old, new, owner = [0, 32, 100, 200], 70, 100
    network = ring_network([*old, new], strategy="identity")
    for key in (*old, new):
        know(network, key, old)
    # That there is an owner behind its neighbour the peer itself does not know.
    know(network, 0, [0, 32, 200])
    know(network, 200, [0, 200])
    network.run()
    network.subscribe(name_of(owner), "s", Filter("a = 1"))
    network.run()
    u, neighbour, x = name_of(0), name_of(32), name_of(new)
    upstream = name_of(200)
    assert len(network.peers[u].told(neighbour)) == len(network.peers[u].sent(upstream)) == 1
    for key in (32, new):
        know(network, key, [*old, new])
        network.run()
    know(network, 0, [0, 32, new, 200])
    assert network.peers[u].told(x) == network.peers[u].told(neighbour)
    # The neighbour answers for its smaller scope; the new edge has not answered yet.
    before = network.peers[u].sent(upstream)
    request = network.links[u, neighbour].pop()
    network.deliver(neighbour, u, request)
    network.flush(neighbour)
    network.deliver(u, neighbour, network.links[neighbour, u].pop())
    network.flush(u)
    assert len(network.peers[u].told(neighbour)) == 0
    assert len(network.peers[u].told(x)) == 1
    assert network.peers[u].sent(upstream) == before


@pytest.mark.parametrize("seed", range(4))
def test_scopes_are_told_and_taken_back(slices, seed):
    """Digest rows 5 and 12: at rest v knows exactly who holds it responsible, and for what."""
    random = Random(seed)
    keys = random.sample(range(SIZE), 10)
    network = ring_network(keys, seed)
    for known in (random.sample(keys, 5), keys, random.sample(keys, 7)):
        for key in known:
            know(network, key, known)
        network.run()
        expected = {name_of(key): {} for key in known}
        for key in known:
            topology = network.topologies[name_of(key)]
            for edge in topology.edges():
                expected[edge][name_of(key)] = topology.scope_of(edge)
        for peer, scopes in expected.items():
            found = network.peers[peer].publishers().items()
            assert {other: scope for other, scope in found if other in expected} == scopes


def test_a_fresh_link_starts_with_whole_tables():
    network, (first, middle, last) = two_in_a_row()
    network.subscribe(last, "s", Filter("a = 1"))
    network.run()
    network.cut(first, middle)
    network.subscribe(last, "t", Filter("b = 1"))
    network.run()
    network.sent.clear()
    reconnect(network, first, middle)
    network.run()
    assert table_of(network.tables()[first, middle]) == (("", "a = 1"), ("", "b = 1"))
    assert network.sent[ResponsibilityChange] == 2
    assert FilterMismatch not in network.sent
    assert network.drops == []


def test_settled_is_who_was_told_all_and_has_it_confirmed():
    """Row 13, for edges that change: replays after a split wait for it (row 19)."""
    network, (first, middle, last) = two_in_a_row()
    maintenance = network.peers[middle]
    assert maintenance.is_settled
    network.cut(middle, last)
    network.subscribe(last, "s", Filter("a = 1"))
    reconnect(network, middle, last)
    assert not maintenance.is_settled, "the last peer has not told its filters on the new link"
    deliver_all(network, [(middle, last), (last, middle)])
    assert maintenance.is_told(last)
    assert not maintenance.is_settled, "the first peer has not got them"
    network.subscribe(middle, "t", Filter("b = 1"))
    update = network.links[middle, first].popleft()
    network.deliver(first, middle, update)
    network.flush(first)
    deliver_all(network, [(first, middle)])
    assert maintenance.is_settled
    assert first in maintenance.pending("t"), "a later subscription does not matter"
    network.run()
    assert all(peer.is_settled for peer in network.peers.values())


def reconnect(network, one, other):
    for peer, end in ((one, other), (other, one)):
        network.peers[peer].peer_connected(end)
        network.flush(peer)


@pytest.mark.parametrize("seed", range(25))
def test_after_any_history_of_links_and_edges_all_is_told_and_confirmed(slices, seed):
    """Waits form no circle that outlasts the changes, and nothing is held for ever."""
    random = Random(seed)
    story = Story("ring", random.choice(EXACT), seed, coalesce_ms=random.choice([0, 0, 5]))
    network, cuts = story.network, {}
    # While edges change, an event may not find the way yet.
    network.on_ready = lambda peer, name: None

    def change_edges():
        key = random.choice(story.keys)
        know(network, key, [other for other in story.keys if random.random() < 0.7])

    def cut():
        one, other = map(name_of, sorted(random.sample(story.keys, 2)))
        if (one, other) not in cuts:
            cuts[one, other] = None
            network.cut(one, other)
            network.flush(one)
            network.flush(other)

    def mend():
        if cuts:
            reconnect(network, *cuts.popitem()[0])

    for _ in range(50):
        random.choice(
            [story.subscribe, story.subscribe, story.unsubscribe, change_edges, cut, mend]
        )()
        for _ in range(random.randrange(25)):
            network.step()
    while cuts:
        mend()
    for key in random.sample(story.keys, len(story.keys)):
        know(network, key, story.keys)
    network.run()
    assert story.tables() == story.expected()
    assert story.is_ready()
    assert len(network.ready) == len(set(network.ready))
    for peer in network.peers.values():
        described = peer.describe()
        assert described["waves"] == 0
        assert peer.is_settled
        assert all(edge["held"] == 0 for edge in described["edges"].values())
        assert all(one["unconfirmed"] == 0 for one in described["publishers"].values())
    assert FilterMismatch not in network.sent


# --- control filters, converged starts, what people see ----------------------------------------


def test_control_filters_lead_notifications():
    keys = [3, 40, 90, 130, 200, 250]
    network = ring_network(keys)
    order = sorted(keys)
    for place, key in enumerate(order):
        previous = order[place - 1]
        low = (previous + 1) % SIZE
        pairs = [(low, key)] if low <= key else [(low, SIZE - 1), (0, key)]
        network.peers[name_of(key)].set_control(
            "node-location", control_filter("node-location", pairs)
        )
        network.flush(name_of(key))
    network.run()
    for target in range(0, SIZE, 5):
        home = next((key for key in order if key >= target), order[0])
        located = Publication("c", control_attributes("node-location", target))
        for publisher in keys:
            peer, scope = name_of(publisher), network.topologies[name_of(publisher)].whole()
            while peer != name_of(home):
                chosen = [
                    (other, part)
                    for other, part in network.topologies[peer].parts(scope, None)
                    if (home - part[0]) % SIZE < part[1]
                ]
                ((other, part),) = chosen
                assert network.peers[peer].matches(other, located, part, "node-location")
                peer, scope = other, part
    for key in keys:
        network.peers[name_of(key)].set_control("node-location", None)
        network.flush(name_of(key))
    network.run()
    assert not any(len(rows) for rows in network.tables().values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_converged_start_is_where_messages_lead(strategy):
    random = Random(7)
    keys = random.sample(range(SIZE), 12)
    subscriptions = {
        name_of(key): {f"s{n}": wish(random) for n in range(random.randrange(4))} for key in keys
    }
    settings = StrategySettings(strategy=strategy, rows_max=6, sample=tuple(EVENTS[::4]))
    told = FilterNetwork(ring(keys), settings, random)
    told.connect_all()
    told.run()
    installed = FilterNetwork(ring(keys), settings, random)
    for network in (told, installed):
        for peer, names in subscriptions.items():
            for name, wanted in names.items():
                network.peers[peer].subscribe(name, wanted)
            if network is told:
                network.flush(peer)
    told.run()
    install(installed)
    assert installed.tables() == told.tables()
    for network in (told, installed):
        network.subscribe(name_of(keys[0]), "more", Filter("a < 2 AND b > 3"))
        network.unsubscribe(name_of(keys[1]), "s0")
        network.run()
        assert network.drops == []
    assert FilterMismatch not in installed.sent
    assert installed.tables() == told.tables()
    assert sorted(installed.ready) == sorted(told.ready)
    described = [network.peers[name_of(keys[2])].describe() for network in (told, installed)]
    for one in described:
        for publisher in one["publishers"].values():
            assert publisher["unconfirmed"] == 0
    assert described[0]["edges"] == described[1]["edges"]


def install(network):
    """As `chord.converged` does: edges by falling labels, each from a combination of its end."""
    combinations = {}
    for peer, maintenance in network.peers.items():
        combinations[peer] = maintenance.strategy.combination()
        combinations[peer].replace(None, maintenance.local_rows())
    edges = [
        (topology.label_of(edge), peer, edge)
        for peer, topology in network.topologies.items()
        for edge in topology.edges()
    ]
    rows = {}
    for _, peer, edge in sorted(edges, reverse=True):
        scope = network.topologies[peer].scope_of(edge)
        served = network.topologies[edge].serves(peer, scope)
        rows[peer, edge] = combinations[edge].rows(served, scope)
        combinations[peer].replace(edge, rows[peer, edge])
    for peer, maintenance in network.peers.items():
        maintenance.install_converged(
            told={edge: rows[peer, edge] for edge in network.topologies[peer].edges()},
            sent={
                other: (network.topologies[other].scope_of(peer), rows[other, peer])
                for other in network.peers
                if (other, peer) in rows
            },
            connected=[other for other in network.peers if other != peer],
        )
        network.flush(peer)


def test_state_bytes_count_what_is_told_and_sent():
    network, (first, middle, last) = two_in_a_row()
    before = network.peers[middle].state_bytes()
    network.subscribe(last, "s", Filter("a = 1"))
    network.run()
    size = len(Filter("a = 1").to_bytes())
    assert before == 0
    assert 2 * size <= network.peers[middle].state_bytes() <= 2 * (size + 16)
    assert network.peers[first].state_bytes() < network.peers[middle].state_bytes()


DEAR = " AND ".join(f"(s = 'k' OR b{n} = 'k' OR c{n} = 'z')" for n in range(5)) + " AND n > 7"


def test_others_are_told_a_cheaper_filter_in_place_of_a_dear_one():
    network, (first, middle, last) = two_in_a_row()
    dear = Filter(DEAR)
    network.subscribe(last, "dear", dear)
    network.run()
    rows = [row.filter for row in network.tables()[first, middle].entries]
    assert sum(row.price.units for row in rows) <= ROW_PRICE_MAX < dear.price.units
    assert all(row.price.units <= PART_PRICE_MAX for row in rows)
    assert any(row.matches({"n": 8, "s": "k"}) for row in rows)
    assert not any(row.matches({"n": 7, "s": "k"}) for row in rows)
    assert network.ready == [(last, "dear")]
    network.unsubscribe(last, "dear")
    network.run()
    assert not network.tables()[first, middle].entries


def test_parts_that_subscriptions_share_stay_as_long_as_one_has_them():
    network, (first, middle, last) = two_in_a_row()
    values = ", ".join(f"'v{number:03}'" for number in range(600))
    network.subscribe(last, "one", Filter(f"a IN ({values})"))
    network.subscribe(last, "other", Filter(f"a IN ({values}) OR b = 1"))
    network.run()
    network.unsubscribe(last, "one")
    network.run()
    rows = network.tables()[first, middle]
    assert rows.want(Publication("e", {"a": "v599"})) and rows.want(Publication("f", {"b": 1}))
    assert not rows.want(Publication("g", {"a": "v6"}))


def test_a_row_that_is_too_dear_to_be_read_wants_everything_and_hides_no_other():
    network, (first, middle, last) = two_in_a_row()
    unread = Entry("", UnreadFilter(Filter(DEAR).to_bytes(), "too dear"))
    network.subscribe(last, "plain", Filter("a = 1"))
    network.subscribe(first, "plain too", Filter("b = 1"))
    network.run()
    table = network.tables()[middle, last]
    rows = table.changed([unread], [])
    scope = network.peers[last].publishers()[middle]
    version = network.peers[last]._publishers[middle].version
    update = FilterUpdate(99, version, (unread,), (), rows.digest)
    network.deliver(middle, last, update)
    network.flush(middle)
    assert "too dear to be read" in network.drops[0].reason
    assert network.peers[middle].matches(last, publication({"z": 5}), scope)
    network.run()
    told = network.tables()[first, middle]
    assert {entry.filter.digest for entry in told.entries} == {
        unread.filter.digest,
        Filter("a = 1").digest,
    }
