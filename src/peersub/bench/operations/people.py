"""The clients of a week of operations: they publish and read, and note what happens to them."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from peersub.bench.operations.checking import Facts, Received
from peersub.bench.resilience.worker import now_ms
from peersub.client import ClientError, ConnectionEvent, PublishFailedError, connect
from peersub.runtime.security.settings import TlsSettings
from peersub.runtime.tasks import end_tasks

__all__ = ["AGAIN_S", "LEVELS", "SYMBOLS", "Publisher", "Reader"]

SYMBOLS: Final = 4
LEVELS: Final = 10
UNDER_WAY_MAX: Final = 256
"""Publications of one publisher that have not ended; it waits beyond."""
PUBLISH_TIMEOUT_S: Final = 60.0
AGAIN_S: Final = 0.25
"""How long to wait after a failure before another attempt."""
TAKEN_AT_ONCE: Final = 64


class _Person(ABC):
    """A client that goes on until it is told to stop."""

    def __init__(self, identity: str, folder: Path, node: str, facts: Facts) -> None:
        self.identity = identity
        self.node = node
        self.facts = facts
        self._certificate = folder / f"{identity}.pem"
        self._task: asyncio.Task[None] | None = None

    @property
    def tls(self) -> TlsSettings:
        """Its certificate, as it is now."""
        return TlsSettings.beside(self._certificate)

    def begin(self) -> None:
        """Begin, or go on."""
        self._task = asyncio.create_task(self._live())

    async def stop(self) -> None:
        """Stop, and close the connection."""
        task, self._task = self._task, None
        if task is not None:
            await end_tasks(task)

    @abstractmethod
    async def _live(self) -> None:
        """What it does until it is cancelled."""


class Publisher(_Person):
    """Publishes at a rate, at least once, events of all symbols and levels."""

    def __init__(
        self, identity: str, folder: Path, node: str, facts: Facts, *, rate: float, seed: int
    ) -> None:
        super().__init__(identity, folder, node, facts)
        self._rate = rate
        self._random = random.Random(f"{seed} {identity}")
        self._number = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def _live(self) -> None:
        async with connect(self.node, tls=self.tls, name=self.identity) as client:
            begun_ms, done = now_ms(), 0
            try:
                while True:
                    await asyncio.sleep(0.02)
                    due = int((now_ms() - begun_ms) / 1_000 * self._rate)
                    while done < due:
                        done += 1
                        if len(self._under_way) < UNDER_WAY_MAX:
                            task = asyncio.create_task(self._publish(client.publish))
                            self._under_way.add(task)
                            task.add_done_callback(self._under_way.discard)
            finally:
                # What is under way ends: nobody knows else whether it was promised.
                while self._under_way:
                    await asyncio.wait(set(self._under_way))

    async def _publish(self, publish: Callable[..., object]) -> None:
        self._number += 1
        event_id = f"{self.identity}-{self._number}"
        symbol, level = f"s{self._random.randrange(SYMBOLS)}", self._random.randrange(LEVELS)
        event = {"symbol": symbol, "level": level, "by": self.identity}
        begun_ms, is_acknowledged = now_ms(), True
        try:
            await publish(  # type: ignore[misc]
                event, id=event_id, delivery="at_least_once", timeout=PUBLISH_TIMEOUT_S
            )
        except (ClientError, PublishFailedError):
            is_acknowledged = False
        self.facts.ended(
            event_id,
            self.identity,
            symbol,
            level,
            begun_ms,
            now_ms(),
            is_acknowledged=is_acknowledged,
        )


class Reader(_Person):
    """Reads one symbol at a node, under a durable name or not.

    Attributes:
        pause_s: how long it thinks about each event.
        refusals: why it was turned away, the last few times.
    """

    def __init__(
        self,
        identity: str,
        folder: Path,
        node: str,
        facts: Facts,
        *,
        symbol: str,
        is_durable: bool = True,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(identity, folder, node, facts)
        self.name = f"{identity}/{symbol}"
        self.pause_s = pause_s
        self.refusals: list[str] = []
        self.is_ready = asyncio.Event()
        self._symbol = symbol
        self._durable = "week" if is_durable else None
        self._connections = 0
        facts.reads(self.name, identity, symbol, is_durable=is_durable)

    async def _live(self) -> None:
        while True:
            try:
                await self._read()
            except (ClientError, OSError, ValueError) as error:
                self.refusals = [*self.refusals[-9:], str(error)]
            await asyncio.sleep(AGAIN_S)

    async def _read(self) -> None:
        attached_ms = now_ms()
        async with (
            connect(self.node, tls=self.tls, name=self.name) as client,
            client.subscribe(
                f"symbol = '{self._symbol}'", durable=self._durable, auto_acknowledge=False
            ) as subscription,
        ):
            self._connections += 1
            client.on_connection(self._note_connection)
            ready = asyncio.create_task(self._note_ready(subscription.ready))
            try:
                while True:
                    count = 1 if self.pause_s else TAKEN_AT_ONCE
                    for each in await subscription.take(count):
                        marked = each.event.redelivered
                        way = f"over connection {self._connections} to {client.node}"
                        way += f" in {each.hops} hops, position {each.position}"
                        received = Received(each.event.id, attached_ms, now_ms(), marked, way)
                        self.facts.received(self.name, received)
                    await subscription.acknowledge()
                    if self.pause_s:
                        await asyncio.sleep(self.pause_s)
            finally:
                ready.cancel()
                await asyncio.gather(ready, return_exceptions=True)

    def _note_connection(self, event: ConnectionEvent) -> None:
        self._connections += event.kind == "connected"

    async def _note_ready(self, ready: Callable[[], object]) -> None:
        await ready()  # type: ignore[misc]
        self.facts.ready(self.name, now_ms())
        self.is_ready.set()
