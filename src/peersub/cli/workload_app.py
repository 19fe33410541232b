"""`peersub workload`: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["workload_app"]

workload_app = typer.Typer(
    help="Write generated workloads to files, and choose bits for one.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SchemaFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="An XSD or a DTD; default: the project's own news."),
]
Root = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where documents begin, if the schema leaves that open."),
]
Count = Annotated[int, typer.Option(min=1, help="How many.")]
First = Annotated[int, typer.Option(min=0, metavar="NUMBER", help="The number of the first.")]
Seed = Annotated[int, typer.Option(min=0, help="Another seed is another workload.")]
Levels = Annotated[int, typer.Option(min=1, help="Levels of the deepest element.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@workload_app.command("documents")
def documents(
    out: Annotated[str, typer.Option(metavar="DIR", help="The folder for the documents.")],
    schema: SchemaFile = None,
    root: Root = None,
    count: Count = 1_000,
    first: First = 0,
    seed: Seed = 1,
    tags: Annotated[int, typer.Option(min=1, help="Tag pairs of a document, on average.")] = 100,
    levels: Levels = 10,
    optional: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the optional parts that are used.")
    ] = 0.5,
    repeats: Annotated[
        int, typer.Option(min=1, help="How often a part occurs that may be repeated, at most.")
    ] = 5,
    attributes: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the elements with an optional attribute.")
    ] = 0.3,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Draw XML documents from a schema: one file each, events for `match` and `simulate`."""
    from peersub.cli.workload_command import Range, SchemaChoice, run_documents, settings_of
    from peersub.workloads.xml.settings import DocumentSettings

    settings = settings_of(
        DocumentSettings,
        tags_mean=tags,
        levels_max=levels,
        optional_share=optional,
        repeats_max=repeats,
        attribute_share=attributes,
        seed=seed,
    )
    chosen = SchemaChoice(schema, root)
    return run_documents(chosen, settings, Range(first, count), out, force=force, as_json=as_json)


@workload_app.command("xpaths")
def xpaths(
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Subscriptions (.jsonl); default: stdout.")
    ] = None,
    schema: SchemaFile = None,
    root: Root = None,
    count: Count = 1_000,
    first: First = 0,
    seed: Seed = 1,
    height_min: Annotated[int, typer.Option(min=1, help="Steps of the shortest pattern.")] = 2,
    height: Annotated[int, typer.Option(min=1, help="Steps of the longest path.")] = 10,
    wildcards: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the steps that are *.")
    ] = 0.1,
    descendants: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the steps that hang by //.")
    ] = 0.1,
    branches: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the steps with a second branch.")
    ] = 0.1,
    zipf: Annotated[
        float, typer.Option(min=0, max=10, help="How uneven tags are chosen; 0 is evenly.")
    ] = 1.0,
    conditions: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the steps that compare an attribute.")
    ] = 0.0,
    levels: Levels = 10,
    as_json: Json = False,
) -> int:
    """Draw tree patterns from a schema, as subscriptions; each can be matched by some document."""
    from peersub.cli.workload_command import Range, SchemaChoice, run_xpaths, settings_of
    from peersub.workloads.xml.settings import PatternSettings

    settings = settings_of(
        PatternSettings,
        height_min=height_min,
        height_max=height,
        wildcard_share=wildcards,
        descendant_share=descendants,
        branch_share=branches,
        zipf_exponent=zipf,
        condition_share=conditions,
        levels_max=levels,
        seed=seed,
    )
    return run_xpaths(
        SchemaChoice(schema, root), settings, Range(first, count), out, as_json=as_json
    )


@workload_app.command("reach-map")
def reach_map(
    subscriptions: Annotated[str, typer.Option(metavar="FILE", help="A sample of filters.")],
    events: Annotated[str, typer.Option(metavar="FILE", help="A sample of events.")],
    bits: Annotated[int, typer.Option(min=1, max=60, help="Bits of an identifier.")] = 32,
    buckets: Annotated[
        int, typer.Option(min=0, help="Bits for the values of what most events have; 0: one bit.")
    ] = 0,
    fine: Annotated[
        bool, typer.Option("--fine", help="Let bits that are left tell halves of numbers apart.")
    ] = False,
    sample: Annotated[int, typer.Option(min=1, help="Events and filters that are read.")] = 10_000,
    subscriptions_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="jsonl, json, csv, parquet or arrow.")
    ] = None,
    events_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="jsonl, json, csv, parquet or arrow.")
    ] = None,
    records: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where in a JSON document the events are.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="KINDS", help="Kinds of attributes in CSV and JSON.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Choose which attribute has which bit in the overlay reach: print it for --set attributes=."""
    from peersub.cli.reach_map_command import run_reach_map
    from peersub.cli.simulate_inputs import SimulateOptions

    files = SimulateOptions(
        subscriptions=subscriptions,
        events=events,
        subscriptions_count=sample,
        events_count=sample,
        subscriptions_format=subscriptions_format,
        events_format=events_format,
        records=records,
        schema=schema,
    )
    return run_reach_map(files, bits=bits, buckets=buckets, fine=fine, as_json=as_json)
