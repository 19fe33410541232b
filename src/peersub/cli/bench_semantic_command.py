"""`peersub bench semantic`: its options, from options to settings, results to tables or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from peersub.cli.failures import CommandError
from peersub.cli.output import print_json

__all__ = ["add_bench_semantic"]


def add_bench_semantic(bench_app: typer.Typer) -> None:
    """Let the command be one of the benchmarks."""

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
        as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    ) -> int:
        """Measure how precisely the containment tree and the similarity graph route documents."""
        return run_bench_semantic(dict(locals()))


def run_bench_semantic(options: Mapping[str, Any]) -> int:
    """Run the benchmark with the knobs of the command line; 1 if a check failed."""
    from peersub.bench.report import stderr_progress
    from peersub.bench.semantic import report
    from peersub.bench.semantic.run import SemanticSettings, run_semantic

    name, schema = _schema(options["schema"], options["root"])
    try:
        settings = SemanticSettings(
            peers=_sizes(options["peers"]),
            documents=options["documents"],
            sample=options["sample"],
            always_max=options["always_max"],
            seed=options["seed"],
        )
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    folder = _folder(options["out"])
    progress = stderr_progress()
    result = run_semantic(schema, name, settings, progress)
    if folder is not None:
        for path in report.write(result, folder):
            progress(f"written: {path}")
    if options["as_json"]:
        print_json(report.as_json(result))
    else:
        report.show(result)
    return report.exit_code(result)


def _folder(name: str | None) -> Path | None:
    """Where results are to be written; made beforehand, since the run takes a while."""
    if name is None:
        return None
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{name}: cannot be written ({error.strerror}).") from None
    return Path(name)


def _schema(file: str | None, root: str | None) -> tuple[str, Any]:
    from peersub.workloads.xml import SchemaError, news_schema, read_schema

    if file is None:
        return "the project's news schema", news_schema()
    folder = Path(file).parent

    def resolve(name: str) -> bytes | None:
        beside = folder / Path(name).name
        return beside.read_bytes() if beside.is_file() else None

    try:
        return Path(file).name, read_schema(Path(file).read_bytes(), root=root, resolve=resolve)
    except OSError as error:
        raise CommandError(f"{file}: cannot be read ({error.strerror}).") from None
    except SchemaError as error:
        raise CommandError(f"{file}: {error}.") from None


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"--peers: {text!r} is no list of numbers; write 1000,5000") from None
