"""What `peersub bench network` sends and who wants it, and the answer that every run is held to.

An event has 8 attributes and, as a MessagePack map, exactly `payload_bytes`. Two kinds of filters:

* `range`: a price interval. No subject says beforehand who wants an event.
* `sym`: `symbol = X AND price >= t`. Half of a symbol's events pass `t` on average, and there are
  so many symbols that the share of all events comes out: 500 for 0.1 %, 50 for 1 %, 5 for 10 %.
  The more symbols, the better for systems with a subject per symbol.

`expected` is brute force over NumPy columns: it knows nothing of filters, matcher or network.
Everything is drawn from the seed, one generator per column: fewer events are the first of more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KINDS",
    "Events",
    "Expected",
    "Subscription",
    "Workload",
    "expected",
    "generate_events",
    "hash_of",
    "hash_of_one",
    "subscriptions_of",
]

KINDS: Final = ("sym", "range")
PAYLOAD_BYTES_MIN: Final = 100
PRICE_MAX: Final = 1_000
TICKS_PER_UNIT: Final = 10_000
"""Prices and bounds have four decimals: equal ones are the same number everywhere."""
_NUMBER_BASE: Final = 1 << 16
"""Events are numbered from here on, so that each number takes as many bytes as the next."""
_TIME_BASE: Final = 1 << 60
_VENUES: Final = np.array(["XNYS", "XNAS", "XLON", "XETR"])
_SIDES: Final = np.array(["B", "S"])
_WORD: Final = (1 << 64) - 1
_THRESHOLDS: Final = (400, 600)
_SHARE_OF_SYMBOL: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of filters at one selectivity, and one size of events.

    Args:
        kind: `sym` or `range`.
        share: of the events that a subscriber wants, on average.
        payload_bytes: of an event as MessagePack.
        subscribers: in all; number `i` is on host `i % hosts`.
        hosts: processes with subscribers.
        seed: of all that is drawn.
    """

    kind: str
    share: float
    payload_bytes: int = PAYLOAD_BYTES_MIN
    subscribers: int = 1_000
    hosts: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no workload {self.kind!r}; there are: {', '.join(KINDS)}")
        if not 0 < self.share <= 0.5:
            raise ValueError("the share of events that a subscriber wants is at most 0.5")
        if self.payload_bytes < PAYLOAD_BYTES_MIN:
            raise ValueError(f"an event has at least {PAYLOAD_BYTES_MIN} bytes")

    @property
    def symbols(self) -> int:
        """How many symbols there are."""
        return max(1, round(_SHARE_OF_SYMBOL / self.share)) if self.kind == "sym" else 500

    @property
    def name(self) -> str:
        """For people.

        >>> Workload(kind="sym", share=0.001).name
        'sym 0.1 %, 100 B'
        """
        return f"{self.kind} {self.share * 100:g} %, {self.payload_bytes:,} B"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscriber's wish: prices from `low` up to, not including, `high`, of one symbol or all."""

    number: int
    host: int
    symbol: int | None
    low: float
    high: float | None

    @property
    def name(self) -> str:
        """Its name in the network."""
        return f"s{self.number}"

    @property
    def text(self) -> str:
        """The filter."""
        if self.symbol is not None:
            return f"symbol = '{symbol_name(self.symbol)}' AND price >= {self.low}"
        return f"price >= {self.low} AND price < {self.high}"


def symbol_name(symbol: int) -> str:
    """Five characters.

    >>> symbol_name(7)
    'S0007'
    """
    return f"S{symbol:04}"


def subscriptions_of(workload: Workload) -> list[Subscription]:
    """All subscribers; no two have the same filter."""
    generator = _generator(workload, "subscriptions")
    count = workload.subscribers
    if workload.kind == "sym":
        first, last = (bound * TICKS_PER_UNIT for bound in _THRESHOLDS)
        lows = (first + generator.choice(last - first, count, replace=False)) / TICKS_PER_UNIT
        symbols: list[int | None] = [*generator.integers(workload.symbols, size=count).tolist()]
        highs: list[float | None] = [None] * count
    else:
        width = round(workload.share * PRICE_MAX * TICKS_PER_UNIT)
        ticks = generator.choice(PRICE_MAX * TICKS_PER_UNIT - width, count, replace=False)
        lows, symbols = ticks / TICKS_PER_UNIT, [None] * count
        highs = [*((ticks + width) / TICKS_PER_UNIT).tolist()]
    return [
        Subscription(number, number % workload.hosts, symbol, low, high)
        for number, (symbol, low, high) in enumerate(
            zip(symbols, lows.tolist(), highs, strict=True)
        )
    ]


@dataclass(frozen=True, slots=True)
class Events:
    """Events as NumPy columns."""

    workload: Workload
    symbols: np.ndarray
    prices: np.ndarray
    sizes: np.ndarray
    venues: np.ndarray
    sides: np.ndarray

    def __len__(self) -> int:
        return len(self.prices)

    @property
    def numbers(self) -> np.ndarray:
        """What tells an event from all others."""
        return np.arange(_NUMBER_BASE, _NUMBER_BASE + len(self))

    @property
    def note(self) -> str:
        """The attribute that makes an event as large as it has to be."""
        without = {**self.attributes(0, 1, note="")[0]}
        missing = self.workload.payload_bytes - len(msgspec.msgpack.encode(without))
        for header in (0, 1, 2):  # a longer text has a longer length before it
            note = "n" * (missing - header)
            if len(msgspec.msgpack.encode({**without, "note": note})) == (
                self.workload.payload_bytes
            ):
                return note
        return "n" * missing

    def attributes(self, start: int, stop: int, note: str | None = None) -> list[dict[str, Any]]:
        """Events one by one."""
        note = self.note if note is None else note
        numbers = self.numbers[start:stop].tolist()
        return [
            {
                "symbol": symbol_name(symbol),
                "price": price,
                "size": size,
                "number": number,
                "venue": venue,
                "side": side,
                "time": _TIME_BASE,
                "note": note,
            }
            for symbol, price, size, number, venue, side in zip(
                self.symbols[start:stop].tolist(),
                self.prices[start:stop].tolist(),
                self.sizes[start:stop].tolist(),
                numbers,
                _VENUES[self.venues[start:stop]].tolist(),
                _SIDES[self.sides[start:stop]].tolist(),
                strict=True,
            )
        ]

    def messages(self, start: int, stop: int) -> list[bytes]:
        """Events as MessagePack, as somebody without columns sends them."""
        encode = msgspec.msgpack.Encoder().encode
        return [encode(event) for event in self.attributes(start, stop)]

    def table(self) -> pa.Table:
        """All events in columns."""
        import pyarrow as pa

        count = len(self)
        names = pa.array([symbol_name(number) for number in range(self.workload.symbols)])
        return pa.table(
            {
                "symbol": names.take(pa.array(self.symbols)),
                "price": pa.array(self.prices),
                "size": pa.array(self.sizes),
                "number": pa.array(self.numbers),
                "venue": pa.array(_VENUES.tolist()).take(pa.array(self.venues)),
                "side": pa.array(_SIDES.tolist()).take(pa.array(self.sides)),
                "time": pa.array(np.full(count, _TIME_BASE)),
                "note": pa.repeat(pa.scalar(self.note), count),
            }
        )


def generate_events(workload: Workload, count: int) -> Events:
    """The first events of the workload."""

    def integers(column: str, low: int, high: int) -> np.ndarray:
        return _generator(workload, column).integers(low, high, size=count)

    return Events(
        workload,
        integers("symbol", 0, workload.symbols),
        integers("price", 0, PRICE_MAX * TICKS_PER_UNIT) / TICKS_PER_UNIT,
        integers("size", 256, 1 << 16),
        integers("venue", 0, len(_VENUES)),
        integers("side", 0, len(_SIDES)),
    )


def hash_of(numbers: np.ndarray) -> np.ndarray:
    """32 mixed bits of each event's number (splitmix64): sums of them tell sets of events apart."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)).astype(np.int64)


def hash_of_one(number: int) -> int:
    """The same for one event, without the cost of an array.

    >>> [hash_of_one(number) for number in (0, 65_536)] == hash_of(np.array([0, 65_536])).tolist()
    True
    """
    mixed = (number + 0x9E3779B97F4A7C15) & _WORD
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _WORD
    return (mixed ^ (mixed >> 31)) >> 32


@dataclass(frozen=True, slots=True)
class Expected:
    """Per subscriber: how many events, and the sum of their hashes, which ignores order."""

    counts: np.ndarray
    checksums: np.ndarray

    def of_host(self, workload: Workload, host: int) -> int:
        """How many deliveries a host must see."""
        return int(self.counts[host :: workload.hosts].sum())


def expected(events: Events, subscriptions: list[Subscription], count: int) -> Expected:
    """Who gets what of the first `count` events: each subscriber asked about each event."""
    prices, symbols = events.prices[:count], events.symbols[:count]
    hashes = hash_of(events.numbers[:count])
    counts = np.zeros(len(subscriptions), np.int64)
    checksums = np.zeros(len(subscriptions), np.int64)
    for place, wish in enumerate(subscriptions):
        wanted = prices >= wish.low
        if wish.high is not None:
            wanted &= prices < wish.high
        if wish.symbol is not None:
            wanted &= symbols == wish.symbol
        counts[place] = np.count_nonzero(wanted)
        checksums[place] = hashes[wanted].sum()
    return Expected(counts, checksums)


def _generator(workload: Workload, purpose: str) -> np.random.Generator:
    """A generator of its own per purpose: no column depends on how long another one is."""
    words = [workload.seed, workload.symbols, *purpose.encode()]
    return np.random.default_rng(words)
