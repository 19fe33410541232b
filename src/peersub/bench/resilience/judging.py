"""Did each subscriber get each acknowledged event once, and how long did it wait?

By brute force, from what the processes told: subscriptions are `symbol = 'sK'`, events say theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Judgement", "Notes"]


@dataclass(slots=True)
class Judgement:
    """What a trial showed."""

    expected: int = 0
    delivered: int = 0
    missed: list[tuple[str, str]] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    spurious: list[tuple[str, str]] = field(default_factory=list)
    acknowledged: int = 0
    failed: int = 0
    latency_ms_p50: float = 0.0
    pauses_ms: dict[str, float] = field(default_factory=dict)
    """Per fault: the longest that an event for a living subscriber was under way after it."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was missed, doubled, or delivered to somebody who did not want it."""
        return not self.missed and not self.doubled and not self.spurious

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "expected": self.expected,
            "delivered": self.delivered,
            "missed": len(self.missed),
            "doubled": len(self.doubled),
            "spurious": len(self.spurious),
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "latency_ms_p50": round(self.latency_ms_p50, 2),
            "pauses_ms": {name: round(pause) for name, pause in self.pauses_ms.items()},
        }


@dataclass(slots=True)
class _Subscriber:
    symbol: str
    ready_ms: float | None = None
    gone_ms: float | None = None
    stood_still: bool = False
    got: list[tuple[str, float]] = field(default_factory=list)


class Notes:
    """Collects what happened, and judges it."""

    def __init__(self, symbols: int) -> None:
        self._symbols = symbols
        self._subscribers: dict[str, _Subscriber] = {}
        self._published: dict[str, tuple[float, float, str | None]] = {}
        self._faults: list[tuple[str, float, float]] = []

    def subscribed(self, name: str, symbol: str) -> None:
        """A subscription is about to be made."""
        self._subscribers[name] = _Subscriber(symbol)

    def ready(self, name: str, at_ms: float) -> None:
        """It is ready: from now on it must miss nothing."""
        self._subscribers[name].ready_ms = at_ms

    def is_ready(self, name: str) -> bool:
        """Whether it was."""
        return self._subscribers[name].ready_ms is not None

    def gone(self, name: str, at_ms: float) -> None:
        """Its node was killed: what it missed from now on is nobody's fault."""
        self._subscribers[name].gone_ms = at_ms

    def stood_still(self, name: str) -> None:
        """Its node was stopped for a while: it must miss nothing, but may get it late."""
        self._subscribers[name].stood_still = True

    def got(self, name: str, event_id: str, at_ms: float) -> None:
        """A delivery."""
        self._subscribers[name].got.append((event_id, at_ms))

    def ended(self, event_id: str, begun_ms: float, ended_ms: float, failure: str | None) -> None:
        """A publication has ended."""
        self._published[event_id] = (begun_ms, ended_ms, failure)

    def fault(self, name: str, begin_ms: float, end_ms: float) -> None:
        """Between these times subscribers may have noticed a fault."""
        self._faults.append((name, begin_ms, end_ms))

    @property
    def ended_count(self) -> int:
        """Publications that have ended."""
        return len(self._published)

    def judge(self) -> Judgement:
        """Compare with what should have been."""
        judgement = Judgement()
        by_symbol: dict[str, list[str]] = defaultdict(list)
        for event_id, (_, _, failure) in self._published.items():
            if failure is None:
                judgement.acknowledged += 1
                by_symbol[self._symbol(event_id)].append(event_id)
            else:
                judgement.failed += 1
        pauses = dict.fromkeys((name for name, _, _ in self._faults), 0.0)
        latencies: list[float] = []
        for name, subscriber in self._subscribers.items():
            counts = Counter(event_id for event_id, _ in subscriber.got)
            judgement.delivered += len(subscriber.got)
            judgement.doubled += [(name, each) for each, times in counts.items() if times > 1]
            judgement.spurious += [
                (name, each) for each in counts if self._symbol(each) != subscriber.symbol
            ]
            if subscriber.ready_ms is None or subscriber.gone_ms is not None:
                continue
            times = dict(reversed(subscriber.got))
            for event_id in by_symbol[subscriber.symbol]:
                begun_ms = self._published[event_id][0]
                if begun_ms < subscriber.ready_ms:
                    continue
                judgement.expected += 1
                if event_id not in times:
                    judgement.missed.append((name, event_id))
                    continue
                if subscriber.stood_still:
                    continue
                latency = times[event_id] - begun_ms
                latencies.append(latency)
                for fault, begin_ms, end_ms in self._faults:
                    if begun_ms <= end_ms and times[event_id] >= begin_ms:
                        waited = times[event_id] - max(begun_ms, begin_ms)
                        pauses[fault] = max(pauses[fault], waited)
        latencies.sort()
        judgement.latency_ms_p50 = latencies[len(latencies) // 2] if latencies else 0.0
        judgement.pauses_ms = pauses
        return judgement

    def _symbol(self, event_id: str) -> str:
        number = int(event_id.rpartition("-")[2])
        return f"s{number * 7919 % self._symbols}"
