"""`peersub certs init | issue | revoke | show`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peersub.cli.failures import CommandError, ExitCode
from peersub.cli.output import note, print_json, say
from peersub.runtime.security.authority import Authority, Issued
from peersub.runtime.security.certificates import CertificateFacts, facts_of, read_certificate
from peersub.runtime.security.identity import Role
from peersub.runtime.security.revocations import Revocation

if TYPE_CHECKING:
    from peersub.client import NodeClient

__all__ = [
    "SendRevocations",
    "run_init",
    "run_issue",
    "run_revoke",
    "run_show",
    "sender_of_revocations",
]

SendRevocations = Callable[[str, Sequence[Revocation]], None]
"""Hands revocations to the running node at an address; raises a CommandError if it cannot."""


def run_init(folder: str, name: str, days: int, *, force: bool, as_json: bool) -> int:
    """Make an authority."""
    authority = Authority.create(Path(folder), name, _now(), days=days, force=force)
    if as_json:
        print_json({"network": authority.network, "ca": str(authority.certificate)})
        return ExitCode.DONE
    say(str(authority.certificate))
    note(f"The authority of {authority.network} is in {folder}. Its key never leaves that folder;")
    note(f"every node and client needs {authority.certificate}. Next:")
    note(f"  peersub certs issue {folder} node1 --role node --host HOST")
    return ExitCode.DONE


def run_issue(
    folder: str,
    name: str,
    role: str,
    hosts: tuple[str, ...],
    days: int,
    *,
    force: bool,
    as_json: bool,
) -> int:
    """Issue a certificate."""
    if role not in {known.value for known in Role}:
        raise CommandError(f"--role is node or client, not {role!r}")
    authority = Authority(Path(folder))
    issued = authority.issue(name, Role(role), _now(), hosts=hosts, days=days, force=force)
    if as_json:
        print_json({**_identity(issued), "ca": str(authority.certificate)})
        return ExitCode.DONE
    say(str(issued.certificate))
    say(str(issued.key))
    until = f"valid until {issued.valid_until:%Y-%m-%d}"
    note(f"{issued.identity}, serial {issued.identity.serial:x}, {until}.")
    if issued.identity.hosts:
        note(f"Others reach it as {', '.join(issued.identity.hosts)}.")
    note(f"Carry both files there, with {authority.certificate}.")
    return ExitCode.DONE


def _identity(issued: Issued) -> dict[str, Any]:
    return {
        "name": issued.identity.name,
        "role": issued.identity.role.value,
        "serial": f"{issued.identity.serial:x}",
        "hosts": list(issued.identity.hosts),
        "valid_until": issued.valid_until.isoformat(),
        "certificate": str(issued.certificate),
        "key": str(issued.key),
    }


def run_revoke(
    folder: str,
    name: str | None,
    serial: str | None,
    nodes: tuple[str, ...],
    *,
    as_json: bool,
    send: SendRevocations | None = None,
) -> int:
    """Take certificates back, and tell running nodes."""
    if (name is None) == (serial is None):
        raise CommandError("give either a NAME or --serial. See peersub certs revoke --help.")
    number = None if serial is None else _serial(serial)
    at_ms = int(_now().timestamp() * 1_000)
    revoked = Authority(Path(folder)).revoke(at_ms, name=name, serial=number)
    if as_json:
        print_json({"revoked": [{"serial": f"{r.serial:x}", "name": r.name} for r in revoked]})
    else:
        for revocation in revoked:
            say(f"{revocation.serial:x}")
            note(f"revoked: {revocation.name or 'unknown'}, serial {revocation.serial:x}")
    file = Path(folder) / "revocations.jsonl"
    if not nodes:
        note(f"Signed in {file}. Nodes learn of it from --node HOST:PORT, one is enough.")
    for node in nodes:
        if send is None:
            raise CommandError(
                f"it is revoked in {file}, but this version cannot tell {node}", ExitCode.FAILED
            )
        send(node, revoked)
        note(f"told {node}, which tells the others")
    return ExitCode.DONE


def sender_of_revocations(tls: str | None) -> SendRevocations:
    """What tells a running node, as a client with this certificate."""

    def send(node: str, revoked: Sequence[Revocation]) -> None:
        from peersub.cli.light_client import with_node

        async def work(client: NodeClient) -> int:
            for revocation in revoked:
                await client.tell_revocation(revocation.to_json())
            return ExitCode.DONE

        try:
            with_node(node, tls, "peersub certs", work)
        except ValueError as error:
            raise CommandError(f"{node} does not take it: {error}", ExitCode.FAILED) from None

    return send


def _serial(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise CommandError(
            f"{text!r} is no serial number: peersub certs show FILE shows a certificate's"
        ) from None


def run_show(file: str, *, as_json: bool) -> int:
    """Show what a certificate says."""
    path = Path(file)
    facts = facts_of(read_certificate(path), path)
    shown = _facts(facts, _now())
    if as_json:
        print_json(shown)
        return ExitCode.DONE
    for key, value in shown.items():
        written = ", ".join(value) if isinstance(value, list) else value
        if written not in ("", None):
            say(f"{key.replace('_', ' ')}: {written}")
    return ExitCode.DONE


def _facts(facts: CertificateFacts, now: datetime) -> dict[str, Any]:
    identity = facts.identity
    state = "valid"
    if now > facts.valid_until:
        state = "expired"
    elif now < facts.valid_from:
        state = "not valid yet"
    return {
        "role": "authority" if identity is None else identity.role.value,
        "name": facts.network if identity is None else identity.name,
        "network": facts.network,
        "serial": f"{facts.serial:x}",
        "hosts": [] if identity is None else list(identity.hosts),
        "valid_from": facts.valid_from.isoformat(),
        "valid_until": facts.valid_until.isoformat(),
        "state": state,
    }


def _now() -> datetime:
    return datetime.now(UTC)
