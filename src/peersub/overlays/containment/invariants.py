"""What holds of the containment tree: at rest, and on each node after each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from peersub.overlays.containment.member import Member
from peersub.overlays.containment.peer import ContainmentPeer
from peersub.overlays.containment.seat import Seat
from peersub.overlays.containment.structure import EdgeKind, contains
from peersub.overlays.core.causes import Cause
from peersub.overlays.core.checks import Checks
from peersub.overlays.core.effects import Effect
from peersub.overlays.core.identity import PeerId

__all__ = ["CHECKS", "check_quiet", "check_step"]


def check_step(peer: ContainmentPeer, cause: Cause, effects: Sequence[Effect]) -> list[str]:
    """Complaints about one node: each edge stands on a proof, and nobody has two places."""
    complaints: list[str] = []
    for member in peer.hosting.members.values():
        seat = member.seat
        if seat.is_crown and seat.up is not None:
            complaints.append(f"{seat.me} is a crown and below {seat.up.peer}")
        if seat.up is not None:
            complaints += _unproven(seat, seat.up.peer, seat.up.kind, is_up=True)
        for below in seat.down:
            complaints += _unproven(seat, below, seat.down[below].kind, is_up=False)
        if len(set(seat.path)) < len(seat.path):
            complaints.append(f"the path of {seat.me} is a circle: {_names(seat.path)}")
    return complaints


def _unproven(seat: Seat, other: PeerId, kind: EdgeKind, *, is_up: bool) -> Iterator[str]:
    """What an edge lacks, by what its end knows of the filter at the other."""
    if kind not in (EdgeKind.CHILD, EdgeKind.EQUAL):
        return
    wanted = seat.up.wanted if is_up and seat.up is not None else None
    if not is_up:
        wanted = seat.down[other].wanted
    above, below = (wanted, seat.wanted) if is_up else (seat.wanted, wanted)
    if above is None or below is None or not contains(above, below):
        yield f"the {kind.name} edge between {seat.me} and {other} stands on no proof"
    elif (kind is EdgeKind.EQUAL) != contains(below, above):
        yield f"the {kind.name} edge between {seat.me} and {other} should be of another kind"


def check_quiet(peers: Sequence[ContainmentPeer]) -> list[str]:
    """Complaints about a network at rest, all of whose nodes can reach each other."""
    members = {member.me: member for peer in peers for member in peer.hosting.members.values()}
    complaints = _complaints_about_the_whole(members)
    for member in members.values():
        complaints += _edges(member, members)
        complaints += _bounds(member)
        if not complaints:
            complaints += _knowledge(member, members)
    for peer in peers:
        complaints += _links(peer)
    return complaints


def _complaints_about_the_whole(members: dict[PeerId, Member]) -> list[str]:
    complaints = []
    crowns = [member.seat for member in members.values() if member.seat.is_crown]
    if len(crowns) != 1 and members:
        complaints.append(f"{len(crowns)} crowns: {_names([seat.me for seat in crowns])}")
    if any(seat.is_keeper for seat in crowns) and any(
        not member.seat.is_keeper for member in members.values()
    ):
        complaints.append("a keeper is the crown, though there are other members")
    for member in members.values():
        climbed = _chain(member, members)
        if len(climbed) > len(members):
            complaints.append(f"{member.me} stands above itself")
    return complaints


def _chain(member: Member, members: dict[PeerId, Member]) -> list[PeerId]:
    """Those above a member; more than there are members if that is a circle."""
    climbed: list[PeerId] = []
    up = member.seat.up
    while up is not None and len(climbed) <= len(members):
        climbed.append(up.peer)
        above = members.get(up.peer)
        up = None if above is None else above.seat.up
    return climbed


def _edges(member: Member, members: dict[PeerId, Member]) -> Iterator[str]:
    seat = member.seat
    if not seat.is_seated:
        yield f"{seat.me} has no place"
    if seat.former_ups:
        yield f"{seat.me} holds on to {_names(seat.former_ups)}"
    if seat.is_leaving or seat.is_vacating:
        yield f"{seat.me} has not got away"
    if seat.is_keeper and seat.up is not None and seat.up.kind is not EdgeKind.VISIT:
        yield f"the keeper {seat.me} stands below {seat.up.peer} by an edge for others"
    if seat.up is not None:
        above = members.get(seat.up.peer)
        edge = None if above is None else above.seat.down.get(seat.me)
        if edge is None or edge.kind is not seat.up.kind:
            yield f"{seat.me} stands below {seat.up.peer}, which does not know"
        if above is not None and seat.up.kind is EdgeKind.TOP and not above.seat.is_top_level:
            yield f"{seat.me} is top level, and {seat.up.peer} above it is not"
        if above is not None and seat.up.kind is EdgeKind.CHILD:
            up = above.seat.up
            if up is not None and up.kind is EdgeKind.EQUAL:
                yield f"{seat.me} stands below {seat.up.peer}, which is no root of a class"
    for below in seat.down:
        other = members.get(below)
        if other is None or other.seat.up is None or other.seat.up.peer != seat.me:
            yield f"{seat.me} stands above {below}, which does not know"


def _bounds(member: Member) -> Iterator[str]:
    seat, settings = member.seat, member.seat.settings
    for kind, most in (
        (EdgeKind.EQUAL, settings.equal_degree),
        (EdgeKind.TOP, settings.top_degree),
    ):
        if len(seat.below(kind)) > most:
            yield f"{seat.me} has {len(seat.below(kind))} below it over {kind.name} edges"


def _knowledge(member: Member, members: dict[PeerId, Member]) -> Iterator[str]:
    """What a member was told of those above it."""
    seat = member.seat
    chain = tuple(_chain(member, members))
    if seat.ancestors != chain[: seat.settings.ancestors]:
        yield f"{seat.me} takes {_names(seat.ancestors)} for those above it"
    path = [seat.me]
    if seat.up is not None and seat.up.kind in (EdgeKind.EQUAL, EdgeKind.TOP):
        kind = seat.up.kind
        for peer in chain:
            path.append(peer)
            up = members[peer].seat.up
            if up is None or up.kind is not kind:
                break
    if seat.up is not None and members[chain[0]].seat.is_keeper:
        path.append(chain[0])
    if seat.path != tuple(path):
        yield f"{seat.me} takes {_names(seat.path)} for its path"


def _links(peer: ContainmentPeer) -> Iterator[str]:
    for other in peer.links():
        if not peer.hosting.is_linked(other.node):
            yield f"{peer.me} has edges to {other} and no link"


def _names(peers: Iterable[PeerId]) -> str:
    return ", ".join(map(str, peers)) or "nobody"


CHECKS: Final = Checks(quiet=check_quiet, step=check_step)
