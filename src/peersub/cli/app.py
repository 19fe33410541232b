"""The commands and their options. Each imports what it needs only when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from peersub.cli.bench_app import bench_app
from peersub.cli.certs_app import certs_app
from peersub.cli.data_app import data_app
from peersub.cli.network_commands import OVERLAY_HELP, add_network_commands
from peersub.cli.pipeline_app import pipeline_app
from peersub.cli.workload_app import workload_app

__all__ = ["app"]

_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    help="Content-based publish/subscribe without brokers.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or unreadable input, 3 time-out, "
    "4 no match or does not cover, 5 finished with rows in quarantine.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
)
filter_app = typer.Typer(
    help="Check, explain and compare filters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
)
app.add_typer(filter_app, name="filter")
app.add_typer(bench_app, name="bench")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(certs_app, name="certs")
app.add_typer(data_app, name="data")
app.add_typer(workload_app, name="workload")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
XPath = Annotated[bool, typer.Option("--xpath", help="The filters are XPath patterns over XML.")]
EventsFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT", help="jsonl, json, csv, parquet, arrow or xml; default: by name."
    ),
]
Records = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Where the events are in a JSON document: features."),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="KINDS", help="Kinds of attributes in CSV and JSON: day:date,price:decimal."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from peersub import __version__

        typer.echo(f"peersub {__version__}")
        raise typer.Exit()


@app.callback()
def _peersub(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; also PEERSUB_DEBUG=1.")
    ] = False,
) -> None:
    """Content-based publish/subscribe without brokers."""


@app.command()
def demo(
    subscriptions: Annotated[int, typer.Option(min=1, help="How many subscriptions.")] = 4_000,
    events: Annotated[int, typer.Option(min=1, help="How many events.")] = 5_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another market.")] = 1,
    pipeline: Annotated[bool, typer.Option(help="With the second part, on Spark.")] = True,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Where Spark runs the second part.")
    ] = "local[*]",
    as_json: Json = False,
) -> int:
    """Run the main job end to end, in process and on Spark, and check the deliveries of both."""
    from peersub.demo.run import run_demo

    where = master if pipeline else None
    return run_demo(subscriptions, events, seed, pipeline=where, as_json=as_json)


@app.command()
def match(
    subscriptions: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="JSON Lines, CSV or Parquet with id and filter or xpath."
        ),
    ],
    events: Annotated[
        str,
        typer.Option(metavar="FILE", help="A file, a folder of .parquet or .xml files, or -."),
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Deliveries: .jsonl, .csv or .parquet; default: stdout."),
    ] = None,
    events_format: EventsFormat = None,
    subscriptions_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="jsonl, json, csv, parquet or arrow.")
    ] = None,
    records: Records = None,
    schema: Schema = None,
    body_column: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The column with the XML document that XPath patterns read."
        ),
    ] = "body",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without rows that cannot be used; exit 5.")
    ] = False,
    quarantine: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where skipped rows go, as JSON Lines; default: stderr."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for matching; default: one per processor.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary, no warnings.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Summary as JSON: on stdout if --out is given, else stderr."),
    ] = False,
) -> int:
    """Match every event of a file against every subscription of another."""
    from peersub.cli.match_command import MatchOptions, run_match

    return run_match(
        MatchOptions(
            subscriptions=subscriptions,
            events=events,
            out=out,
            events_format=events_format,
            subscriptions_format=subscriptions_format,
            records=records,
            schema=schema,
            body_column=body_column,
            skip_bad=skip_bad,
            quarantine=quarantine,
            threads=threads,
            quiet=quiet,
            as_json=as_json,
        )
    )


@app.command()
def simulate(
    overlay: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=OVERLAY_HELP),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="How many; default: 64.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="One seed is one run; default: 1.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="HOW", help="joined: each node joins (default); converged: all have joined."
        ),
    ] = None,
    subscriptions: Annotated[
        str | None, typer.Option(metavar="FILE", help="Subscriptions, dealt to the nodes in turn.")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Events, published from nodes that are drawn."),
    ] = None,
    subscriptions_count: Annotated[
        int | None, typer.Option(min=0, help="How many; default: one per node, or all of the file.")
    ] = None,
    events_count: Annotated[
        int | None, typer.Option(min=0, help="How many; default: 100, or all of the file.")
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=0, metavar="MS", help="Pause between events; default: 20.")
    ] = None,
    batch_events: Annotated[
        int | None,
        typer.Option(min=1, metavar="COUNT", help="Events published together; default: 1."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Without files: small (default to 4,096 nodes), symbols, attributes, documents "
            "or market.",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of routing: simple, identity, covering, perfect or imperfect."
        ),
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option(
            metavar="PROMISE",
            help="best_effort or at_least_once; default: the first, but the second in a crash.",
        ),
    ] = None,
    loss: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Messages that are lost: 0.01.")
    ] = None,
    duplicate: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Messages that arrive twice.")
    ] = None,
    reorder: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Messages that others overtake.")
    ] = None,
    crash: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="Nodes that crash at once, between the events: 0.5."),
    ] = None,
    churn: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Nodes that go or come each second, while publishing."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(metavar="SIDES", min=2, help="Split the network into sides, and heal it."),
    ] = None,
    leave: Annotated[
        int | None, typer.Option(metavar="COUNT", min=1, help="Nodes that take leave at first.")
    ] = None,
    through_wire: Annotated[
        bool, typer.Option("--through-wire", help="Write each message to bytes and read it again.")
    ] = False,
    scenario: Annotated[
        str | None, typer.Option(metavar="FILE", help="A scenario (TOML) in place of options.")
    ] = None,
    swarm: Annotated[
        int | None, typer.Option(metavar="SEED", min=0, help="A scenario drawn from a seed.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of overlay, network or links."),
    ] = None,
    chosen_bits: Annotated[
        bool,
        typer.Option("--chosen-bits", help="Of reach: choose which attribute has which bit."),
    ] = False,
    subscriptions_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="jsonl, json, csv, parquet or arrow.")
    ] = None,
    events_format: EventsFormat = None,
    records: Records = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS|FILE",
            help="Kinds of attributes in CSV and JSON; with --workload documents the XSD or DTD.",
        ),
    ] = None,
    deliveries: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write each delivery, as JSON Lines.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write all that happens, as JSON Lines.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Json = False,
) -> int:
    """Run a network under a virtual clock, with faults; check every delivery, count every cost."""
    from peersub.cli.simulate_command import SimulateOptions, run_simulate

    return run_simulate(
        SimulateOptions(
            overlay=overlay,
            nodes=nodes,
            seed=seed,
            start=start,
            subscriptions=subscriptions,
            events=events,
            subscriptions_count=subscriptions_count,
            events_count=events_count,
            every_ms=every,
            batch_events=batch_events,
            workload=workload,
            strategy=strategy,
            delivery=delivery,
            loss=loss,
            duplicate=duplicate,
            reorder=reorder,
            crash=crash,
            churn=churn,
            partition=partition,
            leave=leave,
            through_wire=through_wire,
            scenario=scenario,
            swarm=swarm,
            settings=tuple(settings or ()),
            chosen_bits=chosen_bits,
            subscriptions_format=subscriptions_format,
            events_format=events_format,
            records=records,
            schema=schema,
            deliveries=deliveries,
            trace=trace,
            quiet=quiet,
            as_json=as_json,
        )
    )


add_network_commands(app)


@app.command("explain")
def explain_delivery(
    trace: Annotated[str, typer.Option(metavar="FILE", help="A trace that simulate wrote.")],
    event: Annotated[str, typer.Option(metavar="ID", help="The event.")],
    subscription: Annotated[str, typer.Option(metavar="ID", help="The subscription.")],
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its node, if several use the name.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say why a subscriber got an event, or did not: exit code 0 if it did, 4 if not."""
    from peersub.cli.explain_command import run_explain_delivery

    return run_explain_delivery(trace, event, subscription, node, as_json=as_json)


@filter_app.command()
def check(
    text: Annotated[str | None, typer.Argument(metavar="FILTER", help="A filter.")] = None,
    xpath: XPath = False,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Check the subscriptions of a file instead.")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Events: also find what can never match them."),
    ] = None,
    events_format: EventsFormat = None,
    records: Records = None,
    schema: Schema = None,
    as_json: Json = False,
) -> int:
    """Check a filter, or the filters of a file: exit code 2 if one is not understood."""
    from peersub.cli.filter_commands import CheckOptions, run_check

    return run_check(
        CheckOptions(text, xpath, file, events, events_format, records, schema, as_json)
    )


@filter_app.command()
def explain(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="A filter.")],
    event: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="An event (XML with --xpath): which parts hold?"),
    ] = None,
    xpath: XPath = False,
    as_json: Json = False,
) -> int:
    """Show what a filter means; with an event, which of its predicates hold and why not."""
    from peersub.cli.filter_commands import run_explain

    return run_explain(text, event, xpath=xpath, as_json=as_json)


@filter_app.command()
def covers(
    general: Annotated[
        str, typer.Argument(metavar="GENERAL", help="The filter that may match more.")
    ],
    specific: Annotated[
        str, typer.Argument(metavar="SPECIFIC", help="The filter that may match less.")
    ],
    xpath: XPath = False,
    as_json: Json = False,
) -> int:
    """Whether GENERAL matches all that SPECIFIC matches: exit code 0 if it does, 4 if not."""
    from peersub.cli.filter_commands import run_covers

    return run_covers(general, specific, xpath=xpath, as_json=as_json)
