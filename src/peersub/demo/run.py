"""The demo, step by step: draw a market, write its files, match them, check the deliveries.

The files go through the same doors that users have: what works here works with their own.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peersub import Filter, FilterError, FilterSet, Matcher
from peersub.cli.match_command import MatchOptions, match_files
from peersub.cli.output import note, print_json
from peersub.demo.market import Market, draw_market
from peersub.demo.verification import deliveries_by_event, differences, sample_rows

if TYPE_CHECKING:
    from peersub.demo.pipeline import PipelineDemo

__all__ = ["DemoResult", "run_demo", "write_market"]

CHECKED_EVENTS: Final = 100
ROUTED_FILTERS: Final = 1_000
DIFFERENCES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """What the first part shows."""

    filter: str
    canonical: str
    matches: list[tuple[dict[str, Any], bool]]
    covers: list[tuple[str, str, bool]]
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """All that the demo did and found."""

    seed: int
    languages: Languages
    events: int
    subscriptions: int
    deliveries: int
    build_seconds: float
    match_seconds: float
    filters_to_route: int
    filters_after_covering: int
    documents: int
    document_deliveries: dict[str, int]
    update_is_seen_at_once: bool
    events_checked: int
    differences: list[str]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether everything was as it must be."""
        return not self.differences and self.update_is_seen_at_once


def run_demo(
    subscriptions: int, events: int, seed: int, *, pipeline: str | None, as_json: bool
) -> int:
    """Run the demo and print its report; 0 if all results were right, else 1.

    Args:
        subscriptions: of the first part.
        events: likewise.
        seed: draws both markets.
        pipeline: the master of the second part, on Spark; None leaves that out.
        as_json: print one JSON value.
    """
    started = time.perf_counter()
    note("peersub: matching; the first time, the index is compiled for this machine ...")
    market = draw_market(subscriptions, events, seed)
    with tempfile.TemporaryDirectory(prefix="peersub-demo-") as folder:
        result = _demonstrate(market, Path(folder), seed, started)
    if not as_json:
        from peersub.demo.report import show

        show(result)
    second = None if pipeline is None else _pipeline_part(seed, pipeline, as_json=as_json)
    ok = result.ok and (second is None or second.ok)
    if as_json:
        print_json(asdict(result) | {"pipeline": second and asdict(second), "ok": ok})
    return 0 if ok else 1


def _pipeline_part(seed: int, master: str, *, as_json: bool) -> PipelineDemo | None:
    """The part on Spark, where that is installed."""
    if find_spec("pyspark") is None:
        note("peersub: the part on Spark is left out: pip install 'peersub[spark]' brings it")
        return None
    from peersub.demo.pipeline import run_pipeline_demo, show_pipeline_demo

    result = run_pipeline_demo(seed, master=master)
    if not as_json:
        show_pipeline_demo(result)
    return result


def _demonstrate(market: Market, folder: Path, seed: int, started: float) -> DemoResult:
    paths = write_market(market, folder)
    summary = match_files(
        MatchOptions(
            subscriptions=str(paths["subscriptions"]),
            events=str(paths["events"]),
            out=str(paths["deliveries"]),
            quiet=True,
        )
    )
    with paths["deliveries"].open(encoding="utf-8") as lines:
        delivered = deliveries_by_event(lines)
    filters = {name: Filter(text) for name, text in market.filters.items()}
    checked = sample_rows(len(market.events), seed, CHECKED_EVENTS)
    found = differences((market.events[row] for row in checked), filters, delivered)
    counted = sum(map(len, delivered.values()))
    if counted != summary.deliveries:
        found.append(f"{counted:,} deliveries in the file, {summary.deliveries:,} reported")
    routed = dict(list(filters.items())[:ROUTED_FILTERS])
    return DemoResult(
        seed=seed,
        languages=_languages(),
        events=summary.events,
        subscriptions=summary.subscriptions,
        deliveries=summary.deliveries,
        build_seconds=summary.build_seconds,
        match_seconds=summary.seconds,
        filters_to_route=len(routed),
        filters_after_covering=_roots(routed),
        documents=len(market.documents),
        document_deliveries=_match_documents(market),
        update_is_seen_at_once=_update_is_seen(filters, market.events[0]),
        events_checked=len(checked),
        differences=found[:DIFFERENCES_SHOWN],
        seconds=time.perf_counter() - started,
    )


def write_market(market: Market, folder: Path) -> dict[str, Path]:
    """The market as files, as any program would write them."""
    paths = {name: folder / f"{name}.jsonl" for name in ("events", "subscriptions", "deliveries")}
    with paths["events"].open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(event) + "\n" for event in market.events)
    with paths["subscriptions"].open("w", encoding="utf-8") as stream:
        stream.writelines(
            json.dumps({"id": name, "filter": text}) + "\n" for name, text in market.filters.items()
        )
    return paths


def _languages() -> Languages:
    wanted = Filter("symbol = 'ACME' AND (price > 10 OR quote.ask BETWEEN 9 AND 10)")
    events: list[dict[str, Any]] = [
        {"symbol": "ACME", "price": 12.5},
        {"symbol": "ACME", "price": 8, "quote": {"ask": 9.5}},
        {"symbol": "ACME"},
    ]
    pairs = [
        ("price > 10", "price > 20 AND symbol = 'ACME'"),
        ("price > 10", "price >= 10"),
        ("symbol LIKE 'AC%'", "symbol IN ('ACME', 'ACE')"),
    ]
    return Languages(
        filter="symbol = 'ACME' AND (price > 10 OR quote.ask BETWEEN 9 AND 10)",
        canonical=wanted.text,
        matches=[(event, wanted.matches(event)) for event in events],
        covers=[(general, specific, _covers(general, specific)) for general, specific in pairs],
        refusal=_refusal("price > 10 AND symbol = ACME"),
    )


def _covers(general: str, specific: str) -> bool:
    return Filter(general).covers(Filter(specific))


def _refusal(text: str) -> str:
    try:
        Filter(text)
    except FilterError as error:
        return str(error)
    raise AssertionError(f"{text!r} should have been refused")


def _roots(filters: dict[str, Filter]) -> int:
    """How many filters are left when those that others cover are taken away."""
    routed = FilterSet[str]()
    for name, one in filters.items():
        routed.add(name, one)
    return len(list(routed.roots()))


def _match_documents(market: Market) -> dict[str, int]:
    matcher = Matcher()
    for name, pattern in market.patterns.items():
        matcher.add(name, Filter.xpath(pattern))
    counts = dict.fromkeys(market.patterns, 0)
    for document in market.documents:
        for name in matcher.match(document):
            counts[name] += 1
    return counts


def _update_is_seen(filters: dict[str, Filter], event: dict[str, Any]) -> bool:
    """A subscription gets the next event after it was added, and none after it was removed."""
    matcher = Matcher()
    for name, one in list(filters.items())[:ROUTED_FILTERS]:
        matcher.add(name, one)
    matcher.add("new", Filter(f"symbol = '{event['symbol']}'"))
    seen = "new" in matcher.match(event)
    matcher.remove("new")
    return seen and "new" not in matcher.match(event)
