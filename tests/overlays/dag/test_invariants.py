"""The invariants of layers complain where they should, and only there."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Start
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.dag.invariants import NetworkChecker, check_quiet
from peersub.overlays.dag.layer import Edge, Layer
from peersub.overlays.dag.messages import Label
from peersub.overlays.dag.orientation import points_at, turned
from peersub.overlays.dag.peer import DagPeer
from peersub.overlays.dag.settings import DagSettings

NAME = ""


@dataclass
class World:
    """Nodes whose only layer is the one of everybody, with edges as they are given."""

    peers: dict[str, DagPeer]
    checker: NetworkChecker

    def layer(self, node: str) -> Layer:
        return self.peers[node].layers[NAME]

    def look(self, *nodes: str) -> list[str]:
        """What is said after a step of each of these nodes."""
        return [
            text
            for node in nodes or tuple(self.peers)
            for text in self.checker.check_step(self.peers[node], Start(), ())
        ]

    def take_turn(self, node: str) -> None:
        """The turn, before anybody has heard of it."""
        layer = self.layer(node)
        layer.val, lid = turned(layer.val, layer.lid, layer.neighbours())
        layer.lid = max(layer.lid, lid)
        layer.turns += 1
        for edge in layer.edges.values():
            edge.holds_token = False

    def hear(self, node: str, of: str) -> None:
        """The token of a turn arrives."""
        edge, layer = self.layer(node).edges[PeerId(of)], self.layer(of)
        edge.val, edge.lid, edge.holds_token = layer.val, layer.lid, True


def world(*edges: tuple[str, str], values: dict[str, int] | None = None) -> World:
    """Nodes named by letters; lids follow the alphabet, tokens follow the values."""
    nodes = sorted({node for edge in edges for node in edge})
    peers = {node: DagPeer(PeerId(node), DagSettings(), 1) for node in nodes}
    made = World(peers, NetworkChecker(peers.get))
    for node in nodes:
        layer = made.layer(node)
        layer.val, layer.lid = (values or {}).get(node, 0), ord(node)
        layer.is_member = True
    for one, other in edges:
        connect(made, one, other)
    return made


def connect(made: World, one: str, other: str) -> None:
    for me, far in ((one, other), (other, one)):
        layer, theirs = made.layer(me), made.layer(far)
        holds = points_at(layer.val, layer.lid, theirs.val, theirs.lid)
        layer.edges[PeerId(far)] = Edge(theirs.val, theirs.lid, holds, layer.turns)


def line() -> World:
    return world(("a", "b"), ("b", "c"))


def test_turns_of_a_sound_network_are_no_cause_for_complaint():
    made = world(("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"))
    assert made.look() == []
    for _ in range(30):
        node = next(node for node in made.peers if made.layer(node).is_sink)
        made.take_turn(node)
        assert made.look(node) == []
        for other in list(made.layer(node).edges):
            made.hear(other.node, node)
            assert made.look(other.node) == []
    assert check_quiet(list(made.peers.values())) == []


def test_a_token_at_both_ends():
    made = line()
    made.layer("b").edges[PeerId("a")].holds_token = True
    assert any("both ends have the token" in text for text in made.look())


def test_a_token_that_is_kept_after_a_turn():
    made = line()
    made.look()
    made.take_turn("a")
    made.layer("a").edges[PeerId("b")].holds_token = True
    assert any("keeps the token of b" in text for text in made.look("a"))


def test_a_token_that_is_given_away_without_a_turn():
    made = line()
    made.look()
    made.layer("a").edges[PeerId("b")].holds_token = False
    assert any("without a turn" in text for text in made.look("a"))


def test_a_token_that_nobody_sent():
    made = line()
    made.look()
    made.layer("c").edges[PeerId("b")].holds_token = True
    assert any("that nobody sent" in text for text in made.look("c"))


def test_a_token_that_is_lost():
    made = line()
    made.look()
    made.take_turn("a")
    assert made.look("a") == []
    made.peers["c"].now_ms = 100_000
    made.layer("c").offers[PeerId("a")] = 0
    assert any("the token of a and b" in text and "lost" in text for text in made.look("c"))


@pytest.mark.parametrize("value", [0, 2])
def test_a_turn_that_leads_to_another_value(value):
    made = line()
    made.look()
    made.take_turn("a")
    made.layer("a").val = value
    assert any(f"from value 0 to {value} by a turn" in text for text in made.look("a"))


def test_a_turn_that_leads_to_another_lid():
    made = line()
    made.look()
    made.take_turn("a")
    made.layer("a").lid = 500
    assert any("from lid 97 to 500 by a turn" in text for text in made.look("a"))


def test_shifts_that_the_ends_did_not_agree_on():
    made = line()
    made.layer("a").edges[PeerId("b")].shift = 1
    assert any("do not cancel out" in text for text in made.look("a"))


def test_a_value_that_changes_without_a_turn():
    """What a turn of one layer would do to another, if they shared values."""
    made = line()
    made.look()
    made.layer("c").val = 1
    assert any("without a turn, and has edges" in text for text in made.look("c"))


def test_a_lid_that_changes_where_it_turns_no_edge_is_changed_by_sinks_only():
    made = line()
    made.look()
    made.layer("a").lid = 7
    assert made.look("a") == []
    made.layer("c").lid = 200
    assert any("and is not on turn" in text for text in made.look("c"))


def test_neighbours_with_the_same_lid():
    made = line()
    made.layer("b").lid = made.layer("a").lid
    assert any("both ends have the lid" in text for text in made.look())


def test_values_that_disagree_with_the_token():
    made = line()
    made.layer("b").lid = 5
    made.layer("a").edges[PeerId("b")].lid = 5
    assert any("the values say otherwise" in text for text in made.look("a"))


def test_a_holder_that_was_told_something_else():
    made = line()
    made.layer("a").edges[PeerId("b")].lid += 1
    assert any("the holder takes" in text for text in made.look("a"))


def test_turns_that_come_apart():
    made = line()
    made.layer("a").edges[PeerId("b")].turns_before = -2
    assert any("they took 2 and 0 turns" in text for text in made.look())


def test_an_edge_that_closes_a_cycle():
    """Three values on a triangle agree with tokens, and nobody is on turn."""
    made = world(("a", "b"), ("b", "c"), values={"a": 0, "b": 1, "c": 2})
    assert made.look() == []
    connect(made, "a", "c")
    assert any("a cycle on layer ''" in text for text in made.look("a", "c"))
    assert any("a cycle" in text for text in check_quiet(list(made.peers.values())))


def test_an_edge_that_one_end_waits_to_hear_of_may_close_a_cycle_as_well():
    made = world(("a", "b"), ("b", "c"), values={"a": 0, "b": 1, "c": 2})
    made.look()
    made.layer("a").offers[PeerId("c")] = 0
    assert made.look("a") == [], "an offer that is not answered closes nothing"
    made.layer("c").edges[PeerId("a")] = Edge(0, ord("a"), True, 0)
    assert any("a cycle" in text for text in made.look("c"))


def test_a_turn_that_is_not_taken_though_something_waits_for_it():
    made = line()
    made.layer("a").queued["e1"] = (Publication("e1", {}), None)
    assert made.look("a") == ["a is on turn on layer '', and keeps 1 events"]
    made.layer("a").offers[PeerId("c")] = 0
    assert made.look("a") == []


def test_who_is_off_closes_no_cycle():
    made = world(("a", "b"), ("b", "c"), values={"a": 0, "b": 1, "c": 2})
    made.look()
    del made.peers["b"]
    connect(made, "a", "c")
    assert made.look("a", "c") == []


# --- at rest -----------------------------------------------------------------------------------


def test_at_rest_edges_are_mutual():
    made = line()
    del made.layer("c").edges[PeerId("b")]
    assert check_quiet(list(made.peers.values())) == [
        "b has an edge to c on '', but not vice versa"
    ]


def test_at_rest_a_layer_is_in_one_part():
    made = world(("a", "b"), ("c", "d"))
    assert check_quiet(list(made.peers.values())) == [
        "layer '' is in parts: a, b do not reach c, d"
    ]


def test_at_rest_nothing_waits_for_a_turn():
    made = line()
    made.layer("b").queued["e1"] = (Publication("e1", {}), None)
    assert check_quiet(list(made.peers.values())) == [
        "b has 1 events on layer '' and no turn for them"
    ]


def test_at_rest_nothing_waits_for_an_answer():
    made = line()
    made.layer("a").offers[PeerId("c")] = 0
    assert check_quiet(list(made.peers.values())) == ["a waits for an answer of c on ''"]


def test_at_rest_nodes_are_in_the_layers_that_they_need_and_no_others():
    made = line()
    made.peers["a"].home.install({"s1": Filter("symbol = 'A'")})
    made.peers["b"].layers["*"] = Layer("*", DagSettings())
    assert check_quiet(list(made.peers.values())) == [
        "a is no member of layer 'string:A', which s1 needs",
        "b stays in layer '*', which nothing there needs",
    ]


def test_a_turn_that_is_wanted_and_kept():
    made = line()
    made.layer("a").is_pressed = True
    assert any("keeps its turn, which is wanted" in text for text in made.look())


def test_a_part_that_has_two_names_at_rest():
    made = line()
    for node, layer in ((node, made.layer(node)) for node in made.peers):
        layer.label = Label(1, PeerId("a" if node < "c" else "c"))
    assert any("has the names" in text for text in check_quiet(list(made.peers.values())))
