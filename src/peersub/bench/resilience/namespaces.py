"""Two network namespaces with a cable between them that can be pulled: a real partition.

Or one in which every packet takes long, and some are lost. Needs the `ip` command and the right to
use it, for the latter also `tc` and a kernel with netem; `reason_not` says what is missing. Names
and addresses are of this process, so that two runs do not meet. What was made is removed at last.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Final

__all__ = ["SLOW_MS", "Sides", "reason_not"]

SLOW_MS: Final = 100
SLOW_LOSS_PERCENT: Final = 1

_NOBODY: Final = "02:00:00:00:00:99"
"""The address of a network card that does not exist."""


def reason_not(*, slow: bool = False) -> str | None:
    """Why this machine gives no namespaces, or no `slow` ones; None if it does."""
    for command in ("ip", "tc") if slow else ("ip",):
        if shutil.which(command) is None:
            return f"there is no {command} command (iproute2)"
    name = f"peersub-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return made.stderr.strip() or "ip netns add failed"
    try:
        if slow:
            _slow_down(name, "lo")
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip() or "tc qdisc add failed"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


def _slow_down(name: str, card: str) -> None:
    """Let packets on a network card of a namespace take long, and some get lost."""
    command = ["tc", "-n", name, "qdisc", "add", "dev", card, "root", "netem"]
    command += ["delay", f"{SLOW_MS}ms", "loss", f"{SLOW_LOSS_PERCENT}%"]
    subprocess.run(command, check=True, capture_output=True, text=True)


class Sides:
    """Two namespaces, each with one address; a context manager."""

    def __init__(self) -> None:
        number = os.getpid()
        self.names = (f"peersub-{number}-a", f"peersub-{number}-b")
        octets = (number >> 8) % 200 + 20, number % 256
        self.hosts = tuple(f"10.{octets[0]}.{octets[1]}.{last}" for last in (1, 2))
        self._cable = (f"ps{number % 100_000}a", f"ps{number % 100_000}b")

    def __enter__(self) -> Sides:
        for name in self.names:
            _ip("netns", "add", name)
        _ip("link", "add", self._cable[0], "type", "veth", "peer", "name", self._cable[1])
        for name, cable, host in zip(self.names, self._cable, self.hosts, strict=True):
            _ip("link", "set", cable, "netns", name)
            _ip("-n", name, "addr", "add", f"{host}/24", "dev", cable)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", cable, "up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def prefix(self, side: int) -> list[str]:
        """What a command begins with to run on a side."""
        return ["ip", "netns", "exec", self.names[side]]

    def slow_down(self) -> None:
        """Let packets within and between the sides take long, and some get lost."""
        for name, cable in zip(self.names, self._cable, strict=True):
            for card in ("lo", cable):
                _slow_down(name, card)

    def cut(self) -> None:
        """Pull the cable: packets vanish, and nobody is told."""
        # A link that is down would make the kernel say so. Frames to a card that nobody has are
        # lost in silence, as on a real network.
        for name, cable, host in self._ways():
            _ip("-n", name, "neigh", "replace", host, "lladdr", _NOBODY, "dev", cable)

    def mend(self) -> None:
        """Put it back."""
        for name, cable, host in self._ways():
            _ip("-n", name, "neigh", "del", host, "dev", cable)

    def _ways(self) -> list[tuple[str, str, str]]:
        """From each side: its name, its end of the cable, the address at the other end."""
        return list(zip(self.names, self._cable, reversed(self.hosts), strict=True))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
