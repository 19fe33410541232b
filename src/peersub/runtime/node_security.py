"""What a node with TLS asks of those at the other end of its connections.

The handshake has shown that a certificate is of the network's authority; here it is decided whether
its holder may be the node that it says it is, or a client, and whether it was taken back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from peersub.overlays.core.node import Node
from peersub.overlays.core.rumour_messages import Rumour
from peersub.overlays.core.rumours import spread_rumours
from peersub.runtime.connection import Connection
from peersub.runtime.security.certificates import facts_of, key_warning, read_certificate
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import PeerIdentity, client_refusal, node_refusal
from peersub.runtime.security.revocations import (
    Revocation,
    RevocationSet,
    Verifier,
    revocation_of,
    rumour_of,
)
from peersub.runtime.security.settings import TlsSettings
from peersub.runtime.security.tls import client_context, peer_identity, server_context

__all__ = ["NodeSecurity"]


class NodeSecurity:
    """The certificates of a node, and how it judges those of others.

    Args:
        settings: the files of the node.
        revocations: the file that keeps what was taken back; without it, until the node ends.

    Raises:
        SecurityError: the files cannot be used.

    Attributes:
        revocations: the certificates that were taken back.
        now_s: the wall clock, which certificates go by.
        notices: what people should know about the files, as sentences.
    """

    def __init__(self, settings: TlsSettings, revocations: Path | None = None) -> None:
        self._settings = settings
        self.server_tls = server_context(settings)
        self.client_tls = client_context(settings)
        self._verifier = Verifier(settings.ca)
        self.revocations = RevocationSet(self._verifier, revocations)
        authority = facts_of(read_certificate(settings.ca), settings.ca)
        self._authority_until_s = authority.valid_until.timestamp()
        self.now_s: Callable[[], float] = time.time
        warning = key_warning(settings.key)
        self.notices = [] if warning is None else [warning]

    def reload(self) -> None:
        """Read the node's own certificate and key again: connections from now on show them.

        Those that are there go on. The authority stays: another one is another network.

        Raises:
            SecurityError: the files cannot be used; all is as before.
        """
        files = self._settings
        server_context(files)  # Whatever is wrong with them is found before anything changes.
        for context in (self.server_tls, self.client_tls):
            context.load_cert_chain(files.certificate, files.key)

    def spread(self, node: Node, on_revoked: Callable[[], None]) -> None:
        """Let the node, which has no links yet, hear and tell what was taken back."""

        def on_news(rumour: Rumour) -> None:
            revocation = revocation_of(rumour)
            if revocation is not None and self.revocations.add(revocation):
                on_revoked()

        spread_rumours(node, self._verifier.believes_rumour, on_news, self.revocations.rumours())

    def is_revoked(self, connection: Connection) -> bool:
        """Whether the certificate at the other end was taken back."""
        identity = connection.peer_identity
        return isinstance(identity, PeerIdentity) and identity.serial in self.revocations

    def expiry(self, connection: Connection) -> str | None:
        """Why a connection may not last any longer: a certificate has expired; None if none has."""
        identity = connection.peer_identity
        if not isinstance(identity, PeerIdentity):
            return None
        now_s = self.now_s()
        if now_s > identity.valid_until_s:
            return f"the certificate of {identity} has expired"
        if now_s > self._authority_until_s:
            return "the certificate of the network's authority has expired"
        return None

    def rumour_of(self, statement: bytes) -> Rumour:
        """What a statement of the authority is to others.

        Raises:
            ValueError: it is none, or not of this authority.
        """
        revocation = Revocation.from_json(statement)
        if not self._verifier.believes(revocation):
            raise ValueError("the authority of this network has not signed that")
        return rumour_of(revocation)

    def node_refusal(self, connection: Connection, node: str) -> str | None:
        """Why whoever is there may not be this node; None if it may."""
        identity = self._identity(connection)
        return self._revoked(identity) or node_refusal(identity, node)

    def client_refusal(self, connection: Connection) -> str | None:
        """Why whoever is there may not be a client; None if it may."""
        identity = self._identity(connection)
        return self._revoked(identity) or client_refusal(identity)

    def _revoked(self, identity: PeerIdentity | None) -> str | None:
        if identity is None or identity.serial not in self.revocations:
            return None
        return f"the certificate of {identity} was taken back"

    @staticmethod
    def _identity(connection: Connection) -> PeerIdentity | None:
        """Who is there, as its certificate says; the connection remembers it."""
        if connection.peer_identity is None:
            secured = connection.extra("ssl_object")
            if secured is None:
                return None
            try:
                connection.peer_identity = peer_identity(secured)
            except SecurityError:
                return None
        identity = connection.peer_identity
        assert isinstance(identity, PeerIdentity)
        return identity
