"""Moves: a client's subscriptions follow the proposals of nodes, and nobody who reads them notices.

A node may say that a subscription would be in better company on another node (`MoveProposed`). The
client then makes a link to that node, as the same client with the same certificate; subscribes
there, as well; waits until that is ready; waits for a while longer, in which what is under way to
the old node arrives (`OVERLAP_S`); and only then unsubscribes at the old one. Events that come on
both ways are handed out once.

If the other node cannot be reached, is of another network, does not take the client, grants it less
than the old one does, or is not ready in time, everything stays as it was. Should a link to such a
node break later, its subscriptions go home, to the node that the client was connected with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from peersub.client.errors import ClientError, ConnectError
from peersub.client.session import Session
from peersub.runtime.tasks import end_tasks

if TYPE_CHECKING:
    from peersub.client.subscription import Subscription

__all__ = ["Dial", "Moves"]

Dial: TypeAlias = Callable[[str], Awaitable[tuple[Session, Callable[[], Awaitable[None]]]]]
"""From a node's address to a session with it, and what ends the link."""

OVERLAP_S: Final = 10.0
"""How long a subscription stays on the old node when it is ready on the new one. Events that were
published before take longer than this only in networks that are in trouble."""
READY_S: Final = 60.0
"""How long the new node may take to be ready."""
LINKS_MAX: Final = 16
"""Nodes beside its own that a client is linked to; further proposals are not followed."""


class _Away:
    """A link to another node than the client's own."""

    def __init__(self, dialling: asyncio.Task[tuple[Session, Callable[[], Awaitable[None]]]]):
        self.dialling = dialling
        self.expected = 0
        """Subscriptions that are about to stand there."""

    @property
    def session(self) -> Session | None:
        """The session, once there is one."""
        done = self.dialling.done() and not self.dialling.cancelled()
        return self.dialling.result()[0] if done and not self.dialling.exception() else None

    @property
    def is_unused(self) -> bool:
        """Whether nobody stands there, nor is about to."""
        session = self.session
        return not self.expected and (session is None or not session.is_used)


class Moves:
    """What a client needs to let its subscriptions move.

    Args:
        home: the session with the client's own node.
        dial: makes links to other nodes.
    """

    def __init__(self, home: Session, dial: Dial) -> None:
        self._home = home
        self._dial = dial
        self._away: dict[str, _Away] = {}
        self._moving: dict[Subscription, asyncio.Task[None]] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, beside its own, that the client is linked to."""
        return tuple(node for node, away in self._away.items() if away.session is not None)

    def propose(self, subscription: Subscription, node: str) -> None:
        """Another node suits the subscription better: let it move, if nothing speaks against it."""
        known = node in self._away or node == self._home_node
        if self._is_closed or subscription in self._moving:
            return
        if known or len(self._away) < LINKS_MAX:
            task = asyncio.get_running_loop().create_task(self._move(subscription, node))
            self._moving[subscription] = task
            task.add_done_callback(lambda _: self._moving.pop(subscription, None))

    def is_moving(self, subscription: Subscription) -> bool:
        """Whether the subscription is on its way."""
        return subscription in self._moving

    async def stay(self, subscription: Subscription) -> None:
        """Give up a move, if there is one."""
        task = self._moving.get(subscription)
        if task is not None:
            await end_tasks(task)

    async def close(self) -> None:
        """End all links but the client's own."""
        self._is_closed = True
        for subscription in list(self._moving):
            await self.stay(subscription)
        for node in list(self._away):
            self._release(node)
        for task in list(self._closing):
            await task

    # --- moving ----------------------------------------------------------------------------------

    @property
    def _home_node(self) -> str:
        return "" if self._home.welcome is None else self._home.welcome.node

    async def _move(self, subscription: Subscription, node: str) -> None:
        away: _Away | None = None
        try:
            if node == self._home_node:
                session = self._home
            else:
                away = self._linked(node)
                away.expected += 1
                session, _ = await asyncio.shield(away.dialling)
            await self._go(subscription, session)
        except ClientError:
            pass  # It stays where it is.
        finally:
            if away is not None:
                away.expected -= 1
                self._tidy(node)

    async def _go(self, subscription: Subscription, session: Session) -> None:
        leg = subscription.step(session)
        if leg is None:
            return
        try:
            async with asyncio.timeout(READY_S):
                await subscription.stands_on(leg)
            # On the old leg what is under way arrives meanwhile.
            await asyncio.sleep(OVERLAP_S)
        except TimeoutError:
            pass
        else:
            subscription.settle_on(leg)
        finally:
            subscription.step_back(leg)

    # --- links -----------------------------------------------------------------------------------

    def _linked(self, node: str) -> _Away:
        away = self._away.get(node)
        if away is None:
            task = asyncio.get_running_loop().create_task(self._dialled(node))
            away = self._away[node] = _Away(task)
        return away

    async def _dialled(self, node: str) -> tuple[Session, Callable[[], Awaitable[None]]]:
        session, end = await self._dial(node)
        home, there = self._home.welcome, session.welcome
        if home is None or there is None or there.network != home.network:
            session.close()
            await end()
            raise ConnectError(f"{node} is of another network")
        session.on_unused = lambda: self._tidy(node)
        return session, end

    def _tidy(self, node: str) -> None:
        """End a link that nobody uses."""
        away = self._away.get(node)
        if away is not None and away.is_unused:
            self._release(node)

    def _release(self, node: str) -> None:
        away = self._away.pop(node)
        task = asyncio.get_running_loop().create_task(_ended(away))
        self._closing[task] = None
        task.add_done_callback(lambda _: self._closing.pop(task, None))


async def _ended(away: _Away) -> None:
    with suppress(ClientError):
        session, end = await away.dialling
        session.on_unused = None
        session.close()
        await end()
