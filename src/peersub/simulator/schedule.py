"""From a scenario to its schedule: every node, moment and event of it drawn from the seed.

The planner goes through time with a model of who lives where, and draws each choice among what the
model allows: a node that crashed does not publish, a node joins by one that it can reach, and the
last node of the network, or of a side of it, never goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import Any, TypeAlias

from peersub.events.envelope import Event
from peersub.overlays.core.event_keys import event_id_of
from peersub.overlays.core.identity import numbered_node
from peersub.overlays.core.publication import Delivery
from peersub.simulator import actions as do
from peersub.simulator import activities as asked
from peersub.simulator.content import Content
from peersub.simulator.scenario import Scenario, ScenarioPhase
from peersub.trace.schema import Disk

__all__ = ["CONTACTS", "schedule_of"]

CONTACTS = 3
"""Nodes that a joining node is told of."""

_Draw: TypeAlias = Callable[[], do.Action | None]
_Intent: TypeAlias = tuple[int, int, _Draw]


def schedule_of(scenario: Scenario, content: Content) -> do.Schedule:
    """The schedule that the scenario and its seed determine."""
    return _Planner(scenario, content).schedule()


class _Planner:
    """The model, and the draws."""

    def __init__(self, scenario: Scenario, content: Content) -> None:
        self._scenario = scenario
        self._content = content
        self._random = Random(f"{scenario.seed}/schedule")
        self._living: dict[str, None] = {}
        self._crashed: dict[str, None] = {}
        self._side: dict[str, int] = {}
        self._homes: dict[str, str] = {}
        """Subscriptions, each with its node."""
        self._nodes = 0
        self._subscriptions = 0
        self._events = 0

    def schedule(self) -> do.Schedule:
        scenario = self._scenario
        phases: list[do.SchedulePhase] = []
        given: list[tuple[str, tuple[tuple[str, Any], ...]]] = []
        match scenario.start:
            case "joined" | "cold":
                phases += self._joined_start()
            case "converged":
                given = self._converged_start()
            case _:
                pass
        phases += [self._phase(phase) for phase in scenario.phases]
        return do.Schedule(tuple(phases), tuple(given))

    # --- the begin -----------------------------------------------------------------------------

    def _joined_start(self) -> Iterator[do.SchedulePhase]:
        scenario = self._scenario
        if scenario.start == "cold":
            names = [self._new_node() for _ in range(scenario.nodes)]
            order = self._random.sample(names, len(names))
            made = [do.JoinNode(name, tuple(names), as_given=True) for name in order]
        else:
            made = [self._join() for _ in range(scenario.nodes)]
        joins = [
            do.TimedAction(number * scenario.join_every_ms, action)
            for number, action in enumerate(made)
        ]
        yield do.SchedulePhase("joining", tuple(joins))
        names = list(self._living)
        subscribes = [
            do.TimedAction(0, self._subscribe_on(names[number % len(names)]))
            for number in range(scenario.subscriptions)
        ]
        if subscribes:
            yield do.SchedulePhase("subscribing", tuple(subscribes))

    def _converged_start(self) -> list[tuple[str, tuple[tuple[str, Any], ...]]]:
        nodes = [self._new_node() for _ in range(self._scenario.nodes)]
        dealt: dict[str, list[tuple[str, Any]]] = {node: [] for node in nodes}
        for number in range(self._scenario.subscriptions):
            action = self._subscribe_on(nodes[number % len(nodes)])
            dealt[action.node].append((action.subscription, action.filter))
        return [(node, tuple(subscriptions)) for node, subscriptions in dealt.items()]

    # --- a phase -------------------------------------------------------------------------------

    def _phase(self, phase: ScenarioPhase) -> do.SchedulePhase:
        intents: list[_Intent] = []
        for timed in phase.actions:
            intents.append((timed.at_ms, len(intents), partial(self._take, timed.action)))
        for step in phase.steps:
            for at_ms, draw in _PLANS[type(step)](self, step):
                intents.append((at_ms, len(intents), draw))
        intents.sort(key=lambda intent: intent[:2])
        drawn = [(at_ms, draw()) for at_ms, _, draw in intents]
        made = tuple(do.TimedAction(at_ms, action) for at_ms, action in drawn if action is not None)
        ends = [step.at_ms + getattr(step, "duration_ms", 0) for step in phase.steps]
        duration_ms = max([phase.duration_ms, *ends])
        return do.SchedulePhase(phase.name, made, phase.settles, duration_ms)

    def _take(self, action: do.Action) -> do.Action:
        """An action that is given: only the model learns of it."""
        match action:
            case do.JoinNode(node) | do.RestartNode(node):
                self._crashed.pop(node, None)
                self._living[node] = None
            case do.LeaveNode(node):
                self._gone(node)
            case do.CrashNodes(nodes):
                for node in nodes:
                    self._gone(node)
                    self._crashed[node] = None
            case do.SubscribeAt(node, subscription):
                self._homes[subscription] = node
            case do.UnsubscribeAt(_, subscription):
                self._homes.pop(subscription, None)
            case do.Partition(groups):
                self._side = {n: k for k, names in enumerate(groups, start=1) for n in names}
            case do.Heal():
                self._side = {}
            case _:
                pass
        return action

    # --- draws ---------------------------------------------------------------------------------

    def _some_node(self) -> str | None:
        return self._random.choice(list(self._living)) if self._living else None

    def _contacts_for(self, node: str) -> tuple[str, ...]:
        side = self._side.get(node, 0)
        near = [each for each in self._living if self._side.get(each, 0) == side and each != node]
        return tuple(self._random.sample(near, min(CONTACTS, len(near))))

    def _may_go(self) -> list[str]:
        """The living, without those who are the last on their side."""
        count = self._sizes_of_sides()
        return [node for node in self._living if count[self._side.get(node, 0)] > 1]

    def _sizes_of_sides(self) -> dict[int, int]:
        count: dict[int, int] = {}
        for node in self._living:
            side = self._side.get(node, 0)
            count[side] = count.get(side, 0) + 1
        return count

    def _gone(self, node: str) -> None:
        self._living.pop(node, None)

    def _join(self) -> do.JoinNode:
        contacts = self._contacts_for("")
        return do.JoinNode(self._new_node(), contacts)

    def _new_node(self) -> str:
        node = numbered_node(self._nodes)
        self._nodes += 1
        self._living[node] = None
        return node

    def _leave(self, given: str | None = None) -> do.Action | None:
        leaving = [given] if given is not None else self._may_go()
        if not leaving:
            return None
        node = self._random.choice(leaving)
        self._gone(node)
        self._homes = {name: home for name, home in self._homes.items() if home != node}
        return do.LeaveNode(node)

    def _crash(self, nodes: Iterable[str]) -> do.Action | None:
        chosen = tuple(nodes)
        for node in chosen:
            self._gone(node)
            self._crashed[node] = None
        return do.CrashNodes(chosen) if chosen else None

    def _crash_some(self, step: asked.CrashActivity) -> do.Action | None:
        return self._crash(self._some_nodes(step))

    def _stall_some(self, step: asked.StallActivity, stalled: list[str]) -> do.Action | None:
        stalled += self._some_nodes(step)
        for node in stalled:
            self._gone(node)
        return do.StallNodes(tuple(stalled), step.duration_ms) if stalled else None

    def _go_on(self, stalled: list[str]) -> None:
        for node in stalled:
            self._living[node] = None

    def _some_nodes(self, step: asked.CrashActivity) -> list[str]:
        """So many of the living, or a share of them, or those that are named; never the last."""
        if step.nodes:
            return [node for node in step.nodes if node in self._living]
        count = step.count or round(step.fraction * len(self._living))
        left = self._sizes_of_sides()
        chosen: list[str] = []
        for node in self._random.sample(list(self._living), min(count, len(self._living))):
            side = self._side.get(node, 0)
            if left[side] > 1:
                left[side] -= 1
                chosen.append(node)
        return chosen

    def _restart(
        self, disk: Disk, given: str | None = None, *, alone: bool = False
    ) -> do.Action | None:
        if given is None:
            if not self._crashed:
                return None
            given = self._random.choice(list(self._crashed))
        contacts = self._contacts_for(given)
        if given not in self._crashed or not contacts:
            return None
        del self._crashed[given]
        self._living[given] = None
        if disk is not Disk.KEPT:
            self._homes = {name: home for name, home in self._homes.items() if home != given}
        return do.RestartNode(given, contacts, disk, alone)

    def _subscribe_on(self, node: str) -> do.SubscribeAt:
        name, wanted = self._content.subscription(self._subscriptions)
        self._subscriptions += 1
        self._homes[name] = node
        return do.SubscribeAt(node, name, wanted)

    def _subscribe(self) -> do.Action | None:
        node = self._some_node()
        return None if node is None else self._subscribe_on(node)

    def _unsubscribe(self) -> do.Action | None:
        present = [name for name, home in self._homes.items() if home in self._living]
        if not present:
            return None
        name = self._random.choice(present)
        return do.UnsubscribeAt(self._homes.pop(name), name)

    def _change(self) -> do.Action | None:
        present = [name for name, home in self._homes.items() if home in self._living]
        if not present:
            return None
        name = self._random.choice(present)
        _, wanted = self._content.subscription(self._subscriptions)
        self._subscriptions += 1
        return do.ChangeAt(self._homes[name], name, wanted)

    def _publish(self, step: asked.PublishActivity, count: int) -> do.Action | None:
        nodes = [n for n in step.nodes if n in self._living] if step.nodes else list(self._living)
        if not nodes:
            return None
        first = self._events
        self._events += count
        delivery = Delivery.BEST_EFFORT
        if step.delivery == "at_least_once" or (
            step.delivery == "mixed" and self._random.random() < 0.5
        ):
            delivery = Delivery.AT_LEAST_ONCE
        node = self._random.choice(nodes)
        if step.batch_events == 1:
            return do.PublishEvent(node, self._content.event(first), delivery)
        batch = f"batch-{first}"
        return do.PublishEvents(node, batch, tuple(self._named(batch, first, count)), delivery)

    def _named(self, batch: str, first: int, count: int) -> Iterator[Event]:
        """Events of the content under the names that they have in a batch."""
        for number in range(count):
            event = self._content.event(first + number)
            yield Event(event_id_of(batch, number), event.attributes, event.body)

    def _partition(self, step: asked.PartitionActivity) -> do.Action | None:
        groups = step.groups
        if not groups:
            names = list(self._living)
            self._random.shuffle(names)
            sides = min(step.sides, len(names))
            if sides < 2:
                return None
            # The first side is the rest, which new nodes belong to.
            groups = tuple(tuple(names[side::sides]) for side in range(1, sides))
        self._side = {node: k for k, nodes in enumerate(groups, start=1) for node in nodes}
        return do.Partition(groups)

    def _heal(self) -> do.Action:
        self._side = {}
        return do.Heal()

    def _break_edges(self, step: asked.BreakEdgesActivity) -> do.Action | None:
        if step.pairs:
            return do.BreakEdges(step.pairs)
        if step.links_of:
            node = self._some_node() if step.links_of == "?" else step.links_of
            return None if node is None else do.BreakLinks(node, step.count)
        names = list(self._living)
        if len(names) < 2:
            return None
        pairs = [tuple(self._random.sample(names, 2)) for _ in range(step.count)]
        return do.BreakEdges(tuple((one, other) for one, other in pairs))

    # --- plans: the moments of an activity -------------------------------------------------------

    def _plan_publish(self, step: asked.PublishActivity) -> Iterator[tuple[int, _Draw]]:
        for number in range(0, step.count, step.batch_events):
            together = min(step.batch_events, step.count - number)
            yield step.at_ms + number * step.every_ms, partial(self._publish, step, together)

    def _plan_subscribe(self, step: asked.SubscribeActivity) -> Iterator[tuple[int, _Draw]]:
        for number in range(step.count):
            yield step.at_ms + number * step.every_ms, self._subscribe

    def _plan_change(self, step: asked.ChangeActivity) -> Iterator[tuple[int, _Draw]]:
        for number in range(step.count):
            yield step.at_ms + number * step.every_ms, self._change

    def _plan_unsubscribe(self, step: asked.UnsubscribeActivity) -> Iterator[tuple[int, _Draw]]:
        for number in range(step.count or self._subscriptions):
            yield step.at_ms + number * step.every_ms, self._unsubscribe

    def _plan_subscription_churn(
        self, step: asked.SubscriptionChurnActivity
    ) -> Iterator[tuple[int, _Draw]]:
        for number, at_ms in enumerate(_moments(step)):
            yield at_ms, self._unsubscribe if number % 2 else self._subscribe

    def _plan_join(self, step: asked.JoinActivity) -> Iterator[tuple[int, _Draw]]:
        for number in range(step.count):
            yield step.at_ms + number * step.every_ms, self._join

    def _plan_leave(self, step: asked.LeaveActivity) -> Iterator[tuple[int, _Draw]]:
        given = step.nodes or (None,) * step.count
        for number, node in enumerate(given):
            yield step.at_ms + number * step.every_ms, partial(self._leave, node)

    def _plan_crash(self, step: asked.CrashActivity) -> Iterator[tuple[int, _Draw]]:
        yield step.at_ms, lambda: self._crash_some(step)

    def _plan_stall(self, step: asked.StallActivity) -> Iterator[tuple[int, _Draw]]:
        stalled: list[str] = []
        yield step.at_ms, lambda: self._stall_some(step, stalled)
        yield step.at_ms + step.duration_ms, lambda: self._go_on(stalled)

    def _plan_restart(self, step: asked.RestartActivity) -> Iterator[tuple[int, _Draw]]:
        disk = Disk(step.disk)
        # Who has crashed by then is not known yet: for all, as many as there could be.
        given = step.nodes or (None,) * (step.count or self._nodes)
        for number, node in enumerate(given):
            draw = partial(self._restart, disk, node, alone=step.alone)
            yield step.at_ms + number * step.every_ms, draw

    def _plan_churn(self, step: asked.NodeChurnActivity) -> Iterator[tuple[int, _Draw]]:
        for number, at_ms in enumerate(_moments(step)):
            yield at_ms, self._come if number % 2 else partial(self._go, step.crash_share)

    def _go(self, crash_share: float) -> do.Action | None:
        if self._random.random() >= crash_share:
            return self._leave()
        may_go = self._may_go()
        return self._crash([self._random.choice(may_go)]) if may_go else None

    def _come(self) -> do.Action | None:
        if self._crashed and self._random.random() < 0.5:
            return self._restart(self._random.choice((Disk.KEPT, Disk.LOST)))
        return self._join()

    def _plan_partition(self, step: asked.PartitionActivity) -> Iterator[tuple[int, _Draw]]:
        yield step.at_ms, lambda: self._partition(step)

    def _plan_heal(self, step: asked.HealActivity) -> Iterator[tuple[int, _Draw]]:
        yield step.at_ms, self._heal

    def _plan_break_edges(self, step: asked.BreakEdgesActivity) -> Iterator[tuple[int, _Draw]]:
        yield step.at_ms, lambda: self._break_edges(step)

    def _plan_mend_edges(self, step: asked.MendEdgesActivity) -> Iterator[tuple[int, _Draw]]:
        yield step.at_ms, do.MendEdges


def _moments(step: asked.SubscriptionChurnActivity | asked.NodeChurnActivity) -> Iterator[int]:
    for number in range(int(step.duration_ms * step.per_second / 1000)):
        yield step.at_ms + int(number * 1000 / step.per_second)


_PLANS: dict[type, Callable[[_Planner, Any], Iterator[tuple[int, _Draw]]]] = {
    asked.PublishActivity: _Planner._plan_publish,
    asked.SubscribeActivity: _Planner._plan_subscribe,
    asked.ChangeActivity: _Planner._plan_change,
    asked.UnsubscribeActivity: _Planner._plan_unsubscribe,
    asked.SubscriptionChurnActivity: _Planner._plan_subscription_churn,
    asked.JoinActivity: _Planner._plan_join,
    asked.LeaveActivity: _Planner._plan_leave,
    asked.CrashActivity: _Planner._plan_crash,
    asked.StallActivity: _Planner._plan_stall,
    asked.RestartActivity: _Planner._plan_restart,
    asked.NodeChurnActivity: _Planner._plan_churn,
    asked.PartitionActivity: _Planner._plan_partition,
    asked.HealActivity: _Planner._plan_heal,
    asked.BreakEdgesActivity: _Planner._plan_break_edges,
    asked.MendEdgesActivity: _Planner._plan_mend_edges,
}
