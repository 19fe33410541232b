"""What is subscribed and published in a simulation: by number, so that more of it changes nothing.

`SmallContent` is made for finding mistakes: few attributes with few values, so that filters cover,
equal and overlap each other all the time, and each event matches some. `SymbolContent` is made for
large networks: each filter is about one of a few symbols, so that tables of thousands of filters
have coverers, and an event is wanted by a few in a hundred. `DocumentContent`, in a module of its
own, draws XML documents and tree patterns from a schema. `ListedContent` holds what a file or a
generator gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Protocol

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.settings import SettingsError

__all__ = [
    "WORKLOAD_KINDS",
    "Content",
    "ListedContent",
    "SmallContent",
    "SymbolContent",
    "WorkloadChoice",
    "content_for",
]

WORKLOAD_KINDS = ("small", "symbols", "attributes", "documents", "given")
EVENTS_GENERATED = 10_000
"""Events of the attribute workload; a run that publishes more begins again under new names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChoice:
    """Which subscriptions and events.

    Args:
        kind: `small` (few values, much overlap), `symbols` (few symbols, few of them popular),
            `attributes` (the standard matching workload), `documents` (XML and tree patterns), or
            `given` (the caller brings them, from files).
        values: of `small` and `symbols`: how many values a numeric attribute has.
        xpath_share: of `small`: the share of subscriptions that are XPath patterns.
        share_matched: of `attributes`: the mean share of subscriptions that an event matches.
        skew: of `attributes`: `uniform` or `zipf`.
        schema: of `documents`: the file of an XSD or a DTD; the project's own news by default.
        root: the element that documents begin with, if the schema leaves that open.
        tags_mean, levels_max, optional_share, repeats_max, attribute_share: of `documents`, as
            `workloads.xml.DocumentSettings` has them.
        height_min, height_max, wildcard_share, descendant_share, branch_share, zipf_exponent,
            condition_share: of its patterns, as `workloads.xml.PatternSettings` has them.

    Raises:
        SettingsError: a value is not allowed.
    """

    kind: str = "small"
    values: int = 20
    xpath_share: float = 0.0
    share_matched: float = 0.01
    skew: str = "uniform"
    schema: str = ""
    root: str = ""
    tags_mean: int = 100
    levels_max: int = 10
    optional_share: float = 0.5
    repeats_max: int = 5
    attribute_share: float = 0.3
    height_min: int = 2
    height_max: int = 10
    wildcard_share: float = 0.1
    descendant_share: float = 0.1
    branch_share: float = 0.1
    zipf_exponent: float = 1.0
    condition_share: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in WORKLOAD_KINDS:
            raise SettingsError(f"kind is one of {', '.join(WORKLOAD_KINDS)}, not {self.kind!r}")
        if self.values < 2:
            raise SettingsError(f"values is at least 2, not {self.values}")
        if not 0 <= self.xpath_share <= 1:
            raise SettingsError(f"xpath_share is a share from 0 to 1, not {self.xpath_share}")
        if not 0 < self.share_matched <= 1:
            raise SettingsError(f"share_matched is a share up to 1, not {self.share_matched}")
        if self.skew not in ("uniform", "zipf"):
            raise SettingsError(f"skew is uniform or zipf, not {self.skew!r}")


class Content(Protocol):
    """Subscriptions and events by number."""

    def subscription(self, number: int) -> tuple[str, Filter]:
        """The name and the filter of a subscription."""
        ...

    def event(self, number: int) -> Event:
        """An event; each number has an identifier of its own."""
        ...


class ListedContent:
    """Subscriptions and events from lists. Beyond their end it begins again, under new names."""

    def __init__(
        self, subscriptions: Sequence[tuple[str, Filter]], events: Sequence[Event]
    ) -> None:
        self.subscriptions = subscriptions
        self.events = events

    def subscription(self, number: int) -> tuple[str, Filter]:
        """The name and the filter of a subscription."""
        if not self.subscriptions:
            raise SettingsError("the workload has no subscriptions")
        lap, place = divmod(number, len(self.subscriptions))
        name, wanted = self.subscriptions[place]
        return (f"{name}+{lap}" if lap else name), wanted

    def event(self, number: int) -> Event:
        """An event of the list."""
        if not self.events:
            raise SettingsError("the workload has no events")
        lap, place = divmod(number, len(self.events))
        event = self.events[place]
        return Event(f"{event.id}+{lap}", event.attributes, event.body) if lap else event


class SmallContent:
    """A small world of random filters and events, drawn by number."""

    def __init__(self, seed: int, choice: WorkloadChoice) -> None:
        self._seed = seed
        self._choice = choice

    def subscription(self, number: int) -> tuple[str, Filter]:
        """A filter over `a`, `b` (numbers), `s` (a word) and `r.x`, or over a document."""
        random = Random(f"{self._seed}/subscription/{number}")
        if random.random() < self._choice.xpath_share:
            return f"s{number}", Filter.xpath(_pattern(random))
        return f"s{number}", Filter(_filter_text(random, self._choice.values))

    def event(self, number: int) -> Event:
        """An event that has most of the attributes, and a document if there are patterns."""
        random = Random(f"{self._seed}/event/{number}")
        values = self._choice.values
        attributes: dict[str, object] = {"a": random.randrange(values)}
        if random.random() < 0.8:
            attributes["b"] = random.randrange(values)
        if random.random() < 0.8:
            attributes["s"] = random.choice(_WORDS)
        if random.random() < 0.3:
            attributes["r"] = {"x": random.randrange(values)}
        body = _document(random).encode() if self._choice.xpath_share else None
        return Event(f"e{number}", attributes, body)


SYMBOLS = 64
"""The largest tables have about as many rows: each symbol has a filter that covers the others."""
_POPULARITY = list(accumulate(1 / rank for rank in range(1, SYMBOLS + 1)))
"""Zipf's law: the first symbol is in a fifth of the filters and the events."""


class SymbolContent:
    """Trades and who wants them, drawn by number: symbols, with prices and quantities in steps."""

    def __init__(self, seed: int, choice: WorkloadChoice) -> None:
        self._seed = seed
        self._values = choice.values

    def subscription(self, number: int) -> tuple[str, Filter]:
        """All trades of a symbol, or those above a price, below one, or of some quantity."""
        random = Random(f"{self._seed}/subscription/{number}")
        symbol = f"symbol = '{_symbol(random)}'"
        value = random.randrange(1, self._values)
        wish = random.choice(
            (
                "",
                f" AND price >= {value}",
                f" AND price < {value}",
                f" AND price >= {value} AND quantity > {random.choice((1, 10, 100))}",
            )
        )
        return f"s{number}", Filter(symbol + wish)

    def event(self, number: int) -> Event:
        """A trade."""
        random = Random(f"{self._seed}/event/{number}")
        trade = {
            "symbol": _symbol(random),
            "price": random.randrange(self._values),
            "quantity": random.choice((1, 5, 20, 50, 200)),
        }
        return Event(f"e{number}", trade)


def _symbol(random: Random) -> str:
    return f"S{random.choices(range(SYMBOLS), cum_weights=_POPULARITY)[0]:02}"


_WORDS = ("amber", "ash", "birch", "blue", "cedar", "coral")


def _filter_text(random: Random, values: int) -> str:
    parts = [_predicate(random, values) for _ in range(random.choice((1, 1, 2, 2, 3)))]
    return random.choice((" AND ", " AND ", " OR ")).join(parts)


def _predicate(random: Random, values: int) -> str:
    name = random.choice(("a", "a", "b", "r.x"))
    low, high = sorted((random.randrange(values), random.randrange(values)))
    match random.randrange(9):
        case 0 | 1:
            return f"{name} BETWEEN {low} AND {high}"
        case 2:
            return f"{name} >= {low}"
        case 3:
            return f"{name} < {high + 1}"
        case 4:
            return f"{name} = {low}"
        case 5:
            return f"s = '{random.choice(_WORDS)}'"
        case 6:
            return f"s LIKE '{random.choice(_WORDS)[: random.randint(1, 2)]}%'"
        case 7:
            chosen = sorted(random.sample(range(values), min(values, 3)))
            return f"{name} IN ({', '.join(map(str, chosen))})"
        case _:
            return f"{name} IS NOT NULL"


def _pattern(random: Random) -> str:
    word = random.choice(("p", "q", "title"))
    return random.choice(
        (f"/story//{word}", f"/story/body/{word}", "/story[@level = '1']", f"//{word}[@lede]")
    )


def _document(random: Random) -> str:
    word = random.choice(("p", "q", "title"))
    lede = ' lede="1"' if random.random() < 0.5 else ""
    level = random.randint(1, 3)
    return f'<story level="{level}"><body><{word}{lede}>x</{word}></body></story>'


def content_for(choice: WorkloadChoice, seed: int, subscriptions: int) -> Content:
    """The content that is asked for.

    Raises:
        SettingsError: the content has to be given, or cannot be drawn with these parameters.
    """
    if choice.kind == "small":
        return SmallContent(seed, choice)
    if choice.kind == "symbols":
        return SymbolContent(seed, choice)
    if choice.kind == "attributes":
        return _attribute_content(choice, seed, subscriptions)
    if choice.kind == "documents":
        if choice.schema:
            raise SettingsError(
                f"the schema {choice.schema!r} is a file: whoever runs this scenario reads it and "
                "gives the content"
            )
        if choice.root:
            raise SettingsError("root goes with a schema: the project's own begins with `news`")
        # Needs NumPy, which the simulator does without.
        from peersub.simulator.document_content import DocumentContent

        return DocumentContent(seed, choice)
    raise SettingsError("this scenario needs files: give subscriptions and events")


def _attribute_content(choice: WorkloadChoice, seed: int, subscriptions: int) -> ListedContent:
    # Needs NumPy and Arrow, which the simulator does without.
    from peersub.events.arrow import rows_of_table
    from peersub.workloads import WorkloadSettings, generate

    drawn = generate(
        WorkloadSettings(
            subscriptions=max(subscriptions, 1),
            events=EVENTS_GENERATED,
            share_matched=choice.share_matched,
            skew="zipf" if choice.skew == "zipf" else "uniform",
            seed=seed,
        )
    )
    texts = drawn.texts().to_pydict()
    rows = rows_of_table(drawn.events)
    return ListedContent(
        [(name, Filter(text)) for name, text in zip(texts["id"], texts["filter"], strict=True)],
        [Event(f"e{number}", row) for number, row in enumerate(rows)],
    )
