"""Waves: something told to all who can be reached over the edges of a layer, with feedback.

Whoever hears of a wave for the first time passes it on to all its other neighbours, and sends an
echo back when all of them have answered. So the echoes that reach the origin say that everybody
behind has heard (propagation of information with feedback, Segall 1983). A neighbour that is lost
counts as having answered, and the echo says that the wave was not whole.

An echo may be held back by whoever has something to do first (`hold`, `release`), and brings back
the largest label of those who have one that is larger than the wave's (`report`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from peersub.overlays.core.history import History
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.dag.messages import Announce, Census, Echo, Label

__all__ = ["WAVES_MAX", "Key", "Waves", "key_of"]

WAVES_MAX: Final = 4_096
"""Waves that are under way here; the oldest is let go, its echo not sent."""
HEARD_MAX: Final = 16_384
"""Waves that are known not to be new."""
HEARD_HORIZON_MS: Final = 600_000

Key: TypeAlias = tuple[str, bool, PeerId, int]
"""The layer, whether it is a census, the origin and its number."""


def key_of(wave: Announce | Census) -> Key:
    """What a wave is known by; its echoes name it."""
    if isinstance(wave, Census):
        return (wave.layer, True, wave.label.steward, wave.label.stamp)
    return (wave.layer, False, wave.origin, wave.number)


@dataclass(slots=True)
class _Passing:
    """A wave that is under way."""

    parent: PeerId | None
    """Whom the echo is for; nobody if the wave began here, or the parent is lost."""
    then: Callable[[bool, Label | None], None] | None
    waiting: dict[PeerId, None]
    is_whole: bool = True
    holds: dict[str, None] = field(default_factory=dict)
    label: Label | None = None


class Waves:
    """The waves that pass a node."""

    def __init__(self, send: Callable[[PeerId, Message], None]) -> None:
        self._send = send
        self._passing: dict[Key, _Passing] = {}
        self._heard: History[Key] = History(HEARD_MAX, HEARD_HORIZON_MS)

    @property
    def is_idle(self) -> bool:
        """Whether none is under way."""
        return not self._passing

    def waiting_for(self, key: Key) -> list[PeerId]:
        """Whose echo is open."""
        passing = self._passing.get(key)
        return [] if passing is None else list(passing.waiting)

    def begin(
        self,
        wave: Announce | Census,
        neighbours: Iterable[PeerId],
        now_ms: int,
        then: Callable[[bool, Label | None], None],
    ) -> None:
        """Tell all; `then` hears whether the wave was whole, and of which larger label, if any."""
        self._heard.add(key_of(wave), now_ms)
        self._pass_on(wave, None, list(neighbours), then)

    def hear(
        self,
        wave: Announce | Census,
        sender: PeerId,
        neighbours: Iterable[PeerId],
        now_ms: int,
    ) -> bool:
        """Whether the wave is new here: then it is passed on. `settle` must follow if so."""
        key = key_of(wave)
        if not self._heard.add(key, now_ms):
            self._send(sender, Echo(*key, True))
            return False
        self._pass_on(wave, sender, [peer for peer in neighbours if peer != sender], None)
        return True

    def _pass_on(
        self,
        wave: Announce | Census,
        parent: PeerId | None,
        neighbours: list[PeerId],
        then: Callable[[bool, Label | None], None] | None,
    ) -> None:
        if len(self._passing) >= WAVES_MAX:
            del self._passing[next(iter(self._passing))]
        self._passing[key_of(wave)] = _Passing(parent, then, dict.fromkeys(neighbours))
        for peer in neighbours:
            self._send(peer, wave)

    def settle(self, key: Key) -> None:
        """Send the echo, or end the wave that began here, if nothing is waited for."""
        passing = self._passing.get(key)
        if passing is None or passing.waiting or passing.holds:
            return
        del self._passing[key]
        if passing.parent is not None:
            self._send(passing.parent, Echo(*key, passing.is_whole, passing.label))
        elif passing.then is not None:
            passing.then(passing.is_whole, passing.label)

    def on_echo(self, sender: PeerId, echo: Echo) -> None:
        """A neighbour has told all behind it."""
        key = (echo.layer, echo.is_census, echo.origin, echo.number)
        passing = self._passing.get(key)
        if passing is not None and sender in passing.waiting:
            del passing.waiting[sender]
            passing.is_whole = passing.is_whole and echo.is_whole
            self.report(key, echo.label)
            self.settle(key)

    def report(self, key: Key, label: Label | None) -> None:
        """The echo is to bring a label back."""
        passing = self._passing.get(key)
        if passing is not None and label is not None:
            passing.label = label if passing.label is None else max(passing.label, label)

    def hold(self, key: Key, reason: str) -> None:
        """No echo until `release` is called for the same reason."""
        passing = self._passing.get(key)
        if passing is not None:
            passing.holds[reason] = None

    def release(self, reason: str) -> None:
        """What was to be done first is done."""
        for key in [key for key, passing in self._passing.items() if reason in passing.holds]:
            del self._passing[key].holds[reason]
            self.settle(key)

    def lost(self, peer: PeerId, layer: str) -> None:
        """There is no edge with this one any more in the layer whose edges the waves use."""
        for key, passing in list(self._passing.items()):
            over = key[0] if key[1] else ""
            if over != layer:
                continue
            if passing.parent == peer:
                passing.parent = None
            if passing.waiting.pop(peer, peer) is None:
                passing.is_whole = False
                self.settle(key)
