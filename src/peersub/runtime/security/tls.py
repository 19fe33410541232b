"""TLS between nodes, and between clients and nodes: 1.3 only, both sides show a certificate.

The certificates are of the network's own authority (`authority`), and no other authority counts.
There is no resumption of sessions: each connection shows its certificate anew, so that a revoked
one opens none. After the handshake `peer_identity` says who is there; whether it may do what it
came for is for `identity.node_refusal`, `RevocationSet` and `Permissions` to say.

In TLS 1.3 the dialling side is done before the other has looked at its certificate: a refusal
reaches it with the first bytes that it reads.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Any, Final

from peersub.runtime.security.certificates import check_certificate
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import PeerIdentity, Role
from peersub.runtime.security.settings import TlsSettings

__all__ = [
    "TlsSettings",
    "client_context",
    "handshake_failure",
    "own_identity",
    "peer_identity",
    "server_context",
]

_IN_WORDS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the other side's certificate is not accepted",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side showed no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not know the authority of this certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that this certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept this certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "this certificate is for another role",
    "UNSUPPORTED_PROTOCOL": "the other side does not speak TLS 1.3",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "HTTP_REQUEST": "the other side speaks HTTP without TLS",
}


def own_identity(settings: TlsSettings, now: datetime | None = None) -> PeerIdentity:
    """Who one is oneself, once the files are known to fit together.

    Raises:
        SecurityError: a file is missing, does not fit, or the certificate is not valid now.
    """
    facts = check_certificate(
        settings.certificate, settings.key, settings.ca, now or datetime.now(UTC)
    )
    assert facts.identity is not None
    return facts.identity


def server_context(settings: TlsSettings, now: datetime | None = None) -> ssl.SSLContext:
    """What a node accepts connections with.

    Raises:
        SecurityError: as `own_identity`, and where the certificate is none of a node.
    """
    identity = own_identity(settings, now)
    if identity.role is not Role.NODE:
        raise SecurityError(
            f"{settings.certificate}: the certificate is for a client; issue one with --role node"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.num_tickets = 0
    return context


def client_context(settings: TlsSettings, now: datetime | None = None) -> ssl.SSLContext:
    """What a node dials other nodes with, and a client its node; the host's name is checked.

    Raises:
        SecurityError: as `own_identity`.
    """
    own_identity(settings, now)
    return _context(ssl.PROTOCOL_TLS_CLIENT, settings)


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(cafile=settings.ca)
        # An encrypted key was refused before: nothing may ask for a password on the terminal.
        context.load_cert_chain(settings.certificate, settings.key, password="")
    except (ssl.SSLError, OSError) as error:
        raise SecurityError(f"{settings.certificate}: cannot be used: {error}") from None
    return context


def peer_identity(connection: ssl.SSLObject | ssl.SSLSocket) -> PeerIdentity:
    """Who is at the other end of a connection whose handshake is done.

    Raises:
        SecurityError: no certificate says so.
    """
    shown = connection.getpeercert()
    if not shown:
        raise SecurityError("the other side showed no certificate")
    names: dict[str, list[str]] = {}
    alternatives: Any = shown.get("subjectAltName", ())
    for kind, name in alternatives:
        names.setdefault(kind, []).append(name)
    serial = int(str(shown.get("serialNumber", "0")), 16)
    hosts = [*names.get("DNS", ()), *names.get("IP Address", ())]
    valid_until_s = ssl.cert_time_to_seconds(str(shown["notAfter"]))
    return PeerIdentity.read(names.get("URI", []), serial, hosts, valid_until_s)


def handshake_failure(error: Exception) -> str:
    """Why a handshake failed, in words for people."""
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    reason = error.reason or ""
    words = _IN_WORDS.get(reason, f"TLS failed: {reason or error}")
    detail = getattr(error, "verify_message", "")
    return f"{words}: {detail}" if detail else words
