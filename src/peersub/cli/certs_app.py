"""`peersub certs`: the commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["certs_app"]

certs_app = typer.Typer(
    help="Make, show and take back the certificates of a network.",
    epilog="The folder holds the authority's key: whoever has it can let anybody in.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Folder = Annotated[str, typer.Argument(metavar="DIR", help="The folder of the authority.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@certs_app.command("init")
def init(
    folder: Folder,
    name: Annotated[
        str, typer.Option(metavar="NETWORK", help="The name of the network.")
    ] = "peersub",
    days: Annotated[int, typer.Option(min=1, help="How long it is valid.")] = 3_650,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an authority: what it issued ends.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make a private authority for a network."""
    from peersub.cli.certs_command import run_init

    return run_init(folder, name, days, force=force, as_json=as_json)


@certs_app.command("issue")
def issue(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the node or the client.")],
    role: Annotated[str, typer.Option(metavar="ROLE", help="node or client.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="By which others reach a node; may be repeated; default: this machine only.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long it is valid.")] = 365,
    force: Annotated[
        bool, typer.Option("--force", help="Replace one that is there; it stays valid.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Issue a certificate and its key: DIR/NAME.pem and DIR/NAME.key."""
    from peersub.cli.certs_command import run_issue

    return run_issue(folder, name, role, tuple(host or ()), days, force=force, as_json=as_json)


@certs_app.command("revoke")
def revoke(
    folder: Folder,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="All certificates of this name.")
    ] = None,
    serial: Annotated[
        str | None, typer.Option(metavar="N", help="The certificate with this serial number.")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Tell this node, which tells the others."),
    ] = None,
    tls: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The certificate with which to talk to the node."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Take certificates back: DIR/revocations.jsonl, signed; a running node spreads it."""
    from peersub.cli.certs_command import run_revoke, sender_of_revocations

    send = sender_of_revocations(tls)
    return run_revoke(folder, name, serial, tuple(node or ()), as_json=as_json, send=send)


@certs_app.command("show")
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A certificate.")],
    as_json: Json = False,
) -> int:
    """Show whose a certificate is, what it is for, and until when."""
    from peersub.cli.certs_command import run_show

    return run_show(file, as_json=as_json)
