"""The commands and their options. Each imports what it needs only when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from peersub.cli.bench_semantic_command import add_bench_semantic
from peersub.cli.certs_app import certs_app
from peersub.cli.network_commands import add_network_commands
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
bench_app = typer.Typer(
    help="Measure against what a skilled user would write.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
)
app.add_typer(filter_app, name="filter")
app.add_typer(bench_app, name="bench")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(certs_app, name="certs")
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
        str | None, typer.Option(metavar="NAME", help="chord (default), tree or flood.")
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


@bench_app.command("matching")
def bench_matching(
    sizes: Annotated[str, typer.Option(help="Numbers of subscriptions.")] = "10000,100000,1000000",
    shares: Annotated[
        str, typer.Option(help="Mean shares of the subscriptions that an event matches.")
    ] = "0.0001,0.001,0.01",
    skews: Annotated[str, typer.Option(help="Distributions: uniform, zipf.")] = "uniform,zipf",
    events: Annotated[int, typer.Option(min=1, help="Events of a workload.")] = 4_096,
    engines: Annotated[
        str | None, typer.Option(help="Which engines to run; all by default.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; default: one per processor.")
    ] = None,
    budget: Annotated[float, typer.Option(min=0.1, help="Seconds of matching per engine.")] = 20.0,
    prepare_budget: Annotated[
        float, typer.Option(min=0.1, help="Seconds of preparation that an engine may need.")
    ] = 120.0,
    memory: Annotated[bool, typer.Option(help="Measure build time and memory.")] = True,
    updates: Annotated[
        int, typer.Option(min=0, help="Single inserts and deletes into the largest size.")
    ] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the generator.")] = 1,
    numeric_attributes: Annotated[int, typer.Option(min=0)] = 20,
    float_attributes: Annotated[int, typer.Option(min=0, help="Of the numeric ones.")] = 0,
    numeric_values: Annotated[int, typer.Option(min=4, help="Size of a numeric domain.")] = 100_000,
    categorical_cardinalities: Annotated[
        str | None, typer.Option(help="One categorical attribute per number.")
    ] = None,
    attributes_per_event: Annotated[str, typer.Option(help="Least and greatest.")] = "10,20",
    predicates_per_subscription: Annotated[str, typer.Option(help="Least and greatest.")] = "2,5",
    values_per_in: Annotated[int, typer.Option(min=2, help="The longest IN list.")] = 5,
    operators: Annotated[
        str | None,
        typer.Option(help="Weights, for example: numeric_between=0.5,categorical_in=0.2."),
    ] = None,
    duplicates: Annotated[float, typer.Option(help="Share of equal filters.")] = 0.0,
    opaque: Annotated[float, typer.Option(help="Share of filters with LIKE '%…%'.")] = 0.0,
    as_json: Json = False,
) -> int:
    """Compare the matcher with the naive twin, NumPy and DuckDB, side by side."""
    from peersub.cli.bench_command import run_bench_matching

    return run_bench_matching(dict(locals()))


@bench_app.command("pipeline")
def bench_pipeline(
    subscriptions: Annotated[int, typer.Option(min=1, help="How many.")] = 1_000_000,
    events: Annotated[int, typer.Option(min=1, help="How many.")] = 20_000,
    share: Annotated[
        float, typer.Option(help="Mean share of the subscriptions that an event matches.")
    ] = 0.0001,
    skew: Annotated[str, typer.Option(help="Distribution: uniform or zipf.")] = "uniform",
    processors: Annotated[
        int | None, typer.Option(min=1, help="Spark's local[N]; default: all.")
    ] = None,
    shards: Annotated[int, typer.Option(min=0, help="Of the sharded form; 0: leave it out.")] = 4,
    join_subscriptions: Annotated[
        int, typer.Option(min=1, help="How many of them Spark's own joins get.")
    ] = 50_000,
    repeats: Annotated[
        int, typer.Option(min=1, help="Runs of each query; the quickest counts.")
    ] = 3,
    joins: Annotated[
        str, typer.Option(help="Which joins; the first takes minutes.")
    ] = "columns,packed,slim,ranges",
    seed: Annotated[int, typer.Option(min=0, help="The seed of the generator.")] = 1,
    as_json: Json = False,
) -> int:
    """Match on Spark with the index in the workers, and with the joins of a skilled user."""
    from peersub.cli.bench_pipeline_command import run_bench_pipeline

    return run_bench_pipeline(dict(locals()))


@bench_app.command("routing")
def bench_routing(
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the network.")] = 256,
    subscriptions: Annotated[
        int | None, typer.Option(min=1, help="Live at any time; default: two per node.")
    ] = None,
    changes: Annotated[
        int, typer.Option(min=1, help="Subscriptions that are exchanged for others, per trial.")
    ] = 20,
    events: Annotated[int, typer.Option(min=1, help="Events per trial and distribution.")] = 200,
    share: Annotated[
        float, typer.Option(help="Mean share of the events that a subscription wants.")
    ] = 0.02,
    ratios: Annotated[
        str, typer.Option(help="Events per change for which totals are shown.")
    ] = "0.1,1,10,100,1000",
    skews: Annotated[
        str, typer.Option(help="Distributions of subscriptions, and of events: uniform, zipf.")
    ] = "uniform,zipf",
    strategies: Annotated[str, typer.Option(help="Rows of the table; all by default.")] = "",
    placement_shares: Annotated[
        str, typer.Option(help="Shares for the table beyond the paper; empty leaves it out.")
    ] = "0.001,0.01,0.05,0.25",
    tolerance: Annotated[
        float, typer.Option(help="How far mixed trials may be off the arithmetic.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all that is drawn.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; default: one per processor.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare routing strategies: filter updates against notifications, and options beyond."""
    from peersub.cli.bench_routing_command import run_bench_routing

    return run_bench_routing(dict(locals()))


@bench_app.command("resilience")
def bench_resilience(
    nodes: Annotated[int, typer.Option(min=4, help="Node processes.")] = 16,
    subscriptions: Annotated[int, typer.Option(min=1, help="Subscriptions per node.")] = 10,
    rate: Annotated[int, typer.Option(min=1, help="Events per second, at least once.")] = 500,
    stories: Annotated[
        str,
        typer.Option(
            help="What happens: kill, stop (SIGSTOP), cut (network namespaces). Or to the home of "
            "a durable subscription: home (it is killed, and returns), replaced (by an empty one)."
        ),
    ] = "kill,stop,cut",
    outage: Annotated[float, typer.Option(min=1, help="Seconds that such a home is down.")] = 60.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trials of each story.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    as_json: Json = False,
) -> int:
    """Let nodes of a live network die, stand still and be cut off: what do subscribers notice?"""
    from peersub.cli.bench_resilience_command import run_bench_resilience

    return run_bench_resilience(dict(locals()))


@bench_app.command("hostile")
def bench_hostile(
    frames: Annotated[int, typer.Option(min=1, help="Hostile frames to send.")] = 100_000,
    frames_per_second: Annotated[int, typer.Option(min=1, help="How fast.")] = 2_000,
    nodes: Annotated[int, typer.Option(min=2, help="Node processes; one is attacked.")] = 3,
    rate: Annotated[int, typer.Option(min=1, help="Events per second meanwhile.")] = 200,
    overlay: Annotated[str, typer.Option(help="An overlay that promises at-least-once.")] = "chord",
    seed: Annotated[int, typer.Option(min=0)] = 1,
    as_json: Json = False,
) -> int:
    """Send hostile frames to a live node: does it serve as before, and count what came?"""
    from peersub.cli.bench_live_commands import run_bench_hostile

    return run_bench_hostile(dict(locals()))


@bench_app.command("churn")
def bench_churn(
    nodes: Annotated[int, typer.Option(min=4, help="Node processes.")] = 24,
    minutes: Annotated[float, typer.Option(min=0.05, help="How long.")] = 5.0,
    per_second: Annotated[float, typer.Option(min=0.1, help="Changes per second.")] = 4.0,
    rate: Annotated[int, typer.Option(min=1, help="Events per second meanwhile.")] = 50,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    as_json: Json = False,
) -> int:
    """Let nodes and subscriptions come and go: does anything grow in the nodes that stay?"""
    from peersub.cli.bench_live_commands import run_bench_churn

    return run_bench_churn(dict(locals()))


@bench_app.command("network")
def bench_network(
    systems: Annotated[
        str, typer.Option(help="Which to run; those that are not installed are skipped.")
    ] = "peersub,zenoh,nats",
    workloads: Annotated[str, typer.Option(help="Kinds of filters: sym, range.")] = "sym,range",
    shares: Annotated[
        str | None,
        typer.Option(help="Shares of the events that a subscriber wants; default 0.001,0.01,0.1."),
    ] = None,
    payloads: Annotated[
        str | None, typer.Option(help="Bytes of an event; default 100,1024.")
    ] = None,
    subscribers: Annotated[int, typer.Option(min=1, help="In all.")] = 1_000,
    hosts: Annotated[int, typer.Option(min=1, help="Processes that they are on.")] = 8,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Runs of each trial, of which the quickest counts.")
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Multiplies the number of events.")] = None,
    latency: Annotated[
        float | None, typer.Option(help="Seconds at 200 events/s; 0 leaves latency out.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small selection of all that, in about a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all that is drawn.")] = 1,
    as_json: Json = False,
) -> int:
    """Measure live nodes on this machine, with Zenoh and NATS beside them."""
    from peersub.cli.bench_network_command import run_bench_network

    return run_bench_network(dict(locals()))


add_bench_semantic(bench_app)
