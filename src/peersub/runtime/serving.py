"""A node that serves clients: the node, its gate, its certificates and its permissions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from peersub.runtime.addresses import split_address
from peersub.runtime.client_gate import ClientGate
from peersub.runtime.client_ports import DoorLimits, NetworkName
from peersub.runtime.client_rules import PermittedRules
from peersub.runtime.clock import Clock
from peersub.runtime.live_node import LiveNode
from peersub.runtime.logs import NodeLog
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.permissions import Permissions
from peersub.runtime.security.settings import binding_refusal
from peersub.runtime.settings import NodeSettings

if TYPE_CHECKING:
    from peersub.runtime.driver import Observer
    from peersub.runtime.node_security import NodeSecurity
    from peersub.runtime.security.settings import TlsSettings

__all__ = ["reload_files", "served_node"]

REVOCATIONS: Final = "revocations.jsonl"
"""Where a node with a data folder keeps which certificates were taken back."""


_log = NodeLog(__name__)


def served_node(
    settings: NodeSettings,
    tls: TlsSettings | None = None,
    permissions: Permissions | Path | None = None,
    observer: Observer | None = None,
    *,
    insecure: bool = False,
) -> tuple[LiveNode, ClientGate]:
    """A node that takes clients as soon as it is started, and its gate.

    Args:
        settings: of the node.
        tls: the files of its certificate, if it is to ask for those of others.
        permissions: what clients may do, or a file that says so; everything, without.
        observer: is told each cause with its effects, for a trace.
        insecure: whether it may listen where others reach it, without a certificate.

    Raises:
        SecurityError: the files of the certificate cannot be used, or there should be some.
        PermissionsError: the file of permissions cannot be used.
        SettingsError: there is no such overlay, or setting.
    """
    refusal = None if insecure else binding_refusal(split_address(settings.listen)[0], tls)
    if refusal is not None:
        raise SecurityError(f"{refusal}.")
    security: NodeSecurity | None = None
    if tls is not None:
        from peersub.runtime.node_security import NodeSecurity as Secured

        data = settings.data
        security = Secured(tls, None if data is None else data / REVOCATIONS)
    rules: PermittedRules | None = None
    file = permissions if isinstance(permissions, Path) else None
    if permissions is not None:
        granted = Permissions.load(permissions) if isinstance(permissions, Path) else permissions
        rules = PermittedRules(granted, Clock().now_ms, DoorLimits.of(settings.limits))
    node = LiveNode(settings, observer=observer, security=security, durable_rules=rules)
    network = NetworkName(settings.overlay, settings.network)
    gate = ClientGate(node, network, rules, security, settings.limits, node.filter_budget)
    gate.permissions_file = file
    node.on_client_connection = gate
    node.on_end = gate.end
    return node, gate


async def reload_files(node: LiveNode, gate: ClientGate) -> None:
    """Read certificate and permissions again; what cannot be used stays as it is, and is logged."""
    if node.security is not None:
        try:
            node.security.reload()
            _log.info("the certificate was read again")
        except ValueError as error:
            _log.error("the certificate stays as it is: %s", str(error))
    if gate.permissions_file is not None:
        try:
            await gate.reload()
            _log.info("the permissions were read again")
        except ValueError as error:
            _log.error("the permissions stay as they are: %s", str(error))
    if node.security is None and gate.permissions_file is None:
        _log.info("there are no certificates and no permissions to read again")
