"""Simulated runs with their traces, and what the simulator's own checker says about them."""

import io
from dataclasses import dataclass

from peersub.simulator.meter import Meter
from peersub.simulator.running import run_scenario
from peersub.simulator.scenario import Scenario
from peersub.simulator.summary import summarise
from peersub.trace.facts import Published, Subscribed, facts_of_form
from peersub.trace.reading import trace_forms
from peersub.trace.writing import TraceWriter

__all__ = ["TracedRun", "deliveries_wanted", "traced_run"]


@dataclass(frozen=True)
class TracedRun:
    """The lines of a trace, and the summary that the run itself gave."""

    lines: tuple[str, ...]
    summary: dict


def traced_run(scenario: Scenario) -> TracedRun:
    stream, meter = io.StringIO(), Meter()
    writer = TraceWriter(stream, overlay=scenario.overlay, seed=scenario.seed)
    outcome = run_scenario(scenario, observers=[meter, writer])
    meter.finish()
    summary = summarise(outcome.checker, meter, about={"nodes": scenario.nodes})
    return TracedRun(tuple(stream.getvalue().splitlines()), summary)


def deliveries_wanted(lines) -> list[tuple[str, str]]:
    """Every pair of event and subscription of the trace that match, asked one by one."""
    filters, events = {}, {}
    for form in trace_forms(lines):
        for fact in facts_of_form(form):
            if isinstance(fact, Subscribed):
                filters[fact.subscription] = fact.filter
            elif isinstance(fact, Published):
                events[fact.event.id] = fact.event
    return [
        (event_id, name)
        for event_id, event in events.items()
        for name, wanted in filters.items()
        if wanted.matches(event)
    ]
