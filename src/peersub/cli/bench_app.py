"""`peersub bench`: the benchmarks and their options. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["bench_app"]

bench_app = typer.Typer(
    help="Measure against what a skilled user would write.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


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
            help="What happens: kill, stop (SIGSTOP), cut (network namespaces), slow (100 ms and "
            "1 % loss, by netem or else by proxies), seed (killed, and started again as it was), "
            "cold (all start at once). Or to the home of a durable subscription: home (it is "
            "killed, and returns), replaced (by an empty one), disk (which has lost or damaged "
            "what was stored), pair (with its mirror), one-after-the-other, all (nodes at once)."
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


@bench_app.command("operations")
def bench_operations(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long the week takes.")] = 10.0,
    nodes: Annotated[int, typer.Option(min=4, help="Node processes, with certificates.")] = 8,
    rate: Annotated[int, typer.Option(min=2, help="Events per second, at least once.")] = 40,
    seeds: Annotated[int, typer.Option(min=1, help="Weeks.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    as_json: Json = False,
) -> int:
    """Play a week of operations: is anything lost, doubled, or seen by who may not?"""
    from peersub.cli.bench_live_commands import run_bench_operations

    return run_bench_operations(dict(locals()))


@bench_app.command("hostile")
def bench_hostile(
    frames: Annotated[int, typer.Option(min=1, help="Hostile frames to send.")] = 100_000,
    frames_per_second: Annotated[int, typer.Option(min=1, help="How fast.")] = 2_000,
    nodes: Annotated[int, typer.Option(min=2, help="Node processes; one is attacked.")] = 3,
    rate: Annotated[int, typer.Option(min=1, help="Events per second meanwhile.")] = 200,
    overlay: Annotated[str, typer.Option(help="An overlay that promises at-least-once.")] = "chord",
    seed: Annotated[int, typer.Option(min=0)] = 1,
    filters: Annotated[
        bool, typer.Option("--filters", help="Send 1,000 hostile filters instead of frames.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Send what makes a node hold much instead of frames.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --filters: fewer of them, in half a minute.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Send hostile frames to a live node: does it serve as before, and count what came?"""
    from peersub.cli.bench_live_commands import run_bench_hostile

    return run_bench_hostile(dict(locals()))


@bench_app.command("subscribe")
def bench_subscribe(
    sizes: Annotated[
        str | None, typer.Option(help="Subscriptions on one node; default 1000,10000,100000.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Clients that share them; default 1,10.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Node processes, at least 3; default 3,16.")
    ] = None,
    rate: Annotated[int, typer.Option(min=1, help="Events per second between others.")] = 100,
    seeds: Annotated[int, typer.Option(min=1, help="Networks of each kind.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="1,000 and 5,000 of one client on 3 nodes.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Let clients subscribe by thousands: what does it cost, and what do others notice?

    Up to 4 nodes, the clients and their node have one core, and the others the second: the latency
    of events between the others is judged, calm, meanwhile and while subscriptions end.
    """
    from peersub.cli.bench_live_commands import run_bench_subscribe

    return run_bench_subscribe(dict(locals()))


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


@bench_app.command("semantic")
def bench_semantic(
    schema: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="An XSD or a DTD; default: a news schema."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Documents begin with it; default: by the schema."),
    ] = None,
    peers: Annotated[
        str, typer.Option(help="Sizes of the networks.")
    ] = "1000,2000,5000,10000,20000",
    documents: Annotated[int, typer.Option(min=1, help="Documents per network.")] = 1_000,
    sample: Annotated[
        int, typer.Option(min=1, help="Other documents, by which peers judge filters.")
    ] = 256,
    always_max: Annotated[
        int, typer.Option(min=0, help="Largest network that always reorganises.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all that is drawn.")] = 1,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write tables, plots and JSON there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure how precisely the containment tree and the similarity graph route documents."""
    from peersub.cli.bench_semantic_command import run_bench_semantic

    return run_bench_semantic(dict(locals()))


@bench_app.command("dag")
def bench_dag(
    sizes: Annotated[
        str, typer.Option(help="Members of the layers that go through rounds.")
    ] = "50,200,1000",
    degrees: Annotated[str, typer.Option(help="Neighbours of a member there.")] = "4,8",
    nodes: Annotated[
        int, typer.Option(min=0, help="Nodes of the simulated network; 0: leave it out.")
    ] = 1_000,
    events: Annotated[int, typer.Option(min=1, help="Events that it gets, twice.")] = 50,
    crash: Annotated[float, typer.Option(help="Share of its nodes that crash at once.")] = 0.3,
    seeds: Annotated[int, typer.Option(min=1, help="Networks, and graphs per layer.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    as_json: Json = False,
) -> int:
    """Hold the anonymous overlay to its bounds: rounds, copies, idle cost, repair."""
    from peersub.cli.bench_dag_commands import run_bench_dag

    return run_bench_dag(dict(locals()))


@bench_app.command("anonymity")
def bench_anonymity(
    nodes: Annotated[int, typer.Option(min=1, help="Members of the layer.")] = 1_000,
    degree: Annotated[int, typer.Option(min=2, help="Neighbours of a member.")] = 4,
    shares: Annotated[
        str, typer.Option(help="Shares of the members that are spies.")
    ] = "0.01,0.05,0.1,0.3",
    seeds: Annotated[int, typer.Option(min=1, help="Graphs to draw.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first one.")] = 1,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write tables, plots and JSON there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure what spies among the members of a layer find out about who published an event."""
    from peersub.cli.bench_dag_commands import run_bench_anonymity

    return run_bench_anonymity(dict(locals()))


@bench_app.command("layers")
def bench_layers(
    nodes: Annotated[int, typer.Option(min=1, help="Super-peers at the begin.")] = 100,
    clients: Annotated[int, typer.Option(min=1, help="Clients that come to them.")] = 400,
    rates: Annotated[
        str, typer.Option(help="Nodes that come, go or crash, per simulated second.")
    ] = "0,0.1,0.5,1,2",
    seconds: Annotated[int, typer.Option(min=1, help="How long they do.")] = 60,
    events: Annotated[int, typer.Option(min=1, help="Events per simulated second.")] = 4,
    seeds: Annotated[int, typer.Option(min=1, help="Networks per rate.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first one.")] = 1,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write figures and a plot there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure the delay from publication to reception against churn, with clusters and without."""
    from peersub.cli.bench_dag_commands import run_bench_layers

    return run_bench_layers(dict(locals()))


@bench_app.command("reach")
def bench_reach(
    sizes: Annotated[str, typer.Option(help="Nodes of the networks.")] = "64,256,1024,4096",
    subscriptions: Annotated[int, typer.Option(min=1, help="Per node.")] = 2,
    events: Annotated[int, typer.Option(min=1, help="Events per network.")] = 200,
    share: Annotated[
        float, typer.Option(help="Mean share of the subscriptions that an event matches.")
    ] = 0.01,
    skew: Annotated[str, typer.Option(help="Distribution: uniform or zipf.")] = "uniform",
    bits: Annotated[int, typer.Option(min=1, help="Bits of an identifier.")] = 32,
    summary: Annotated[
        int, typer.Option(min=1, help="Wishes that places tell those above them.")
    ] = 96,
    orders: Annotated[
        int, typer.Option(min=1, help="Orders of bits, where parents answer for children.")
    ] = 4,
    depth: Annotated[
        int, typer.Option(min=0, help="Places above that keep copies, for each order.")
    ] = 2,
    answer: Annotated[
        float, typer.Option(help="Share of the events that a parent answers, if it may.")
    ] = 0.8,
    simulate: Annotated[
        str, typer.Option(help="Sizes at which the loads of simulated peers are measured, too.")
    ] = "64,256",
    seeds: Annotated[
        str, typer.Option(help="Seeds of all that is drawn; beyond 1,024 nodes only the first.")
    ] = "1,2,3",
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write tables, a plot and JSON there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure what events cost in Reach: visits, quenching, assignments of bits, load."""
    from peersub.cli.bench_reach_command import run_bench_reach

    return run_bench_reach(dict(locals()))
