"""Effects in the order they were asked for, with what goes to one peer in one Send."""

from __future__ import annotations

from peersub.overlays.core.effects import Disconnect, Effect, Send
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message

__all__ = ["Outbox"]


class Outbox:
    """Collects the effects of one handled cause."""

    __slots__ = ("_effects", "_letters")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._letters: dict[PeerId, list[Message]] = {}

    def emit(self, effect: Effect) -> None:
        """Add an effect; what was said to a peer goes out before its link is closed."""
        if isinstance(effect, Disconnect):
            letters = self._letters.pop(effect.peer, None)
            if letters:
                self._effects.append(Send(effect.peer, tuple(letters)))
        self._effects.append(effect)

    def send(self, peer: PeerId, message: Message) -> None:
        """Add a message; those to one peer keep their order."""
        letters = self._letters.get(peer)
        if letters is None:
            self._letters[peer] = [message]
        else:
            letters.append(message)

    def forget(self, peer: PeerId) -> None:
        """Drop what was to be sent to a peer whose link is gone."""
        self._letters.pop(peer, None)

    def take(self) -> list[Effect]:
        """All effects since the last time."""
        effects = self._effects
        if self._letters:
            effects += [Send(peer, tuple(letters)) for peer, letters in self._letters.items()]
            self._letters = {}
        self._effects = []
        return effects
