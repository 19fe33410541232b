"""What nodes send says nothing about who published an event (§4.1, anonymity; §4.2.1).

Everything that leaves a node is serialised as it would be on the wire, and looked at from outside,
as bytes: whatever moves because of an event must be the same wherever it is sent, whoever published
it, when, and after what. So nothing in it names publishers, orders them, or grows with the distance
from one. Membership is not anonymous, and its messages name nodes: no event causes any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import pytest

from peersub import Filter
from peersub.events.envelope import Event
from peersub.overlays.core.effects import Send
from peersub.overlays.core.link_messages import Acknowledgement, Carried, unwrapped
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.overlays.dag import layer as layers
from peersub.overlays.dag.messages import Passed, Relay, Turn, WantTurn
from peersub.overlays.dag.publishing import Publishing
from peersub.simulator import actions as do
from peersub.simulator.nodes import node_maker
from peersub.simulator.running import Run
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.checkers import DeliveryChecker
from peersub.trace.schema import Phase, Step, TraceRecord
from peersub.wire import encode_batch

NODES = tuple(f"place-{name}.example:4711" for name in "abcdefghijkl")
OUTSIDER = NODES[-1]
"""Wants nothing: what it publishes goes through a member."""
LAYER = "string:wheat"
EVENTS = ("3f8a1c5e9b7d2046", "c04e62d7185fa93b")
SETTINGS = {"hold_ms": 5_000}
WATCHED_MS = 30_000
ABOUT_EVENTS = (Passed, Turn, WantTurn, Relay)


@dataclass(frozen=True)
class Sent:
    """A message that left a node while events were under way."""

    sender: str
    receiver: str
    message: Message
    """As the sender's link says it."""

    @property
    def said(self) -> Message:
        return unwrapped(self.message)

    @property
    def bytes(self) -> bytes:
        return encode_batch((self.said,))


class Records:
    """Keeps what is sent from the phase on in which events are published."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._is_on = False

    def observe(self, record: TraceRecord) -> None:
        if isinstance(record, Phase):
            self._is_on = record.name == "publishing"
        elif self._is_on and isinstance(record, Step):
            for effect in record.effects:
                if isinstance(effect, Send):
                    to = effect.peer.node
                    self.sent += [Sent(record.node, to, each) for each in effect.messages]


def observed(publishers: Sequence[str], at_ms: Sequence[int] = (0, 700)) -> list[Sent]:
    """A network of members of one layer and an outsider, in which these publish an event each."""
    joining = [
        do.TimedAction(200 * place, do.JoinNode(node, NODES[:place][-2:]))
        for place, node in enumerate(NODES)
    ]
    wanted = Filter("symbol = 'wheat'")
    subscribing = [
        do.TimedAction(0, do.SubscribeAt(node, "s", wanted)) for node in NODES if node != OUTSIDER
    ]
    publishing = [
        do.TimedAction(moment_ms, do.PublishEvent(node, event(name)))
        for node, name, moment_ms in zip(publishers, EVENTS, at_ms, strict=False)
    ]
    schedule = do.Schedule(
        (
            do.SchedulePhase("joining", tuple(joining)),
            do.SchedulePhase("subscribing", tuple(subscribing)),
            do.SchedulePhase("publishing", tuple(publishing), duration_ms=WATCHED_MS),
        )
    )
    network = NetworkSettings(latency_ms=20, jitter_ms=15)
    scenario = Scenario(overlay="dag", nodes=len(NODES), network=network, settings=SETTINGS)
    records, checker = Records(), DeliveryChecker()
    outcome = Run(scenario, schedule, node_maker(scenario), checker, [records]).carry_out()
    assert outcome.violations == []
    expected = len(publishers) * (len(NODES) - 1)
    assert checker.counts.delivered == checker.counts.expected == expected
    return records.sent


def event(name: str) -> Event:
    return Event(name, {"symbol": "wheat", "price": 4}, b"body")


VARIANTS: tuple[tuple[tuple[str, str], tuple[int, int]], ...] = (
    ((NODES[0], NODES[0]), (0, 700)),
    ((NODES[0], NODES[7]), (0, 700)),
    ((NODES[4], NODES[0]), (0, 700)),
    ((OUTSIDER, NODES[0]), (0, 700)),
    ((NODES[0], NODES[0]), (1_234, 5_000)),
)


@cache
def all_observed() -> list[list[Sent]]:
    return [observed(publishers, at_ms) for publishers, at_ms in VARIANTS]


# --- what is looked for ------------------------------------------------------------------------


def names_in(run: Sequence[Sent]) -> list[str]:
    """Nodes that are named in what is said about events."""
    return sorted(
        {
            f"{type(sent.said).__name__} names {node}"
            for sent in run
            if isinstance(sent.said, ABOUT_EVENTS)
            for node in NODES
            if node.encode() in sent.bytes
        }
    )


def others_in(run: Sequence[Sent]) -> set[tuple[str, str, str]]:
    """Who says what to whom beside turns, events, and acknowledgements of links."""
    return {
        (sent.sender, sent.receiver, type(sent.said).__name__)
        for sent in run
        if not isinstance(sent.said, (*ABOUT_EVENTS, Acknowledgement))
    }


def forms(run: Sequence[Sent]) -> dict[str, set[bytes]]:
    """All bytes by what they are about; of turns without the sender's own value and lid."""
    found: dict[str, set[bytes]] = {}
    for sent in run:
        said = sent.said
        match said:
            case Passed(layer=layer, publication=publication):
                found.setdefault(f"{publication.id} on {layer}", set()).add(sent.bytes)
            case Turn(layer=layer):
                masked = encode_batch((replace(said, val=0, lid=0),))
                found.setdefault(f"a turn on {layer!r}", set()).add(masked)
            case WantTurn(layer=layer):
                found.setdefault(f"a wish on {layer!r}", set()).add(sent.bytes)
            case _:
                pass
    return found


def differences(runs: Sequence[Sequence[Sent]]) -> list[str]:
    """What has more than one form, in one run or in another."""
    united: dict[str, set[bytes]] = {}
    for run in runs:
        for about, seen in forms(run).items():
            united.setdefault(about, set()).update(seen)
    return [about for about, seen in united.items() if len(seen) > 1]


# --- the protocol ------------------------------------------------------------------------------


def test_the_runs_differ_in_who_publishes_and_show_events_at_many_hops():
    for (publishers, _), run in zip(VARIANTS, all_observed(), strict=True):
        for name, publisher in zip(EVENTS, publishers, strict=True):
            about = [s for s in run if isinstance(s.said, Passed) and s.said.publication.id == name]
            assert len({sent.sender for sent in about}) >= len(NODES) // 2
            if publisher != OUTSIDER:
                assert about[0].sender == publisher
            else:
                relayed = [s for s in run if isinstance(s.said, Relay)]
                assert {sent.sender for sent in relayed} == {OUTSIDER}


def test_nothing_that_is_said_about_events_names_a_node():
    for run in all_observed():
        assert names_in(run) == []


def test_an_event_causes_nothing_to_be_said_but_turns_and_itself():
    """Links that joining needed are closed at that time, with events and without. Who is no member
    links up with the one that publishes for it, which knows it anyway."""
    without = others_in(observed(()))
    for (publishers, _), run in zip(VARIANTS, all_observed(), strict=True):
        more = others_in(run) - without
        if OUTSIDER in publishers:
            (relay,) = {sent.receiver for sent in run if isinstance(sent.said, Relay)}
            assert {frozenset(pair) for *pair, _ in more} == {frozenset((OUTSIDER, relay))}
        else:
            assert more == set()


def test_an_event_is_the_same_bytes_at_every_hop_whoever_published_it_when_and_after_what():
    assert differences(all_observed()) == []
    about = [about for run in all_observed() for about in forms(run)]
    assert {f"{name} on {LAYER}" for name in EVENTS} <= set(about)
    assert f"a turn on {LAYER!r}" in about


def test_a_turn_says_the_value_and_lid_of_who_takes_it_and_nothing_else():
    """Both are known to its neighbours already, up to the rule by which they change."""
    assert [field.name for field in fields(Turn)] == ["layer", "val", "lid"]
    assert [field.name for field in fields(WantTurn)] == ["layer"]
    assert {field.name for field in fields(Passed)} == {"layer", "publication"}
    assert {field.name for field in fields(Relay)} == {"layer", "publication"}
    for run in all_observed():
        turns = [sent.said for sent in run if isinstance(sent.said, Turn)]
        assert {turn.val for turn in turns} <= {0, 1, 2}
        lids = {
            (sent.sender, sent.said.layer, sent.said.lid)
            for sent in run
            if isinstance(sent.said, Turn)
        }
        assert len(lids) == len({place[:2] for place in lids}), "a lid changes while events go by"


def test_the_headers_of_links_count_what_the_two_ends_said_to_each_other():
    """Sequence numbers are those of a link, one after the other, whatever they carry."""
    assert [field.name for field in fields(Carried)] == [
        *("epoch", "sender_epoch", "sequence", "acknowledged", "message")
    ]
    for run in all_observed():
        numbers: dict[tuple[str, str], list[int]] = {}
        for sent in run:
            if isinstance(sent.message, Carried):
                numbers.setdefault((sent.sender, sent.receiver), []).append(sent.message.sequence)
        for counted in numbers.values():
            assert counted == list(range(counted[0], counted[0] + len(counted)))


# --- planted -----------------------------------------------------------------------------------


def with_attribute(publication: Publication, name: str, value: object) -> Publication:
    attributes = {**publication.attributes, name: value}
    return Publication(publication.id, attributes, publication.body, delivery=publication.delivery)


def plant_hops(monkeypatch):
    """Each member that passes an event on counts one more."""

    def passed(layer, publication):
        hops = publication.attributes.get("hops", 0)
        return Passed(layer, with_attribute(publication, "hops", hops + 1))

    monkeypatch.setattr(layers, "Passed", passed)


def plant_in_what_begins(monkeypatch, name, value_at):
    """The publisher adds something to its events."""
    original = Publishing._begin

    def begin(self, publication):
        original(self, with_attribute(publication, name, value_at(self._peer)))

    monkeypatch.setattr(Publishing, "_begin", begin)


def plant_a_source(monkeypatch):
    plant_in_what_begins(monkeypatch, "source", lambda peer: peer.me.node)


def plant_a_time(monkeypatch):
    plant_in_what_begins(monkeypatch, "published_ms", lambda peer: peer.now_ms)


def plant_a_counter(monkeypatch):
    counted: dict[int, int] = {}

    def count(peer):
        counted[id(peer)] = counted.get(id(peer), 0) + 1
        return counted[id(peer)]

    plant_in_what_begins(monkeypatch, "number", count)


def planted_runs(plant, monkeypatch) -> list[list[Sent]]:
    with monkeypatch.context() as planting:
        plant(planting)
        return [observed(publishers, at_ms) for publishers, at_ms in (VARIANTS[0], VARIANTS[2])]


@pytest.mark.parametrize("plant", [plant_hops, plant_a_source, plant_a_time, plant_a_counter])
def test_what_is_planted_is_found(plant, monkeypatch):
    runs = planted_runs(plant, monkeypatch)
    if plant is plant_a_time:
        with monkeypatch.context() as planting:
            plant(planting)
            runs.append(observed(*VARIANTS[4]))
    assert any(LAYER in about for about in differences(runs))


def test_a_planted_hop_count_is_found_in_a_single_run(monkeypatch):
    (run, _) = planted_runs(plant_hops, monkeypatch)
    assert differences([run]) == [f"{name} on {LAYER}" for name in EVENTS]


def test_a_planted_source_is_found_by_its_name(monkeypatch):
    (run, _) = planted_runs(plant_a_source, monkeypatch)
    assert names_in(run) == [f"Passed names {NODES[0]}"]
