"""`peersub node`, `pub`, `sub` and `status`: the commands of a live network and their options."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["OVERLAY_HELP", "add_network_commands"]

NODE_BY_DEFAULT = "127.0.0.1:7001"
OVERLAY_HELP = "chord (default), tree, flood, containment, similarity, dag, reach."
"""The names of the registry, which is not loaded for a help text."""

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes.")]
Node = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", envvar="PEERSUB_NODE", help="The node to talk to."),
]
Tls = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        envvar="PEERSUB_TLS",
        help="A certificate, NAME.pem; NAME.key and ca.pem are beside it.",
    ),
]


def add_network_commands(app: typer.Typer) -> None:
    """Give the app the commands of a live network."""
    app.command("node")(_node)
    app.command("pub")(_pub)
    app.command("sub")(_sub)
    app.command("status")(_status)


def _node(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="PEERSUB_NODE_LISTEN",
            help=f"Where others connect; port 0 is a free one; default: {NODE_BY_DEFAULT}.",
        ),
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="PEERSUB_NODE_JOIN",
            help="A node to join, there or not yet; may be repeated, and name this node itself.",
        ),
    ] = None,
    overlay: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="PEERSUB_NODE_OVERLAY",
            help=OVERLAY_HELP,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            envvar="PEERSUB_NODE_DATA",
            help="Where the node keeps its word over restarts.",
        ),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            envvar="PEERSUB_NODE_STORE",
            help="A bound of the store, such as log_bytes_max=4000000000; may be repeated.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            envvar="PEERSUB_NODE_LIMIT",
            help="A limit of clients and connections, such as client_bytes_max=10000000; may be "
            "repeated. docs/limits.md lists them.",
        ),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            "--copies",
            envvar="PEERSUB_NODE_COPIES",
            help="Nodes on whose disks an event is for a durable subscription before it is "
            "acknowledged (2); the same on all nodes. A node that is alone needs 1.",
        ),
    ] = None,
    away_max: Annotated[
        float | None,
        typer.Option(
            "--away-max",
            envvar="PEERSUB_NODE_AWAY_MAX",
            help="Hours after which publishers do not wait for durable subscriptions any more "
            "whose node is away (24).",
        ),
    ] = None,
    no_fsync: Annotated[
        bool | None,
        typer.Option(
            "--no-fsync",
            envvar="PEERSUB_NODE_NO_FSYNC",
            help="Acknowledge before the disk has it: a power failure loses the last seconds.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            envvar="PEERSUB_NODE_SET",
            help="A setting of the overlay; may be repeated.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="PEERSUB_NODE_CONFIG",
            help="TOML with the names of these options; flags and environment come first.",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="PEERSUB_NODE_ADVERTISE",
            help="The address by which others reach the node, if not where it listens.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="PEERSUB_NODE_NETWORK",
            help="Nodes of other networks are refused; default: peersub.",
        ),
    ] = None,
    tls: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="PEERSUB_NODE_TLS",
            help="The node's certificate, NAME.pem; NAME.key and ca.pem are beside it.",
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", envvar="PEERSUB_NODE_TLS_KEY", help="Its key, if it is elsewhere."
        ),
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", envvar="PEERSUB_NODE_TLS_CA", help="ca.pem, if it is elsewhere."
        ),
    ] = None,
    permissions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", envvar="PEERSUB_NODE_PERMISSIONS", help="What clients may do (TOML)."
        ),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure",
            envvar="PEERSUB_NODE_INSECURE",
            help="Listen on addresses that others reach, without TLS.",
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="PEERSUB_NODE_TRACE",
            help="Write all that happens, as JSON Lines; for peersub explain.",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            envvar="PEERSUB_NODE_LOG_LEVEL",
            help="Log from debug, info (default), warning or error on, to standard error.",
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORM", envvar="PEERSUB_NODE_LOG_FORMAT", help="text (default) or json."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Say {"listening": …} and {"member": …} on stdout.')
    ] = False,
) -> int:
    """Run a node of a live network until SIGTERM or Ctrl-C."""
    from peersub.cli.node_command import run_node
    from peersub.cli.node_options import NodeOptions

    options = NodeOptions(
        listen=listen,
        join=tuple(join) if join else None,
        overlay=overlay,
        data=data,
        store=tuple(store) if store else None,
        limit=tuple(limit) if limit else None,
        no_fsync=no_fsync,
        copies=copies,
        away_max=away_max,
        set=tuple(settings) if settings else None,
        advertise=advertise,
        network=network,
        tls=tls,
        tls_key=tls_key,
        tls_ca=tls_ca,
        permissions=permissions,
        insecure=insecure,
        trace=trace,
        log_level=log_level,
        log_format=log_format,
    )
    return run_node(options, config, as_json=as_json)


def _pub(
    event: Annotated[
        str | None,
        typer.Argument(
            metavar="[JSON]", help="An event; default, and -: one per line of standard input."
        ),
    ] = None,
    node: Node = NODE_BY_DEFAULT,
    tls: Tls = None,
    count: Annotated[
        int | None,
        typer.Option(min=0, help="How often the event, or how many lines; default: once, and all."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="EVENTS", help="Events per second at most."),
    ] = None,
    delivery: Annotated[
        str, typer.Option(metavar="PROMISE", help="best_effort or at_least_once.")
    ] = "best_effort",
    event_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Names the event; default: random."),
    ] = None,
    id_attribute: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The attribute that has the id of each event."),
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Publish as this publisher: the same id again, also later, is the same event.",
        ),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The body of the event, such as an XML document."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> int:
    """Publish an event, or one per line of standard input."""
    from peersub.cli.failures import CommandError
    from peersub.cli.pub_command import PubOptions, run_pub

    if rate is not None and not rate > 0:
        raise CommandError("--rate: more than 0 events per second.")
    return run_pub(
        PubOptions(
            node=node,
            tls=tls,
            event=event,
            count=count,
            rate=rate,
            delivery=delivery,
            id=event_id,
            id_attribute=id_attribute,
            publisher=publisher,
            body=body,
            quiet=quiet,
            as_json=as_json,
        )
    )


def _sub(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="What is wanted.")],
    node: Node = NODE_BY_DEFAULT,
    tls: Tls = None,
    xpath: Annotated[
        bool, typer.Option("--xpath", help="The filter is an XPath pattern over the bodies.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many events; default: never.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="End after so long; code 3 if too few came."),
    ] = None,
    durable: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The node goes on while nobody takes the events; see --since."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Where a durable one begins: a position, an ISO time, earliest; default: "
            "where it stopped.",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print bodies as they are; attributes where none is.")
    ] = False,
    quiet: Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With id, hops and position, and the body.")
    ] = False,
) -> int:
    """Subscribe, and print the attributes of each event as a line of JSON."""
    from peersub.cli.sub_command import SubOptions, run_sub

    return run_sub(
        SubOptions(
            node=node,
            tls=tls,
            filter=text,
            xpath=xpath,
            count=count,
            wait=wait,
            durable=durable,
            since=since,
            raw=raw,
            quiet=quiet,
            as_json=as_json,
        )
    )


def _status(node: Node = NODE_BY_DEFAULT, tls: Tls = None, as_json: Json = False) -> int:
    """Show a node: its place in the overlay, links, clients, queues, what was dropped."""
    from peersub.cli.status_command import run_status

    return run_status(node, tls, as_json=as_json)
