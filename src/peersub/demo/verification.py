"""The demo's results, checked by brute force: each filter asked about each event of a sample."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from peersub import Filter

__all__ = ["deliveries_by_event", "differences", "sample_rows"]


def sample_rows(events: int, seed: int, size: int) -> list[int]:
    """Some events, drawn by the seed."""
    return sorted(Random(seed).sample(range(events), min(size, events)))


def deliveries_by_event(lines: Iterable[str]) -> dict[str, set[str]]:
    """The deliveries of a JSON Lines file: for each event who gets it."""
    found: dict[str, set[str]] = {}
    for line in lines:
        delivery = json.loads(line)
        found.setdefault(delivery["event_id"], set()).add(delivery["subscription_id"])
    return found


def differences(
    events: Iterable[Mapping[str, Any]],
    filters: Mapping[str, Filter],
    delivered: Mapping[str, set[str]],
) -> list[str]:
    """Where the deliveries differ from asking each filter about each event, one by one."""
    found = []
    for event in events:
        wanted = {name for name, one in filters.items() if one.matches(event)}
        got = delivered.get(event["id"], set())
        found += [f"{event['id']}: {name} did not get it" for name in sorted(wanted - got)]
        found += [f"{event['id']}: {name} should not get it" for name in sorted(got - wanted)]
    return found
