"""Addresses of nodes: `HOST:PORT`, and `[HOST]:PORT` where the host has colons of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from ipaddress import ip_address

__all__ = ["is_anywhere", "is_own_address", "join_address", "split_address", "words_of"]

PORT_MAX = 65_535
LOOK_UP_S = 1.0
"""A node that starts does not wait longer to know which names are its own."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port.

    >>> split_address("127.0.0.1:7001"), split_address("[::1]:7001")
    (('127.0.0.1', 7001), ('::1', 7001))

    Raises:
        ValueError: it is no address; the text says what one looks like.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: a host with colons stands in brackets, as in [::1]:7001")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{address!r} is no address: it looks like 127.0.0.1:7001")
    if int(port) > PORT_MAX:
        raise ValueError(f"{address!r} is no address: a port is at most {PORT_MAX}")
    return host, int(port)


def is_anywhere(host: str) -> bool:
    """Whether the host stands for all addresses of a machine, and so for none that others can dial.

    >>> is_anywhere("0.0.0.0"), is_anywhere("::"), is_anywhere("127.0.0.1")
    (True, True, False)
    """
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


async def is_own_address(address: str, listen: str) -> bool:
    """Whether whoever dials the address reaches the node that listens there, and nobody else."""
    own_host, own_port = split_address(listen)
    try:
        host, port = split_address(address)
    except ValueError:
        return False  # Whoever dials it says what is wrong with it.
    if port != own_port:
        return False
    hosts, own_hosts = await asyncio.gather(_look_up(host), _look_up(own_host))
    if is_anywhere(own_host):
        return bool(hosts) and all(map(_is_of_this_machine, hosts))
    return bool(hosts) and hosts <= own_hosts


async def _look_up(host: str) -> set[str]:
    """The host's numeric addresses; none if nobody knows it, or not soon."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOK_UP_S):
            found = await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def _is_of_this_machine(host: str) -> bool:
    """Whether the numeric address is one of this machine: no other can be bound to."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.bind((host, 0))
    except OSError:
        return False
    return True


def join_address(host: str, port: int) -> str:
    """The address of a host and a port.

    >>> join_address("::1", 7001)
    '[::1]:7001'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def words_of(error: Exception) -> str:
    """Why an address cannot be reached, in the system's words and without the address.

    >>> words_of(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 7001)"))
    'Connection refused'
    """
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return str(error) if isinstance(error, ssl.SSLError) else os.strerror(error.errno)
    return str(error) or type(error).__name__
