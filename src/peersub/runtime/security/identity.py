"""Who holds a certificate: a role and a name, written in it as a URI, `peersub:node:NAME`.

The authority alone writes them. A node may also act as a client; a client never acts as a node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from math import inf

from peersub.runtime.addresses import split_address
from peersub.runtime.security.errors import SecurityError

__all__ = ["PeerIdentity", "Role", "check_name", "client_refusal", "host_form", "node_refusal"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SCHEME = "peersub"


class Role(Enum):
    """What a certificate is for."""

    NODE = "node"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Who is at the other end, as its certificate says.

    Attributes:
        role: what the certificate is for.
        name: the node's or the client's own name; permissions are by it.
        serial: the number of the certificate; revocations are by it.
        hosts: the host names and addresses that a node may have.
        valid_until_s: when the certificate expires, in seconds since 1970.
    """

    role: Role
    name: str
    serial: int
    hosts: tuple[str, ...] = ()
    valid_until_s: float = field(default=inf, compare=False)

    @property
    def uri(self) -> str:
        """Role and name as the certificate has them.

        >>> PeerIdentity(Role.CLIENT, "dashboard", 1).uri
        'peersub:client:dashboard'
        """
        return f"{_SCHEME}:{self.role.value}:{self.name}"

    def __str__(self) -> str:
        return f"{self.role.value} {self.name}"

    @classmethod
    def read(
        cls, uris: list[str], serial: int, hosts: list[str], valid_until_s: float = inf
    ) -> PeerIdentity:
        """What a certificate with these URIs says.

        Raises:
            SecurityError: it names nobody, or more than one.
        """
        ours = [uri.split(":", 2) for uri in uris if uri.startswith(f"{_SCHEME}:")]
        if len(ours) != 1 or len(ours[0]) != 3:
            raise SecurityError(
                "the certificate does not say whose it is: make it with peersub certs issue"
            )
        _, role, name = ours[0]
        if role not in {known.value for known in Role} or _NAME.fullmatch(name) is None:
            raise SecurityError(
                f"the certificate is for {role!r}, which this version does not know"
            )
        forms = tuple(host_form(host) for host in hosts)
        return cls(Role(role), name, serial, forms, valid_until_s)


def check_name(name: str) -> str:
    """The name, if it is one for a certificate.

    Raises:
        SecurityError: it is not, or would be taken for the authority's own files.
    """
    if _NAME.fullmatch(name) is None:
        raise SecurityError(
            f"{name!r} is no name: use up to 64 letters, digits and . _ @ -, "
            "a letter or a digit first"
        )
    if name == "ca":
        raise SecurityError("the name ca is the authority's own: choose another")
    return name


def host_form(host: str) -> str:
    """The host in the one form in which hosts are compared.

    >>> host_form("LocalHost"), host_form("0:0:0:0:0:0:0:1")
    ('localhost', '::1')
    """
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower().rstrip(".")


def node_refusal(identity: PeerIdentity | None, address: str) -> str | None:
    """Why whoever has this certificate may not act as the node at this address; None if it may."""
    if identity is None:
        return f"no certificate says that this is the node {address}"
    if identity.role is not Role.NODE:
        return f"{identity} is no node: its certificate is for a client"
    try:
        host, _ = split_address(address)
    except ValueError as error:
        return str(error)
    if host_form(host) not in identity.hosts:
        known = ", ".join(identity.hosts) or "no host"
        return (
            f"the certificate of {identity} is for {known}, not for {host}: "
            f"issue it again with --host {host}"
        )
    return None


def client_refusal(identity: PeerIdentity | None) -> str | None:
    """Why whoever has this certificate may not act as a client; None if it may."""
    return "a client needs a certificate" if identity is None else None
