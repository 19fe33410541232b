"""The demo's report: plain text that reads well, with colour on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from peersub.demo.run import DemoResult

__all__ = ["show"]


def show(result: DemoResult, console: Console | None = None) -> None:
    """Print the report."""
    out = console or Console(highlight=False, soft_wrap=True)
    _show_languages(result, out)
    _show_figures(result, out)
    _show_verdict(result, out)


def _show_languages(result: DemoResult, out: Console) -> None:
    shown = result.languages
    out.print("[bold]1. A filter says what is wanted[/bold]")
    out.print(f"   {escape(shown.filter)}")
    for event, matches in shown.matches:
        mark = "[green]matches[/green]" if matches else "[dim]does not[/dim]"
        out.print(f"   {escape(json.dumps(event)):<58} {mark}")
    out.print("   A mistake is shown where it is:")
    for line in shown.refusal.splitlines()[:4]:
        out.print(f"   [dim]{escape(line)}[/dim]")
    out.print()
    out.print("[bold]2. Filters are compared, not only evaluated[/bold]")
    for general, specific, covers in shown.covers:
        mark = "[green]covers[/green]" if covers else "[dim]does not cover[/dim]"
        out.print(f"   {escape(general)}   {mark}   {escape(specific)}")
    out.print(
        f"   Of {result.filters_to_route:,} subscriptions, {result.filters_after_covering:,} "
        "are not covered by others: only those need to be known elsewhere."
    )
    out.print()


def _show_figures(result: DemoResult, out: Console) -> None:
    out.print("[bold]3. Every event against every subscription[/bold]")
    figures = (
        (f"{result.subscriptions:,}", "subscriptions"),
        (f"{result.events:,}", "events (JSON Lines, nested, with missing attributes)"),
        (f"{result.deliveries:,}", "deliveries"),
        (f"{result.build_seconds:.2f} s", "to read the subscriptions and build the index"),
        (f"{result.match_seconds:.2f} s", "to read the events, match and write the deliveries"),
    )
    for figure, meaning in figures:
        out.print(f"   {figure:>10}  {meaning}")
    counts = ", ".join(f"{name} {count}" for name, count in result.document_deliveries.items())
    out.print(f"   XPath patterns over {result.documents} XML documents: {counts}.")
    out.print()


def _show_verdict(result: DemoResult, out: Console) -> None:
    out.print("[bold]4. The results are checked[/bold]")
    out.print(
        f"   {result.events_checked} events x {result.subscriptions:,} filters asked one by one: "
        + ("the same deliveries." if not result.differences else "THEY DIFFER:")
    )
    for difference in result.differences:
        out.print(f"   [red]{escape(difference)}[/red]")
    seen = "yes" if result.update_is_seen_at_once else "NO"
    out.print(f"   A new subscription gets the very next event, a removed one none: {seen}.")
    out.print()
    verdict = "[green]All as it should be[/green]" if result.ok else "[red]Something is wrong[/red]"
    out.print(f"{verdict}, in {result.seconds:.1f} s with seed {result.seed}. Next:")
    out.print("   peersub match --subscriptions subscriptions.jsonl --events events.jsonl")
    out.print('   peersub filter explain "price > 10" --event \'{"price": 12.5}\'')
