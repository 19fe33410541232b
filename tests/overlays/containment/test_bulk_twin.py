"""The bulk form of the containment tree against a twin that handles one message at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overlays.containment.test_structure import events, wishes
from peersub.filters.filter import Filter
from peersub.overlays.bulk import MemberSources, Plan, Sets
from peersub.overlays.containment import bulk
from peersub.overlays.containment.structure import EdgeKind, Member, canonical_shape
from peersub.overlays.semantic.sample import SampleSettings
from peersub.overlays.settings import SettingsError
from strategies import examples

Receipt = tuple[int, int, int]


def settings_of(rule: str = "depth", degree: int = 2) -> Any:
    sample = tuple(event for event in events if isinstance(event, dict))
    return SimpleNamespace(
        rule=rule,
        equal_degree=degree,
        top_degree=degree,
        sampling=SampleSettings(sample=sample),
    )


class Twin:
    """Nodes with members and one queue of messages on their way, as the simulator has them."""

    def __init__(self, wanted: list[list[Filter]], settings: Any) -> None:
        self.members = [
            Member(f"n{node}", slot, each)
            for node, own in enumerate(wanted)
            for slot, each in enumerate({one.digest: one for one in own}.values())
        ]
        self.node_of = [int(member.node[1:]) for member in self.members]
        self.shape = canonical_shape(
            self.members,
            rule=settings.rule,
            count=lambda one: sum(map(one.matches, settings.sampling.sample)),
            equal_degree=settings.equal_degree,
            top_degree=settings.top_degree,
        )

    def receipts(self, publisher: int, event: Any) -> dict[int, Receipt]:
        matching = {n for n, one in enumerate(self.members) if one.wanted.matches(event)}
        found: dict[int, Receipt] = {publisher: (-1, 0, 0)}
        own = [number for number, node in enumerate(self.node_of) if node == publisher]
        mine = [number for number in own if number in matching]
        # What is on its way: from node, to node, hops, and per message to whom, from whom, climbs.
        under_way: deque[tuple[int, int, int, list[tuple[int, int, bool]]]] = deque()
        if not self.members:
            return found if publisher == 0 else {**found, 0: (publisher, 1, 1)}
        if own:
            self._handle(publisher, [((mine or own)[0], -1, True)], 0, matching, under_way)
        else:
            crown = self.shape.parents.index(-1)
            under_way.append((publisher, self.node_of[crown], 1, [(crown, -1, True)]))
        while under_way:
            sender, node, hops, messages = under_way.popleft()
            first = found.get(node, (sender, hops, 0))
            found[node] = (first[0], first[1], first[2] + len(messages))
            self._handle(node, messages, hops, matching, under_way)
        return found

    def _handle(
        self, node: int, messages: list[tuple[int, int, bool]], hops: int, matching: set[int],
        under_way: deque[Any],
    ) -> None:  # fmt: skip
        letters: dict[int, list[tuple[int, int, bool]]] = {}
        local = deque(messages)
        while local:
            member, sender, climbs = local.popleft()
            is_match, shape = member in matching, self.shape
            sends = []
            above, kind = shape.parents[member], shape.kinds[member]
            if kind is EdgeKind.TOP:
                sends.append((above, False))
            elif above >= 0 and (is_match or climbs):
                sends.append((above, climbs and not is_match))
            for other in shape.below[member]:
                if is_match or shape.kinds[other] is EdgeKind.TOP:
                    sends.append((other, False))
            for other, still in sends:
                if other != sender:
                    to = self.node_of[other]
                    queue = local if to == node else letters.setdefault(to, [])
                    queue.append((other, member, still))
        under_way.extend((node, to, hops + 1, sent) for to, sent in letters.items())


def planned(wanted: list[list[Filter]], settings: Any) -> Plan:
    names = [f"n{node}" for node in range(len(wanted))]
    given_filters = {
        name: {f"s{number}": one for number, one in enumerate(own)}
        for name, own in zip(names, wanted, strict=True)
    }
    return bulk.plan(names, 1, settings, subscriptions=given_filters)


def routed(
    plan: Plan, publishers: list[int], asked: list[Any], wanted: list[list[Filter]]
) -> list[dict[int, Receipt]]:
    sources = plan.sources
    assert isinstance(sources, MemberSources)
    filters = [Filter.from_bytes(data) for data in sources.filters]
    interested = Sets.of([[n for n, one in enumerate(filters) if one.matches(e)] for e in asked])
    wanting = Sets.of(
        [[n for n, own in enumerate(wanted) if any(one.matches(e) for one in own)] for e in asked]
    )
    found: list[dict[int, Receipt]] = [{} for _ in asked]
    for part in bulk.route(plan, np.array(publishers, np.int32), interested, wanting):
        columns = (part.events, part.nodes, part.senders, part.hops, part.messages, part.wanted)
        for event, node, sender, hops, messages, is_wanted in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            assert node not in found[event]
            found[event][node] = (sender, hops, messages)
            assert is_wanted == any(one.matches(asked[event]) for one in wanted[node])
    return found


def corner(x: int, y: int) -> Filter:
    return Filter(f"x >= {x} AND y >= {y}")


corners = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda each: corner(*each))
crowded = st.lists(st.lists(corners, min_size=1, max_size=5), min_size=3, max_size=6)
"""Nodes with many members, nearly all of which match: messages that come at the same time."""
worlds = st.one_of(st.lists(st.lists(wishes, max_size=4), min_size=1, max_size=9), crowded)
calls = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(events)), min_size=1, max_size=9)


@pytest.mark.parametrize("rule", ["depth", "selectivity"])
@examples(150)
@given(wanted=worlds, published=calls, degree=st.integers(1, 3))
@example(
    # One node is told at once by another, and by a third after it has handed the event on.
    wanted=[
        [corner(3, 0), corner(1, 0), corner(3, 1)],
        [corner(1, 2), corner(3, 1)],
        [corner(0, 1)],
        [corner(1, 3), corner(0, 2)],
    ],
    published=[(0, {"x": 1, "y": 2}), (2, {"x": 4, "y": 2}), (3, {"x": 4, "y": 2})],
    degree=1,
)
def test_the_bulk_router_does_what_the_twin_does(
    rule: str, wanted: list[list[Filter]], published: list[tuple[int, Any]], degree: int
) -> None:
    settings = settings_of(rule, degree)
    publishers = [number % len(wanted) for number, _ in published]
    asked = [event for _, event in published]
    twin = Twin(wanted, settings)
    expected = [twin.receipts(*each) for each in zip(publishers, asked, strict=True)]
    assert routed(planned(wanted, settings), publishers, asked, wanted) == expected


def test_more_events_than_a_table_holds_give_the_same_receipts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["/a", "/a/b", "//b", "/a", "/a/b[c]", "//b/a"]
    wanted = [[Filter.xpath(text)] for text in texts]
    plan = planned(wanted, settings_of())
    publishers = [number % 6 for number in range(40)]
    asked = [events[-(1 + number % 5)] for number in range(40)]
    whole = routed(plan, publishers, asked, wanted)
    monkeypatch.setattr("peersub.overlays.bulk_routing.CELLS_MAX", 14)
    assert routed(plan, publishers, asked, wanted) == whole


def test_a_plan_that_leads_in_circles_is_refused() -> None:
    plan = planned([[Filter("x > 1")], [Filter("x > 1")], [Filter("x > 1")]], settings_of())
    edges = plan.edges
    circle = replace(edges, starts=np.array([0, 1, 2, 3]), targets=np.array([1, 2, 0]))
    everybody = Sets.of([[0]])
    with pytest.raises(ValueError, match="more than once"):
        list(bulk.route(replace(plan, edges=circle), np.array([0]), everybody, everybody))


def test_what_a_plan_refuses() -> None:
    with pytest.raises(SettingsError, match="have no keys"):
        bulk.plan(["n0"], 1, settings_of(), keys=[1], subscriptions={})
    with pytest.raises(SettingsError, match="depends on its filters"):
        bulk.plan(["n0"], 1, settings_of())
    assert bulk.needs_subscriptions(settings_of())
