"""`peersub data`: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Check, back up and restore the data folder of a node.",
    epilog="A node may run while its folder is checked or backed up, not while it is restored.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder given to --data.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@data_app.command("check")
def check(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The folder given to --data, or a backup.")
    ],
    as_json: Json = False,
) -> int:
    """Check structure and checksums, and show what is there; exit 1 if something is wrong."""
    from peersub.cli.data_command import run_check

    return run_check(folder, as_json=as_json)


@data_app.command("backup")
def backup(
    folder: Folder,
    target: Annotated[str, typer.Argument(metavar="FILE", help="The backup to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> int:
    """Write the data of a node, which may be running, into one file that only you can read."""
    from peersub.cli.data_command import run_backup

    return run_backup(folder, target, force=force, as_json=as_json)


@data_app.command("restore")
def restore(
    backup: Annotated[str, typer.Argument(metavar="FILE", help="What `backup` wrote.")],
    folder: Folder,
    force: Annotated[
        bool, typer.Option("--force", help="Replace data that is there; it is kept beside.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make the data folder of a stopped node from a backup."""
    from peersub.cli.data_command import run_restore

    return run_restore(backup, folder, force=force, as_json=as_json)
