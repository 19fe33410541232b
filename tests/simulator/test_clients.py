"""Clients that move: each event once, none missed; and the checker that sees when it is not so.

The overlay is a flood that proposes moves: it shows on both nodes whatever is published, which is
the worst that can happen to a client that is on two nodes.
"""

from dataclasses import replace

import pytest

from peersub import Filter
from peersub.overlays.core.causes import Subscribe
from peersub.overlays.core.effects import ProposeMove
from peersub.overlays.core.shell import Shell
from peersub.overlays.flood import router
from peersub.overlays.registry import OVERLAYS
from peersub.overlays.settings import SettingsError
from peersub.simulator import actions as do
from peersub.simulator.activities import (
    ChangeActivity,
    CrashActivity,
    JoinActivity,
    LeaveActivity,
    NodeChurnActivity,
    PublishActivity,
    RestartActivity,
    SubscriptionChurnActivity,
    UnsubscribeActivity,
)
from peersub.simulator.clients import Clients
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Step

EVENTS = PublishActivity(count=60, every_ms=400)


class ProposingFlood(Shell):
    """Proposes each of its neighbours in turn, once for each subscription that did not move."""

    def handle(self, cause, now_ms):
        effects = super().handle(cause, now_ms)
        if isinstance(cause, Subscribe) and not cause.moved and self.linked:
            near = sorted(self.linked)
            place = len(self.home.subscriptions) % len(near)
            effects.append(ProposeMove(cause.subscription, near[place]))
        return effects


@pytest.fixture(autouse=True)
def _proposing(monkeypatch):
    monkeypatch.setitem(OVERLAYS, "flood", replace(OVERLAYS["flood"], proposes_moves=True))
    monkeypatch.setattr(router, "Shell", ProposingFlood)


def scenario_with(*steps, **changes):
    phases = (
        ScenarioPhase(name="during", steps=steps),
        ScenarioPhase(name="after", steps=(EVENTS,)),
    )
    return Scenario(**{"nodes": 10, "subscriptions": 20, "phases": phases, **changes})


COMING = SubscriptionChurnActivity(duration_ms=20_000, per_second=1)


@pytest.mark.parametrize(
    "steps",
    [
        (EVENTS, COMING),
        (EVENTS, ChangeActivity(count=20, every_ms=1_000)),
        (EVENTS, COMING, CrashActivity(at_ms=2_020, fraction=0.3), RestartActivity(at_ms=9_000)),
        (EVENTS, COMING, LeaveActivity(at_ms=2_020, count=3), JoinActivity(count=3)),
        (EVENTS, COMING, NodeChurnActivity(duration_ms=10_000), ChangeActivity(count=9)),
    ],
    ids=["calm", "change", "crash", "leave", "churn"],
)
def test_clients_that_move_get_each_event_once_and_miss_none(steps):
    outcome = run_scenario(scenario_with(*steps))
    assert outcome.violations == []
    clients = outcome.clients
    assert clients.proposed >= clients.moved > 10
    after = outcome.client_checker.checker.phases["after"]
    assert after.delivered == after.expected > 60
    assert not outcome.simulation.errands


def test_who_refuses_stays():
    assert run_scenario(scenario_with(EVENTS, moves=0.0)).clients.moved == 0
    clients = run_scenario(scenario_with(EVENTS, moves=0.5)).clients
    assert 0 < clients.moved < clients.proposed == clients.moved + clients.refused


def test_a_client_ends_wherever_it_is():
    outcome = run_scenario(scenario_with(UnsubscribeActivity(at_ms=2_000, every_ms=50)))
    assert outcome.violations == []
    left = [host.overlay.home.subscriptions for host in outcome.simulation.living()]
    assert left == [{}] * len(left)


def test_a_change_of_mind_renews_the_proposal():
    class Proposals:
        seen: list = []

        def observe(self, record):
            if isinstance(record, Step):
                self.seen += [e.subscription for e in record.effects if type(e) is ProposeMove]

    change = do.TimedAction(30_000, do.ChangeAt("n1", "s1", Filter("a = 1")))
    phases = (ScenarioPhase(name="during", steps=(EVENTS,), actions=(change,)),)
    outcome = run_scenario(
        Scenario(nodes=4, subscriptions=3, phases=phases), observers=[Proposals()]
    )
    assert outcome.violations == []
    assert sorted(Proposals.seen) == ["s0", "s1", "s1", "s2"]
    assert outcome.clients.moved == 4


def test_the_checker_sees_a_client_that_forgets_what_it_took(monkeypatch):
    def forget(self, now_ms, node, name, event_id):
        self._checker.took(now_ms, name, event_id)

    monkeypatch.setattr(Clients, "_on_event", forget)
    outcome = run_scenario(scenario_with(EVENTS, COMING))
    assert {violation.rule for violation in outcome.violations} == {"twice"}


def test_the_checker_sees_a_client_that_leaves_before_it_is_served_elsewhere(monkeypatch):
    def wait(self, client, to):
        self._running.at(self._running.now_ms + 2_000, leave_at_once, self, client, to)

    def leave_at_once(self, client, to):
        self._running.cause(to, Subscribe(client.name, client.filter, moved=True))
        for node in [node for node in client.nodes if node != to]:
            self._unsubscribe(client, node)

    monkeypatch.setattr(Clients, "_set_out", wait)
    # Events are on their way to the old node while the new one does not know them any more.
    late = NetworkSettings(latency_ms=200, jitter_ms=100)
    change = ChangeActivity(at_ms=1_000, count=20, every_ms=1_000)
    steps = (PublishActivity(count=600, every_ms=40), change)
    outcome = run_scenario(scenario_with(*steps, network=late))
    assert {violation.rule for violation in outcome.violations} == {"missed"}


def test_moves_is_a_share():
    with pytest.raises(SettingsError, match="moves is a share from 0 to 1, not 2"):
        Scenario(moves=2)
