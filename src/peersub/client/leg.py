"""A leg: one of the ways on which events come to a subscription.

A subscription stands on one leg, its number at a node. While it moves to another node, or changes
what it wants, it has a second one, and leaves the first when it stands firmly on that. Each leg has
credit of its own: a node counts for itself what it may send.
"""

from __future__ import annotations

from typing import Protocol

from peersub.client.session import Session
from peersub.filters.filter import Filter
from peersub.wire.client_messages import (
    ConsumedElsewhere,
    Credit,
    Message,
    MoveFollowed,
    Publication,
    SubscribeWanted,
    SubscriptionPhase,
    SubscriptionState,
    UnsubscribeWanted,
)

__all__ = ["Leg", "LegOwner"]


class LegOwner(Protocol):
    """A subscription, as its legs see it."""

    def wish(self, leg: Leg, credit: int) -> SubscribeWanted:
        """What asks the leg's node for the subscription."""
        ...

    def on_event(self, leg: Leg, publication: Publication, hops: int, position: int | None) -> None:
        """An event."""
        ...

    def on_state(self, leg: Leg, state: SubscriptionState) -> None:
        """What has become of the leg at its node."""
        ...

    def on_losses(self, leg: Leg, through: int, gaps: int) -> None:
        """A durable subscription lost events before they were read."""
        ...

    def on_move_proposed(self, leg: Leg, node: str) -> None:
        """The leg's node proposes another one."""
        ...

    def on_lost(self, leg: Leg) -> None:
        """The connection is lost; another may follow."""
        ...

    def on_other_node(self, leg: Leg) -> None:
        """The connection that follows is with another node."""
        ...

    def on_closed(self, leg: Leg, reason: str | None) -> None:
        """Nothing more comes on this leg; None if the client was closed."""
        ...


class Leg:
    """A number of a session, for a subscription.

    Args:
        owner: the subscription.
        session: with the node.
        wanted: what is wanted of the node.
        window: events that may be here and not be taken.
        follows: whether another node has proposed this one.

    Attributes:
        waiting: events that came on this leg and were not taken yet.
        state: what the node last said; None if it has not, or on a connection that is gone.
    """

    __slots__ = (
        "_follows",
        "_owed",
        "_owner",
        "_was_elsewhere",
        "filter",
        "number",
        "session",
        "state",
        "waiting",
        "window",
    )

    def __init__(
        self,
        owner: LegOwner,
        session: Session,
        wanted: Filter,
        window: int,
        *,
        follows: bool = False,
    ) -> None:
        self.session = session
        self.filter = wanted
        self.number = session.new_number()
        self.window = window
        self.waiting = 0
        self.state: SubscriptionState | None = None
        self._owner = owner
        self._follows = follows
        self._was_elsewhere = False
        """Whether the node must hear yet that events may have come from another one."""
        self._owed = 0
        """Events that were taken, and for which no credit has been granted yet."""

    @property
    def is_ready(self) -> bool:
        """Whether the node keeps its promise."""
        return self.state is not None and self.state.phase is SubscriptionPhase.READY

    def stand(self) -> None:
        """Begin; raises ClientError if the session is closed."""
        self.session.add(self.number, self)

    def leave(self, *, forget: bool = False) -> None:
        """Nothing more is wanted on this leg."""
        self.session.send((UnsubscribeWanted(self.number, forget),))
        self.session.remove(self.number)

    def owe(self) -> None:
        """One more was taken: grant the node credit, not for each one by itself."""
        self._owed += 1
        if self._owed * 2 >= self.window:
            self.session.send((Credit(self.number, self._owed),))
            self._owed = 0

    # --- what the session says -------------------------------------------------------------------

    def begin(self) -> list[Message]:
        """What asks the node for the subscription."""
        # What waits here has used up credit already, and gives it back when it is taken.
        self._owed = 0
        wish = self._owner.wish(self, max(self.window - self.waiting, 0))
        if self._was_elsewhere and wish.durable and self.session.tells_elsewhere:
            return [ConsumedElsewhere(self.number), wish]
        return [MoveFollowed(self.number), wish] if self._follows else [wish]

    def on_event(self, publication: Publication, hops: int, position: int | None) -> None:
        """An event."""
        self._owner.on_event(self, publication, hops, position)

    def on_state(self, state: SubscriptionState) -> None:
        """What has become of the leg at its node."""
        self.state = state
        self._was_elsewhere = False
        self._owner.on_state(self, state)

    def on_losses(self, through: int, gaps: int) -> None:
        """The node lost events of it."""
        self._owner.on_losses(self, through, gaps)

    def on_move_proposed(self, node: str) -> None:
        """The node proposes another one."""
        self._owner.on_move_proposed(self, node)

    def on_lost(self) -> None:
        """The connection is lost; the session asks again on the next one."""
        self._owner.on_lost(self)
        self.state = None

    def on_other_node(self) -> None:
        """The session goes on with another node."""
        self._was_elsewhere = True
        self._owner.on_other_node(self)

    def on_closed(self, reason: str | None) -> None:
        """Nothing more comes."""
        self._owner.on_closed(self, reason)
