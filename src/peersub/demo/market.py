"""A small market, drawn from a seed: trades, news about them, and people who want some of both.

Prices differ by symbol, a few symbols make most of the trades, and not every trade has every
attribute: that is what real feeds are like. One seed is one market, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

__all__ = ["Market", "draw_market"]

_VENUES = ("XAMS", "XETR", "XLON", "XNAS", "XNYS", "XTKS")
_SECTORS = ("banks", "chips", "energy", "health", "retail", "transport")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SYMBOLS = 400
_DOCUMENTS = 40


@dataclass(frozen=True, slots=True)
class Market:
    """What was drawn: events, subscriptions with their filters, and a few XML documents."""

    events: list[dict[str, Any]]
    filters: dict[str, str]
    documents: list[str]
    patterns: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Share:
    symbol: str
    sector: str
    price: float


def draw_market(subscriptions: int, events: int, seed: int) -> Market:
    """The market of a seed."""
    random = Random(seed)
    shares = _shares(random)
    return Market(
        events=[_trade(random, shares, number) for number in range(events)],
        filters={f"s{number}": _wish(random, shares) for number in range(subscriptions)},
        documents=[_story(random, shares) for _ in range(_DOCUMENTS)],
        patterns={
            "urgent": "/story[@urgency <= 2]",
            "chips": "/story[meta/sector = 'chips']//p",
            "ledes": "//p[@lede]",
        },
    )


def _shares(random: Random) -> list[_Share]:
    symbols: dict[str, None] = {}
    while len(symbols) < _SYMBOLS:
        symbols["".join(random.choices(_LETTERS, k=random.choice((3, 4))))] = None
    return [
        _Share(symbol, random.choice(_SECTORS), round(random.lognormvariate(4, 1), 2))
        for symbol in symbols
    ]


# The first shares are traded, and watched, far more often than the last.
_POPULARITY = list(accumulate(1 / (rank + 10) for rank in range(_SYMBOLS)))


def _chosen(random: Random, shares: list[_Share]) -> _Share:
    return random.choices(shares, cum_weights=_POPULARITY)[0]


def _trade(random: Random, shares: list[_Share], number: int) -> dict[str, Any]:
    share = _chosen(random, shares)
    price = round(share.price * random.gauss(1, 0.03), 2)
    trade: dict[str, Any] = {
        "id": f"t{number}",
        "symbol": share.symbol,
        "sector": share.sector,
        "venue": random.choice(_VENUES),
        "price": price,
        "quantity": int(random.lognormvariate(5, 1.5)) + 1,
        "buy": random.random() < 0.5,
    }
    if random.random() < 0.6:
        spread = round(price * random.uniform(0.0002, 0.01), 4)
        trade["quote"] = {"bid": round(price - spread, 4), "ask": round(price + spread, 4)}
    if random.random() < 0.1:
        trade["note"] = random.choice(("block trade", "odd lot", "late report", "halted"))
    return trade


def _wish(random: Random, shares: list[_Share]) -> str:
    share = _chosen(random, shares)
    high, low = share.price * random.uniform(1, 1.08), share.price * random.uniform(0.92, 1)
    quantity = random.choice((500, 1_000, 2_000, 5_000))
    venues = ", ".join(f"'{venue}'" for venue in sorted(random.sample(_VENUES, 2)))
    wishes = (
        f"symbol = '{share.symbol}' AND price > {high:.2f}",
        f"symbol = '{share.symbol}' AND price BETWEEN {low:.2f} AND {share.price:.2f} AND buy",
        f"symbol = '{share.symbol}' AND quantity >= {quantity} AND venue IN ({venues})",
        f"sector = '{share.sector}' AND quantity > {quantity * 10} AND NOT buy",
        f"symbol LIKE '{share.symbol[:2]}%' AND quote.ask < {low:.2f}",
        f"note IS NOT NULL AND symbol = '{share.symbol}' AND price < {high:.2f}",
        f"(symbol = '{share.symbol}' OR sector = '{share.sector}') AND note LIKE '%block%'",
    )
    return random.choices(wishes, weights=(30, 20, 20, 8, 8, 8, 6))[0]


def _story(random: Random, shares: list[_Share]) -> str:
    share = _chosen(random, shares)
    lede = ' lede="true"' if random.random() < 0.5 else ""
    paragraph = f"<p{lede}>{share.symbol} moves.</p>"
    return (
        f'<story urgency="{random.randint(1, 8)}"><meta><sector>{share.sector}</sector>'
        f"<symbol>{share.symbol}</symbol></meta><body>{paragraph}</body></story>"
    )
