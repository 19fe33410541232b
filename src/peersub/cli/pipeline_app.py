"""`peersub pipeline`: the commands and their options, one list of options for all of them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Annotated

import typer

__all__ = ["pipeline_app"]

_SUMMARIES = {
    "match": "Find who wants what: events and subscriptions to deliveries, on Spark.",
    "organise": "Match, then find equal, covering and similar filters, and plan overlays.",
    "route": "Organise, then send every event over every plan.",
    "audit": "Route, then compare what was delivered with what should have been.",
    "report": "Audit, then write the report: tables here, and one HTML file.",
    "run": "All of it, from the files to the report.",
}

pipeline_app = typer.Typer(
    help="Match, organise, route and audit on Spark.",
    epilog="Each command does what it needs and is not done yet in the folder of --out. "
    "A run that was interrupted goes on with --resume.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _command(target: str) -> Callable[..., int]:
    def command(
        out: Annotated[
            str, typer.Option(metavar="DIR", help="The folder of the run: new, empty, or its own.")
        ],
        subscriptions: Annotated[
            str | None,
            typer.Option(
                metavar="PATH",
                help="JSON Lines, CSV or Parquet with id and filter or xpath; a file or a folder.",
            ),
        ] = None,
        events: Annotated[
            str | None,
            typer.Option(
                metavar="PATH",
                help="JSON Lines, JSON, CSV, Parquet or XML; a file or a folder of files.",
            ),
        ] = None,
        overlay: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME",
                help="chord, tree, flood, dag, containment, similarity; may be repeated; default: "
                "the first three.",
            ),
        ] = None,
        nodes: Annotated[int, typer.Option(min=1, help="Nodes of the plans.")] = 64,
        seed: Annotated[int, typer.Option(min=0, help="Draws keys, links and publishers.")] = 1,
        settings: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="NAME=VALUE", help="A setting of the overlays."),
        ] = None,
        sample: Annotated[
            int, typer.Option(min=1, help="Events on which filters are compared.")
        ] = 1_024,
        neighbours: Annotated[int, typer.Option(min=1, help="Similar filters for each.")] = 5,
        shards: Annotated[
            int | None,
            typer.Option(min=1, help="Parts of the index; default: as its size demands."),
        ] = None,
        trace: Annotated[
            str | None,
            typer.Option(metavar="FILE", help="A trace of a network, to be audited as well."),
        ] = None,
        deliveries: Annotated[
            str | None,
            typer.Option(metavar="FILE", help="Deliveries of a network, to be audited as well."),
        ] = None,
        master: Annotated[
            str,
            typer.Option(metavar="URL", help="local[N], spark://HOST:PORT or sc://HOST:PORT."),
        ] = "local[*]",
        conf: Annotated[
            list[str] | None,
            typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark."),
        ] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Go on with a run that was interrupted.")
        ] = False,
        events_format: Annotated[
            str | None,
            typer.Option(
                metavar="FORMAT", help="jsonl, json, csv, parquet, arrow or xml; default: by name."
            ),
        ] = None,
        subscriptions_format: Annotated[
            str | None, typer.Option(metavar="FORMAT", help="jsonl, json, csv, parquet or arrow.")
        ] = None,
        records: Annotated[
            str | None,
            typer.Option(metavar="PATH", help="Where the events are in a JSON document: features."),
        ] = None,
        schema: Annotated[
            str | None,
            typer.Option(
                metavar="KINDS", help="Kinds of attributes in CSV and JSON: day:date,price:decimal."
            ),
        ] = None,
        body_column: Annotated[
            str,
            typer.Option(
                metavar="NAME", help="The column with the XML document that XPath patterns read."
            ),
        ] = "body",
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")] = (
            False
        ),
        as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    ) -> int:
        from peersub.cli.pipeline_command import run_pipeline

        given = {name: value for name, value in locals().items() if name in options}
        return run_pipeline(target, given)

    options = frozenset(signature(command).parameters)

    command.__doc__ = _SUMMARIES[target]
    return command


for _name in _SUMMARIES:
    pipeline_app.command(_name)(_command(_name))
