"""The version of the protocol between nodes, and what a node may offer beyond it.

Nodes of one major version understand each other. A minor version adds what others may ignore:
trailing fields of messages, and *features*, which a node uses only towards peers that named them.
"""

from __future__ import annotations

__all__ = [
    "BATCHES_FEATURE",
    "BATCH_COPIES_FEATURE",
    "COPIES_FEATURE",
    "KEYS_FEATURE",
    "MEMORY_FEATURE",
    "MIRRORS_FEATURE",
    "PROTOCOL_VERSION",
    "RUMOURS_FEATURE",
    "TUNNELS_FEATURE",
    "known_features",
]

PROTOCOL_VERSION: tuple[int, int] = (1, 1)
"""Major and minor. 1.1 brought what drivers say to each other before HELLO, and clients."""

BATCHES_FEATURE = "batches"
"""The node takes many events in one message, in columns."""

KEYS_FEATURE = "keys"
"""The node takes the names of events with their keys, which are longer than ids (`event_keys`)."""

MEMORY_FEATURE = "memory"
"""The node has no disk: it keeps no copies for a home that has one."""

TUNNELS_FEATURE = "tunnels"
"""The node relays for others, and accepts what comes through a relay."""

RUMOURS_FEATURE = "rumours"
"""The node spreads rumours."""

MIRRORS_FEATURE = "mirrors"
"""The node looks after durable subscriptions of others."""

COPIES_FEATURE = "copies"
"""The node says which events of durable subscriptions are on its disk, and watches for others.

Next to it stands on how many disks it wants them: `copies=2`."""

BATCH_COPIES_FEATURE = "batch-copies"
"""The node says so of many events of a batch at once, and stores them so."""


def known_features(version: tuple[int, int], features: tuple[str, ...]) -> tuple[str, ...]:
    """Of these features, those that a node of a version knows: to offer, and to make use of.

    >>> known_features((1, 0), ("tunnels", "batches")), known_features((1, 1), ("later",))
    (('tunnels',), ('later',))
    """
    if version >= (1, 1):
        return features
    return tuple(each for each in features if each == TUNNELS_FEATURE)
