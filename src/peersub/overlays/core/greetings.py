"""HELLO: what a node says first, and whether two nodes can work together.

A refusal is found by both sides alike from the two greetings, and names what differs and both
values, so that whoever runs the node knows what to change. Another minor version, features that
this node does not know, and another greeting of the overlay are no reason to refuse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.link_messages import Hello

__all__ = ["refusal", "settings_digest"]

SETTING_SHOWN_MAX = 80
"""Characters of a value that a refusal shows."""


def settings_digest(settings: Mapping[str, str]) -> bytes:
    """Equal settings have equal digests, whatever their order.

    >>> settings_digest({"a": "1", "b": "2"}) == settings_digest({"b": "2", "a": "1"})
    True
    """
    content = hashlib.blake2b(digest_size=16)
    for name in sorted(settings):
        for text in (name, settings[name]):
            data = text.encode("utf-8", "surrogatepass")
            content.update(b"%d:" % len(data))
            content.update(data)
    return content.digest()


def refusal(mine: Hello, theirs: Hello, dialled: str) -> str | None:
    """Why the two nodes cannot be linked, or None. `dialled` is the name the other is known by."""
    if theirs.peer.node == mine.peer.node:
        return f"{mine.peer.node} is this node itself"
    if theirs.peer.node != dialled:
        other = theirs.peer.node
        return f"the node has another name: it is {other!r}, not {dialled!r}: use that address"
    if theirs.network != mine.network:
        return _differ("network", mine.network, theirs.network, theirs.peer)
    if theirs.version[0] != mine.version[0]:
        return _differ("protocol version", _dotted(mine), _dotted(theirs), theirs.peer)
    if theirs.overlay != mine.overlay:
        return _differ("overlay", mine.overlay, theirs.overlay, theirs.peer)
    if theirs.settings_digest != mine.settings_digest:
        return _settings_differ(mine, theirs)
    return None


def _settings_differ(mine: Hello, theirs: Hello) -> str:
    here, there = dict(mine.settings), dict(theirs.settings)
    for name in sorted({**here, **there}):
        if here.get(name) != there.get(name):
            return _differ(f"setting {name}", here.get(name), there.get(name), theirs.peer)
    return f"the digest of the shared settings differs from that of {theirs.peer}"


def _differ(what: str, mine: str | None, theirs: str | None, peer: PeerId) -> str:
    return f"{what} differs: {_shown(mine)} here, {_shown(theirs)} at {peer}"


def _shown(value: str | None) -> str:
    if value is None:
        return "not set"
    return repr(value if len(value) <= SETTING_SHOWN_MAX else value[:SETTING_SHOWN_MAX] + "…")


def _dotted(hello: Hello) -> str:
    return ".".join(str(number) for number in hello.version)
