"""Maps of attributes for Reach, chosen from a sample: `workload reach-map`, `--chosen-bits`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peersub.cli.simulate_inputs import SimulateOptions
    from peersub.overlays.reach.attributes import AttributeMap
    from peersub.simulator.content import Content
    from peersub.simulator.scenario import Scenario

__all__ = ["run_reach_map", "with_chosen_bits"]

SAMPLE_EVENTS: Final = 512
"""Events of a simulation by which its bits are chosen."""
SAMPLE_SUBSCRIPTIONS: Final = 1_024


def run_reach_map(
    files: SimulateOptions, *, bits: int, buckets: int, fine: bool, as_json: bool
) -> int:
    """Print a map for a workload that the files are a sample of; the result is the exit code."""
    from peersub.cli.simulate_inputs import content_of
    from peersub.overlays.reach.attributes import AttributeMap, chosen_map

    content = content_of(files)
    assert content is not None
    events = [event.attributes for event in content.events]
    filters = [wanted for _, wanted in content.subscriptions]
    text = chosen_map(events, filters, bits, buckets=buckets, fine=fine)
    if not text:
        raise CommandError(
            "no filter demands an attribute: there is nothing to choose. Leave attributes out."
        )
    chosen, hashed = (AttributeMap(bits, each) for each in (text, ""))
    result = {
        "attributes": text,
        "identifier_bits": bits,
        "events": len(events),
        "subscriptions": len(filters),
        "bits_per_event": _bits_per_event(chosen, events),
        "bits_per_event_hashed": _bits_per_event(hashed, events),
    }
    if as_json:
        print_json(result)
        return ExitCode.DONE
    say(text)
    more = "" if bits == _default_bits() else f" --set identifier_bits={bits}"
    note(
        f"From {len(events):,} events and {len(filters):,} subscriptions. All nodes need the same: "
        f'--overlay reach --set "attributes=..."{more}'
    )
    return ExitCode.DONE


def _bits_per_event(bits: AttributeMap, events: Sequence[Mapping[str, Any]]) -> float:
    count = sum(bits.event_bits(attributes).bit_count() for attributes in events)
    return round(count / max(len(events), 1), 3)


def _default_bits() -> int:
    from peersub.overlays.reach.settings import ReachSettings

    return ReachSettings().identifier_bits


def with_chosen_bits(scenario: Scenario, content: Content) -> Scenario:
    """The scenario under a map that is chosen from its own workload.

    Raises:
        CommandError: the overlay has no bits, or they are given.
    """
    from peersub.overlays.reach.attributes import chosen_map

    if scenario.overlay != "reach":
        raise CommandError("only reach has bits to choose. Leave out --chosen-bits.")
    if "attributes" in scenario.settings:
        raise CommandError("--set attributes= gives the bits. Leave out --chosen-bits.")
    bits = scenario.settings.get("identifier_bits", _default_bits())
    assert isinstance(bits, int)
    count = min(scenario.subscriptions, SAMPLE_SUBSCRIPTIONS)
    text = chosen_map(
        [content.event(number).attributes for number in range(SAMPLE_EVENTS)],
        [content.subscription(number)[1] for number in range(count)],
        bits,
    )
    return replace(scenario, settings={**scenario.settings, "attributes": text})
