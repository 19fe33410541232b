"""Quiescence: nothing happens any more but periodic maintenance that changes nothing.

A network is quiet if no node owes anything (a join, a subscription that is not ready, a publication
that is not completed), nothing was delivered, confirmed or broken for a while, no link waits for an
acknowledgement, and the state of all nodes, as they describe it, is the same at the begin and
the end of that while. A network in which nothing is planned at all is quiet at once.

Of an overlay's state its `fingerprint()` is compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peersub.simulator.engine import Simulation

__all__ = ["SETTLE_MS", "run_until_quiet", "state_digest", "unrest"]

SETTLE_MS = 6_000
"""Longer than the pause between attempts of anything that is tried again."""
SAMPLES = 8
"""How often during that while links are looked at."""
SHOWN_MAX = 5


def state_digest(simulation: Simulation) -> bytes:
    """A digest of what all living nodes say of themselves."""
    digest = hashlib.blake2b(digest_size=16)
    for host in simulation.living():
        said = f"{host.peer}{host.overlay.fingerprint()!r}"
        digest.update(said.encode("utf-8", "surrogatepass"))
    return digest.digest()


def run_until_quiet(simulation: Simulation, limit_ms: int, settle_ms: int = SETTLE_MS) -> bool:
    """Let time pass until the network is quiet; False if it is not by the limit."""
    deadline_ms = simulation.now_ms + limit_ms
    seen: bytes | None = None
    while simulation.next_ms is not None and simulation.now_ms < deadline_ms:
        if seen is None:
            seen = state_digest(simulation)
        happened = simulation.activity
        wait_ms = min(settle_ms, deadline_ms - simulation.now_ms)
        waiting = _pass_time(simulation, wait_ms)
        if waiting or happened != simulation.activity or simulation.obligations():
            seen = None
            continue
        digest = state_digest(simulation)
        if digest == seen and wait_ms == settle_ms:
            return True
        seen = digest
    return simulation.next_ms is None and not simulation.obligations()


def _pass_time(simulation: Simulation, wait_ms: int) -> list[str]:
    """Let time pass; the links on which something was never seen acknowledged all the while.

    A link that lost a message may try again only after long, and changes nothing until then;
    maintenance keeps a link waiting for moments only.
    """
    end_ms = simulation.now_ms + wait_ms
    waiting = _waiting_links(simulation)
    for sample in range(SAMPLES):
        left_ms = end_ms - simulation.now_ms
        simulation.run_until_idle(left_ms // (SAMPLES - sample))
        if waiting:
            now_waiting = _waiting_links(simulation)
            waiting = {link: None for link in waiting if link in now_waiting}
    return [f"{one} to {other}" for one, other in waiting]


def _waiting_links(simulation: Simulation) -> dict[tuple[str, str], None]:
    return {
        (host.name, other): None
        for host in simulation.living()
        for other in host.node.waiting_links()
    }


def unrest(simulation: Simulation, settle_ms: int = SETTLE_MS) -> str:
    """What keeps the network from being quiet, in words; time passes meanwhile."""
    owed = simulation.obligations()
    if owed:
        return f"open are {_some(owed)}"
    before = {host.name: _parts(host.overlay.describe()) for host in simulation.living()}
    happened = simulation.activity
    busy = _pass_time(simulation, settle_ms)
    if busy:
        return f"messages wait to be acknowledged all the time from {_some(busy)}"
    for host in simulation.living():
        for name, value in _parts(host.overlay.describe()).items():
            said = before.get(host.name, {}).get(name, "")
            if value != said:
                place = next(n for n in range(len(value) + 1) if value[:n] != said[:n])
                part = slice(max(place - 60, 0), place + 60)
                return f"{host.name} changes {name} from …{said[part]}… to …{value[part]}…"
    if happened != simulation.activity:
        return "events are still delivered, or confirmed"
    return "it has become quiet just now"


def _parts(description: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in description.items()}


def _some(names: Sequence[str]) -> str:
    shown = "; ".join(names[:SHOWN_MAX])
    return f"{shown} and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else shown
