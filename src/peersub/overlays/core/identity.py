"""Who takes part: nodes, and the protocol peers that live on them.

A node is named by the address at which others reach it. A peer is a node's part in an overlay: the
incarnation grows with each start of the node, so that what an earlier life sent is never taken for
the present one's; the slot tells the peers of one node apart.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NODE_NAME_BYTES_MAX", "NUMBERED_NODE_PREFIX", "PeerId", "numbered_node"]

NODE_NAME_BYTES_MAX = 255
NUMBERED_NODE_PREFIX = "n"
"""What the names of nodes begin with that have no address: those of simulations and plans."""


def numbered_node(number: int) -> str:
    """The name of a node of a simulation or a plan.

    >>> numbered_node(7)
    'n7'
    """
    return f"{NUMBERED_NODE_PREFIX}{number}"


class PeerId(NamedTuple):
    """A protocol peer: the node it lives on, which life of that node, and its slot there."""

    node: str
    incarnation: int = 0
    slot: int = 0

    def __str__(self) -> str:
        """
        >>> str(PeerId("n7")), str(PeerId("n7", 2, 3))
        ('n7', 'n7~2/3')
        """
        life = f"~{self.incarnation}" if self.incarnation else ""
        return f"{self.node}{life}/{self.slot}" if self.slot else f"{self.node}{life}"
