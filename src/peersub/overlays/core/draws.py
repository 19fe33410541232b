"""Keyed draws: choices that look random and are functions of what they are about.

A protocol has no generator of its own whose state would depend on the order of events. It asks
`draw(seed, purpose, ...)`, and the simulator, the runtime and the bulk form of an overlay get the
same answer.
"""

from __future__ import annotations

import hashlib

__all__ = ["draw", "draw_below", "draw_share"]


def draw(seed: int, purpose: str, *about: str | int | bytes) -> int:
    """64 bits that depend on the seed, the purpose and what the draw is about, and nothing else.

    >>> draw(1, "key", "n1") == draw(1, "key", "n1"), draw(1, "key", "n1") == draw(1, "key", "n2")
    (True, False)
    """
    content = hashlib.blake2b(digest_size=8)
    for part in (seed, purpose, *about):
        if isinstance(part, int):
            tag, data = b"i", str(part).encode()
        elif isinstance(part, str):
            tag, data = b"s", part.encode("utf-8", "surrogatepass")
        else:
            tag, data = b"b", bytes(part)
        content.update(b"%b%d:" % (tag, len(data)))
        content.update(data)
    return int.from_bytes(content.digest(), "big")


def draw_below(bound: int, seed: int, purpose: str, *about: str | int | bytes) -> int:
    """A number from 0 to bound - 1; for bounds far below 2^64 all are equally likely."""
    assert bound > 0
    return draw(seed, purpose, *about) * bound >> 64


def draw_share(seed: int, purpose: str, *about: str | int | bytes) -> float:
    """A number from 0 up to, but not including, 1."""
    return (draw(seed, purpose, *about) >> 11) / (1 << 53)
