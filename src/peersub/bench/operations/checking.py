"""Was anything lost, doubled, or seen by who may not? By brute force, from what people noted.

Events have a symbol and a level. A reader wants one symbol; a permission lets an identity see, or
publish, the levels below a bound. Permissions change while the network runs: between the moment a
change begins and the moment when it is sure, either may hold. An event that somebody received must
have been permitted at some moment at which it could have been handed over: after it was published
and after the reader attached itself, and before it was received.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal

__all__ = ["Facts", "Received", "Verdict"]

SHOWN_MAX: Final = 5
"""Examples that a problem names."""

Right = Literal["see", "publish"]


@dataclass(frozen=True, slots=True)
class _Published:
    publisher: str
    symbol: str
    level: int
    begun_ms: float
    is_acknowledged: bool
    ended_ms: float

    def __str__(self) -> str:
        what = "acknowledged" if self.is_acknowledged else "failed"
        return f"published at {self.begun_ms:.0f} ms, {what} at {self.ended_ms:.0f} ms"


@dataclass(frozen=True, slots=True)
class _Grant:
    bound: int
    begun_ms: float
    sure_ms: float


@dataclass(frozen=True, slots=True)
class Received:
    """An event that came."""

    event_id: str
    attached_ms: float
    """When the reader began to attach itself, with the connection over which the event came."""
    at_ms: float
    is_marked: bool = False
    """Whether it says that it may have come before."""
    way: str = ""
    """Over which connection, for people."""

    def __str__(self) -> str:
        marked = "marked" if self.is_marked else ""
        return " ".join(filter(None, (f"at {self.at_ms:.0f} ms", self.way, marked)))


@dataclass(slots=True)
class _Reader:
    identity: str
    symbol: str
    is_durable: bool
    ready_ms: float = inf
    received: list[Received] = field(default_factory=list)


@dataclass(slots=True)
class Verdict:
    """What the facts amount to; each problem is a pair of who and which event."""

    acknowledged: int = 0
    refused: int = 0
    """Publications that failed, and might not be permitted."""
    failed: int = 0
    """Those that failed though they were permitted."""
    expected: int = 0
    received: int = 0
    marked: int = 0
    lost: list[tuple[str, str]] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    forbidden: list[tuple[str, str]] = field(default_factory=list)
    unwanted: list[tuple[str, str]] = field(default_factory=list)
    smuggled: list[tuple[str, str]] = field(default_factory=list)
    """Acknowledged, though the publisher might not publish it."""
    broken: list[str] = field(default_factory=list)
    """What was to happen, and did not."""
    copies: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of the first events that came twice: how each copy came, in words."""

    @property
    def problems(self) -> list[str]:
        """In words; none if all is well."""
        kinds = ("lost", "doubled", "forbidden", "unwanted", "smuggled")
        found: list[str] = []
        for kind in kinds:
            pairs: list[tuple[str, str]] = getattr(self, kind)
            if pairs:
                shown = ", ".join(f"{who} {event_id}" for who, event_id in pairs[:SHOWN_MAX])
                found.append(f"{len(pairs):,} {kind}: {shown}")
        told = [f"{who} {event_id}: {how}" for (who, event_id), how in self.copies.items()]
        return [*found, *told, *self.broken]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            name: len(value) if isinstance(value, list) and name != "broken" else value
            for name in self.__slots__
            if name != "copies"
            for value in (getattr(self, name),)
        }


class Facts:
    """Collects what happened, and judges it."""

    def __init__(self) -> None:
        self._published: dict[str, _Published] = {}
        self._grants: dict[tuple[str, Right], list[_Grant]] = defaultdict(list)
        self._readers: dict[str, _Reader] = {}
        self._broken: list[str] = []

    # --- noting ----------------------------------------------------------------------------------

    def granted(
        self, identity: str, right: Right, bound: int, begun_ms: float, sure_ms: float
    ) -> None:
        """From now on, levels below the bound are permitted; the last grant but this one ends."""
        self._grants[identity, right].append(_Grant(bound, begun_ms, sure_ms))

    def ended(
        self,
        event_id: str,
        publisher: str,
        symbol: str,
        level: int,
        begun_ms: float,
        ended_ms: float,
        *,
        is_acknowledged: bool,
    ) -> None:
        """A publication has ended."""
        self._published[event_id] = _Published(
            publisher, symbol, level, begun_ms, is_acknowledged, ended_ms
        )

    def reads(self, name: str, identity: str, symbol: str, *, is_durable: bool) -> None:
        """A reader is about to subscribe."""
        self._readers[name] = _Reader(identity, symbol, is_durable)

    def ready(self, name: str, at_ms: float) -> None:
        """Its subscription is ready, for the first time: it must miss nothing from now on."""
        reader = self._readers[name]
        reader.ready_ms = min(reader.ready_ms, at_ms)

    def received(self, name: str, received: Received) -> None:
        """An event came."""
        self._readers[name].received.append(received)

    def expected(self, what: str, *, holds: bool) -> None:
        """Something was to happen."""
        if not holds:
            self._broken.append(what)

    # --- judging ---------------------------------------------------------------------------------

    def judge(self) -> Verdict:
        """Compare what came with what should have come, and might have."""
        verdict = Verdict(broken=list(self._broken))
        by_symbol: dict[str, list[str]] = defaultdict(list)
        for event_id, event in self._published.items():
            if not event.is_acknowledged:
                holding = self._holding(event.publisher, "publish", event.begun_ms, event.begun_ms)
                if all(event.level < grant.bound for grant in holding):
                    verdict.failed += 1
                else:
                    verdict.refused += 1
                continue
            verdict.acknowledged += 1
            by_symbol[event.symbol].append(event_id)
            if not self._may(event.publisher, "publish", event.level, event.begun_ms, inf):
                verdict.smuggled.append((event.publisher, event_id))
        for name, reader in self._readers.items():
            self._judge_received(name, reader, verdict)
            if reader.is_durable:
                self._judge_missing(name, reader, by_symbol[reader.symbol], verdict)
        return verdict

    def _judge_received(self, name: str, reader: _Reader, verdict: Verdict) -> None:
        seen: set[str] = set()
        for each in reader.received:
            verdict.received += 1
            verdict.marked += each.is_marked
            if each.event_id in seen and not each.is_marked:
                verdict.doubled.append((name, each.event_id))
                if len(verdict.copies) < SHOWN_MAX:
                    verdict.copies[name, each.event_id] = self._way_of(reader, each.event_id)
            seen.add(each.event_id)
            event = self._published.get(each.event_id)
            if event is None:
                continue  # It has not ended yet; whoever publishes notes that at last.
            if event.symbol != reader.symbol:
                verdict.unwanted.append((name, each.event_id))
            since_ms = max(event.begun_ms, each.attached_ms)
            if not self._may(reader.identity, "see", event.level, since_ms, each.at_ms):
                verdict.forbidden.append((name, each.event_id))

    def _way_of(self, reader: _Reader, event_id: str) -> str:
        """What became of an event, from its publisher to each time that a reader got it."""
        published = self._published.get(event_id, "not ended")
        copies = [str(each) for each in reader.received if each.event_id == event_id]
        return f"{published}; came {', and '.join(copies)}"

    def _judge_missing(
        self, name: str, reader: _Reader, event_ids: list[str], verdict: Verdict
    ) -> None:
        came = {each.event_id for each in reader.received}
        for event_id in event_ids:
            event = self._published[event_id]
            if event.begun_ms < reader.ready_ms:
                continue
            if self._must(reader.identity, "see", event.level, event.begun_ms):
                verdict.expected += 1
                if event_id not in came:
                    verdict.lost.append((name, event_id))

    def _holding(self, identity: str, right: Right, from_ms: float, to_ms: float) -> list[_Grant]:
        """The grants that may have held at a moment of a time."""
        grants = self._grants[identity, right]
        ends = [*(grant.sure_ms for grant in grants[1:]), inf]
        return [
            grant
            for grant, end_ms in zip(grants, ends, strict=True)
            if grant.begun_ms <= to_ms and from_ms <= end_ms
        ]

    def _may(self, identity: str, right: Right, level: int, from_ms: float, to_ms: float) -> bool:
        """Whether it may have been permitted at some moment of a time."""
        return any(level < grant.bound for grant in self._holding(identity, right, from_ms, to_ms))

    def _must(self, identity: str, right: Right, level: int, from_ms: float) -> bool:
        """Whether it was permitted from a moment on without a break."""
        holding = self._holding(identity, right, from_ms, inf)
        return bool(holding) and all(level < grant.bound for grant in holding)
