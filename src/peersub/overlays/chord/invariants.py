"""What holds of a ring, always and at rest: for checkers outside of the protocol.

Always: the arcs of a peer partition the circle; what it delegates of an event are disjoint parts of
what was delegated to it, each to the peer that stands at its start.

At rest: fingers, predecessors and successor lists are those of the true ring; the two ends of each
edge agree on its scope and its rows; the rows are the fixpoint of section 4.4, so none mentions an
interest that is gone; and along every path of two edges the filters shrink (section 4.2).

That rows are the fixpoint is asked of each peer by itself: what it sent to a publisher is what its
own filters and the tables of its edges make. Labels fall along every chain of edges, so if that
holds everywhere there is only one state it can be. In a large network some peers are asked, and
each of them is looked at as closely as in a small one (`check_sample`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from peersub.filters.filter import Filter
from peersub.overlays.chord import arcs
from peersub.overlays.chord.arcs import Arc
from peersub.overlays.chord.converged import ideal_topology
from peersub.overlays.chord.messages import RingMember
from peersub.overlays.chord.peer import ChordPeer
from peersub.overlays.core.causes import Cause, Publish, Received
from peersub.overlays.core.checks import Checks
from peersub.overlays.core.effects import Effect, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.shell import Phase
from peersub.overlays.routing.combination import Combination
from peersub.overlays.routing.control_filters import Intervals
from peersub.overlays.routing.messages import Entry, Notify, NotifyBatch
from peersub.overlays.routing.rows import ControlRows, Rows

__all__ = ["CHECKS", "check_partition", "check_quiet", "check_sample", "check_step"]

ROWS_CHECKED_MAX = 500_000
"""Rows on paths of two edges that are looked at; of more, a part that is spread evenly."""
NEAR_MIN = 256
"""Successors that are looked at, at least: more than any list has that is not set by hand."""


# --- always ------------------------------------------------------------------------------------


def check_step(peer: ChordPeer, cause: Cause, effects: Iterable[Effect]) -> list[str]:
    """Complaints about one handled cause: how best-effort events were split."""
    given: dict[str, list[Arc]] = {}
    match cause:
        case Publish(publications):
            for publication in publications:
                given[publication.id] = [(peer.key, peer.settings.size)]
        case Received(_, messages):
            for message in map(unwrapped, messages):
                if isinstance(message, Notify | NotifyBatch) and not message.delegation:
                    for event_id in _event_ids(message):
                        given.setdefault(event_id, []).append(_arc(message.scope))
        case _:
            pass
    complaints = check_partition(peer)
    handed: dict[str, list[Arc]] = {}
    for effect in effects:
        if isinstance(effect, Send):
            for message in map(unwrapped, effect.messages):
                if isinstance(message, Notify | NotifyBatch):
                    for event_id in _event_ids(message):
                        if event_id in given:
                            handed.setdefault(event_id, []).append(_arc(message.scope))
    for event_id, parts in handed.items():
        complaints += _check_split(peer, event_id, given[event_id], parts)
    return complaints


def _event_ids(message: Notify | NotifyBatch) -> list[str]:
    if isinstance(message, Notify):
        return [message.publication.id]
    return [message.batch.event_id(row) for row in range(len(message.batch))]


def check_partition(peer: ChordPeer) -> list[str]:
    """Complaints about the arcs of a peer: they follow each other once round the circle."""
    at = peer.key
    for start, length in peer.topology.partition():
        if start != at or length < 1:
            return [f"the arcs of {peer.me} leave a gap, or overlap, at key {at}"]
        at = (at + length) % peer.settings.size
    whole = sum(length for _, length in peer.topology.partition())
    if at != peer.key or whole != peer.settings.size:
        return [f"the arcs of {peer.me} do not go once round the circle"]
    return []


def _check_split(peer: ChordPeer, event_id: str, given: list[Arc], parts: list[Arc]) -> list[str]:
    size = peer.settings.size
    complaints = []
    if any(not any(arcs.within(part, arc, size) for arc in given) for part in parts):
        complaints.append(f"{peer.me} hands on more of {event_id} than it was given: {parts}")
    # A light message may arrive twice in one batch, and is then handed on twice.
    if _are_disjoint(given, size) and not _are_disjoint(parts, size):
        complaints.append(f"{peer.me} hands on parts of {event_id} that overlap: {parts}")
    return complaints


def _are_disjoint(pieces: list[Arc], size: int) -> bool:
    return sum(length for _, length in arcs.united(pieces, size)) == sum(p[1] for p in pieces)


def _arc(scope: tuple[int, ...]) -> Arc:
    start, length = scope
    return (start, length)


# --- at rest -----------------------------------------------------------------------------------


def check_quiet(peers: Sequence[ChordPeer]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    return check_sample(peers, peers)


def check_sample(peers: Sequence[ChordPeer], sample: Sequence[ChordPeer]) -> list[str]:
    """The same, for these of its peers; that all are members with keys and arcs, for every one."""
    present = [peer for peer in peers if peer.phase not in (Phase.LEAVING, Phase.LEFT)]
    members = [peer for peer in present if peer.phase is Phase.MEMBER]
    complaints = [
        f"{peer.me} has not joined: it {peer.joining.stage.value}"
        for peer in present
        if peer.phase is not Phase.MEMBER
    ]
    ring = sorted(RingMember(peer.key, peer.me) for peer in members)
    for one, other in pairwise(ring):
        if one.key == other.key:
            return [*complaints, f"{one.peer} and {other.peer} stand at one key, {one.key}"]
    for peer in members:
        complaints += check_partition(peer)
    keys = [member.key for member in ring]
    chosen = [peer for peer in sample if peer.phase is Phase.MEMBER]
    for peer in chosen:
        complaints += _check_place(peer, ring, keys)
    if not complaints:
        complaints += _check_edges(chosen, {peer.me: peer for peer in members})
    return complaints


def _check_place(peer: ChordPeer, ring: Sequence[RingMember], keys: list[int]) -> list[str]:
    """Fingers, predecessor and successor list against the true ring, clockwise by its keys."""
    ideal, topology = ideal_topology(peer, _around(peer, ring, keys)), peer.topology
    complaints = []
    if ideal.successor != topology.successor:
        complaints.append(f"{peer.me} takes {topology.successor} for its successor")
    if ideal.predecessor != topology.predecessor:
        complaints.append(f"{peer.me} takes {topology.predecessor} for its predecessor")
    wanted = {edge.peer: (edge.label, edge.arc) for edge in ideal.fingers()}
    found = {edge.peer: (edge.label, edge.arc) for edge in topology.fingers()}
    if wanted != found:
        missing = [str(other) for other in wanted if other not in found]
        wrong = [str(other) for other in found if other not in wanted]
        complaints.append(f"{peer.me} has wrong fingers: {missing} missing, {wrong} superfluous")
    length = peer.settings.successors or ideal.successors_wanted()
    if ideal.successors(length) != peer.ring.successor_list():
        complaints.append(f"{peer.me} has a wrong successor list")
    return complaints


def _around(peer: ChordPeer, ring: Sequence[RingMember], keys: list[int]) -> Iterable[RingMember]:
    """The members that the place of a peer depends on; those that it does not take long to sort."""
    near = max(NEAR_MIN, peer.settings.successors)
    if len(ring) <= near:
        return ring
    size, turn = peer.settings.size, bisect_left(keys, peer.key)
    turns = dict.fromkeys((turn + step) % len(ring) for step in range(-1, near))
    for k in range(1, peer.settings.key_bits + 1):
        turns[bisect_left(keys, (peer.key + (size >> k)) % size) % len(ring)] = None
    return [ring[place] for place in turns]


def _check_edges(peers: list[ChordPeer], by_name: dict[PeerId, ChordPeer]) -> list[str]:
    """Both ends agree; the rows are the fixpoint; filters shrink along paths."""
    complaints = []
    for peer in peers:
        maintenance = peer.engine.maintenance
        for edge in peer.topology.fingers():
            other = by_name[edge.peer]
            given = other.engine.publishers().get(peer.me)
            if given != edge.arc:
                complaints.append(f"{edge.peer} serves {given} for {peer.me}, not {edge.arc}")
            elif maintenance.told(edge.peer) != other.engine.maintenance.sent(peer.me):
                complaints.append(f"{peer.me} has other rows than {edge.peer} sent")
        combination = _combination(peer)
        for publisher, scope in peer.engine.publishers().items():
            source = by_name.get(publisher)
            if source is None or peer.me not in source.topology.edges():
                complaints.append(f"{peer.me} serves {publisher}, which has no edge to it")
                continue
            served = peer.topology.serves(publisher, scope)
            if maintenance.sent(publisher) != combination.rows(served, scope):
                complaints.append(f"the rows on {publisher} -> {peer.me} are not the fixpoint")
    return complaints or _check_paths(peers, by_name)


def _combination(peer: ChordPeer) -> Combination:
    """What the peer's filters and the tables of its edges make, worked out from nothing else."""
    maintenance = peer.engine.maintenance
    exact = maintenance.settings.strategy.exact_reach
    combination = maintenance.strategy.combination(peer.topology if exact else None)
    combination.replace(None, maintenance.local_rows())
    for edge in peer.topology.edges():
        combination.replace(edge, maintenance.told(edge))
    return combination


def _check_paths(peers: Sequence[ChordPeer], by_name: dict[PeerId, ChordPeer]) -> list[str]:
    """u -> v -> w: what the second edge wants, and what v wants, the first wants as well."""
    paths: list[tuple[ChordPeer, ChordPeer, PeerId | None]] = []
    rows_count = 0
    for peer in peers:
        for edge in peer.topology.fingers():
            middle = by_name[edge.peer]
            for last in (None, *middle.topology.serves(peer.me, edge.arc)):
                if last is not None and edge.label >= middle.topology.label_of(last):
                    return [f"the label does not fall along {peer.me} -> {edge.peer} -> {last}"]
                paths.append((peer, middle, last))
                rows_count += len(_rows(middle, last))
    complaints = []
    known: dict[tuple[bytes, bytes], bool] = {}
    step = rows_count // ROWS_CHECKED_MAX + 1
    for peer, middle, last in paths[::step]:
        outer, inner = peer.engine.maintenance.told(middle.me), _rows(middle, last)
        scope = peer.topology.scope_of(middle.me)
        served = [entry for entry in inner.entries if peer.topology.meets(entry.reach, scope)]
        if not _covers(outer, served, inner.control, known):
            where = last or "its own subscribers"
            complaints.append(f"{peer.me} -> {middle.me} wants less than {middle.me} -> {where}")
    return complaints


def _rows(peer: ChordPeer, edge: PeerId | None) -> Rows:
    maintenance = peer.engine.maintenance
    return maintenance.local_rows() if edge is None else maintenance.told(edge)


def _covers(
    outer: Rows,
    entries: Iterable[Entry],
    control: ControlRows,
    known: dict[tuple[bytes, bytes], bool],
) -> bool:
    """Whether the rows want all that these want; `known` remembers which filter covers which."""
    same = {(entry.name, entry.filter.digest): None for entry in outer.entries}
    for entry in entries:
        if (entry.name, entry.filter.digest) in same:
            continue
        wide = [row.filter for row in outer.entries]
        alone = any(_covers_alone(one, entry.filter, known) for one in wide)
        if not alone and not _together(wide, entry.filter):
            return False
    wide_control = dict(outer.control)
    return all(_holds(wide_control.get(name, ()), keys) for name, keys in control)


def _covers_alone(
    general: Filter, specific: Filter, known: dict[tuple[bytes, bytes], bool]
) -> bool:
    pair = (general.digest, specific.digest)
    answer = known.get(pair)
    if answer is None:
        answer = known[pair] = general.covers(specific)
    return answer


def _together(filters: list[Filter], wanted: Filter) -> bool:
    """Whether the filters cover it together, though none does alone."""
    boxes = [box for one in filters if one.language == "sql" for box in one.boxes]
    return wanted.language == "sql" and Filter.from_boxes(boxes).covers(wanted)


def _holds(outer: Intervals, inner: Intervals) -> bool:
    spans = list(zip(outer[::2], outer[1::2], strict=True))
    return all(
        any(low <= first and last <= high for low, high in spans)
        for first, last in zip(inner[::2], inner[1::2], strict=True)
    )


CHECKS: Final = Checks(quiet=check_quiet, sample=check_sample, step=check_step)
