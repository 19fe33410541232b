"""`peersub status`: how a running node sees itself and its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from peersub.cli.failures import ExitCode
from peersub.cli.light_client import with_node
from peersub.cli.output import print_json
from peersub.events.printable import escape_line

if TYPE_CHECKING:
    from rich.console import Console

    from peersub.client import NodeClient

__all__ = ["run_status"]


def run_status(address: str, tls: str | None, *, as_json: bool) -> int:
    """Run the command; the result is its exit code."""

    async def work(node: NodeClient) -> int:
        status = await node.status()
        # This command is a client, too, but not one that anybody asked about.
        clients = status.get("clients", {})
        status["clients"] = {
            label: client for label, client in clients.items() if client["name"] != _OWN_NAME
        }
        if as_json:
            print_json(status)
        else:
            _show(status)
        return ExitCode.DONE

    return with_node(address, tls, _OWN_NAME, work)


_OWN_NAME = "peersub status"


def _show(status: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    overlay = status.get("overlay", {})
    console.print(f"node {escape_line(status['node'])} of the network {status['network']!r}")
    _show_figures(console, status)
    rows = {name: _short(value) for name, value in overlay.items() if _is_plain(value)}
    rows["subscriptions"] = str(status.get("subscriptions", 0))
    rows["durable subscriptions"] = str(len(status.get("durable_subscriptions", ())))
    if "in_memory" in status.get("mirrors", {}):
        in_memory = status["mirrors"]["in_memory"]
        rows["kept"] = "in memory, until the node ends" if in_memory else "on disk"
    rows["publications under way"] = str(status.get("publications_under_way", 0))
    _table(console, "overlay", ("what", "value"), [[name, rows[name]] for name in rows])
    _show_links(console, status)
    clients = status.get("clients", {})
    columns = ("subscriptions", "queued_events", "dropped_events", "publications_under_way")
    _table(
        console,
        "clients",
        ("client", "name", "identity", "subscriptions", "queued", "dropped", "publishing"),
        [
            [label, client["name"], client["identity"], *(f"{client[c]:,}" for c in columns)]
            for label, client in clients.items()
        ],
    )
    counters = status.get("counters", {})
    _table(console, "counters", ("what", "times"), [[k, f"{v:,}"] for k, v in counters.items()])


def _show_figures(console: Console, status: Mapping[str, Any]) -> None:
    """Version, uptime, rates, memory, and who is behind; a client without the right sees none."""
    if "version" not in status:
        return
    events, memory = status["events"], status["memory_bytes"]
    links = status["connections"]["links"].values()
    clients = status.get("clients", {}).values()
    queued = sum(link["queued_bytes"] for link in links)
    queued += sum(client["queued_bytes"] for client in clients)
    behind = [name for names in status.get("behind", {}).values() for name in names]
    rows = [
        ["version", status["version"]],
        ["uptime", f"{status['uptime_s']:,} s"],
        ["events published", f"{events['published']:,} ({events['published_per_second']:,.1f}/s)"],
        ["events delivered", f"{events['delivered']:,} ({events['delivered_per_second']:,.1f}/s)"],
        ["memory", "unknown" if memory is None else f"{memory / 1_048_576:,.1f} MiB"],
        ["queued bytes", f"{queued:,}"],
        ["behind", ", ".join(behind) or "nobody"],
    ]
    _table(console, "node", ("what", "value"), rows)


def _show_links(console: Console, status: Mapping[str, Any]) -> None:
    connections = status.get("connections", {}).get("links", {})
    columns = ("bytes_in", "bytes_out", "queued_bytes", "events_dropped")
    rows = []
    for node, link in sorted(status.get("links", {}).items()):
        connection = connections.get(node, {})
        state = str(link.get("state", "")) if isinstance(link, Mapping) else str(link)
        rows.append([node, state, *(f"{connection.get(column, 0):,}" for column in columns)])
    heads = ("link to", "state", "bytes in", "bytes out", "queued", "dropped")
    _table(console, "links", heads, rows)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str | int) for item in value)
    return isinstance(value, str | int | float)


def _short(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _table(console: Console, title: str, heads: tuple[str, ...], rows: list[list[str]]) -> None:
    from rich.table import Table

    if not rows:
        return
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, head in enumerate(heads):
        is_number = all(row[place].replace(",", "").isdigit() for row in rows)
        table.add_column(head, justify="right" if is_number and place else "left")
    for row in rows:
        table.add_row(*map(escape_line, row))
    console.print()
    console.print(table)
