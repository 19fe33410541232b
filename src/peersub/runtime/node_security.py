"""What a node with TLS asks of those at the other end of its connections.

The handshake has shown that a certificate is of the network's authority; here it is decided whether
its holder may be the node that it says it is, or a client, and whether it was taken back.
"""

from __future__ import annotations

from collections.abc import Callable

from peersub.runtime.connection import Connection
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import PeerIdentity, client_refusal, node_refusal
from peersub.runtime.security.settings import TlsSettings
from peersub.runtime.security.tls import client_context, peer_identity, server_context

__all__ = ["NodeSecurity"]


class NodeSecurity:
    """The certificates of a node, and how it judges those of others.

    Args:
        settings: the files of the node.
        is_revoked: whether the certificate of this number was taken back.

    Raises:
        SecurityError: the files cannot be used.
    """

    def __init__(
        self, settings: TlsSettings, is_revoked: Callable[[int], bool] | None = None
    ) -> None:
        self.server_tls = server_context(settings)
        self.client_tls = client_context(settings)
        self._is_revoked = is_revoked

    def node_refusal(self, connection: Connection, node: str) -> str | None:
        """Why whoever is there may not be this node; None if it may."""
        identity = self._identity(connection)
        return self._revoked(identity) or node_refusal(identity, node)

    def client_refusal(self, connection: Connection) -> str | None:
        """Why whoever is there may not be a client; None if it may."""
        identity = self._identity(connection)
        return self._revoked(identity) or client_refusal(identity)

    def _revoked(self, identity: PeerIdentity | None) -> str | None:
        if identity is None or self._is_revoked is None or not self._is_revoked(identity.serial):
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
