"""Which files TLS needs, and where a node may listen without it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from peersub.runtime.security.identity import host_form

__all__ = ["TlsSettings", "binding_refusal", "is_loopback"]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The files that a node or a client needs to take part.

    Attributes:
        ca: the certificate of the network's authority.
        certificate: of this node or client.
        key: the private key of that certificate.
    """

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def beside(
        cls, certificate: Path, *, key: Path | None = None, ca: Path | None = None
    ) -> TlsSettings:
        """The files as `peersub certs issue` leaves them: NAME.key and ca.pem next to NAME.pem.

        >>> str(TlsSettings.beside(Path("net/n1.pem")).key)
        'net/n1.key'
        """
        return cls(
            ca or certificate.with_name("ca.pem"),
            certificate,
            key or certificate.with_suffix(".key"),
        )


def binding_refusal(host: str, tls: TlsSettings | None) -> str | None:
    """Why a node should not listen there; None if only this machine can reach it, or with TLS.

    >>> binding_refusal("127.0.0.1", None) is None
    True
    """
    if tls is not None or is_loopback(host):
        return None
    where = host or "all addresses"
    return (
        f"listening on {where} without TLS lets anybody who can reach it publish and subscribe. "
        "Give --tls FILE (peersub certs makes it), listen on 127.0.0.1, or say --insecure "
        "(in a program: tls= or insecure=True)"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host; a name other than localhost counts as reachable.

    >>> [is_loopback(host) for host in ("localhost", "127.9.9.9", "[::1]", "0.0.0.0", "", "a.org")]
    [True, True, True, False, False, False]
    """
    if host_form(host) == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
