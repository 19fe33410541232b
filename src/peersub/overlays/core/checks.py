"""What checkers ask of an overlay: functions from peers to complaints, in words.

An overlay's `invariants` module has one `Checks` named `CHECKS`. Checks look at peers and change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from peersub.overlays.core.causes import Cause
from peersub.overlays.core.effects import Effect

__all__ = ["Checks", "StepCheck"]

StepCheck: TypeAlias = Callable[[Any, Cause, Sequence[Effect]], list[str]]
"""Takes a peer, the cause that it has handled, and the effects."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one overlay."""

    quiet: Callable[[Sequence[Any]], list[str]]
    """Of the peers of a network at rest, all of which can reach each other."""
    sample: Callable[[Sequence[Any], Sequence[Any]], list[str]] | None = None
    """The same, for networks too large to look at each peer closely: of some of the peers."""
    step: StepCheck | None = None
    """Of a peer by itself, after each step."""
    watch: Callable[[Callable[[str], Any | None]], StepCheck] | None = None
    """Makes what sees all peers, and remembers what it saw; takes the peer on a node, if it is
    on."""
