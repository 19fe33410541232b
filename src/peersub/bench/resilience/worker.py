"""One node in a process of its own: obeys commands on stdin, tells on stdout what was delivered.

Both are JSON lines. Commands: `subscribe` {name, filter}, `publish` {rate, count, symbols, prefix},
`status`, `leave`. What it tells: `started` {node}, `ready` {name}, `got` [[name, event,
hops, ms], …], `ended` [[event, published ms, ended ms, failure], …], `published`, `status`, `left`.
Times are milliseconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.live_node import LiveNode
from peersub.runtime.settings import NodeSettings
from peersub.wire import sealed

if TYPE_CHECKING:
    import numpy as np

TELL_MS = 50
PUBLISH_EVERY_MS = 10


def now_ms() -> float:
    """Milliseconds of a clock that all processes of the machine share."""
    return time.monotonic() * 1_000


class Teller:
    """Collects what is to be told, and writes it now and then: a delivery costs little."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, int, float]] = []
        self.ended: list[tuple[str, float, float, str | None]] = []

    def tell(self, **line: Any) -> None:
        """One line, at once."""
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def flush(self) -> None:
        """What was collected."""
        if self.got:
            self.tell(got=self.got)
            self.got = []
        if self.ended:
            self.tell(ended=self.ended)
            self.ended = []

    async def keep_telling(self) -> None:
        """Flush now and then, for ever."""
        while True:
            await asyncio.sleep(TELL_MS / 1_000)
            self.flush()


class NotingSink:
    """A subscriber that notes what it gets, and when."""

    def __init__(self, name: str, teller: Teller) -> None:
        self._name = name
        self._teller = teller

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """Note the event."""
        self._teller.got.append((self._name, publication.id, hops, now_ms()))

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """Note the events."""
        at_ms = now_ms()
        for row in rows.tolist():
            self._teller.got.append((self._name, batch.event_id(row), hops, at_ms))

    def ready(self) -> None:
        """Tell it."""
        self._teller.tell(ready=self._name)

    def ended(self, reason: str) -> None:
        """Nothing to note."""


class Worker:
    """The node, and what it is told to do."""

    def __init__(self, settings: NodeSettings) -> None:
        self._node = LiveNode(settings)
        self._teller = Teller()
        self._publishing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Start, obey, and end when told to or when nobody is there to obey."""
        await self._node.start()
        self._teller.tell(started=self._node.name)
        telling = asyncio.create_task(self._teller.keep_telling())
        try:
            await self._obey()
        finally:
            telling.cancel()
            self._teller.flush()

    async def _obey(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            match command["do"]:
                case "subscribe":
                    name = command["name"]
                    sink = NotingSink(name, self._teller)
                    self._node.subscribe(name, Filter(command["filter"]), sink)
                case "publish":
                    self._publishing = asyncio.create_task(self._publish(command))
                case "status":
                    self._teller.tell(status=self._node.status())
                case "leave":
                    await self._node.stop()
                    self._teller.tell(left=self._node.name)
                    return
                case _:
                    return

    async def _publish(self, command: dict[str, Any]) -> None:
        """Publish at a rate, at least once, and note what becomes of each event."""
        rate, count, symbols = command["rate"], command["count"], command["symbols"]
        begun: dict[str, float] = {}

        def on_ended(event_id: str, failure: str | None) -> None:
            self._teller.ended.append((event_id, begun.pop(event_id), now_ms(), failure))

        begin, done = now_ms(), 0
        while done < count:
            await asyncio.sleep(PUBLISH_EVERY_MS / 1_000)
            due = min(int((now_ms() - begin) * rate / 1_000), count)
            publications = []
            for number in range(done, due):
                event_id = f"{command['prefix']}{number}"
                attributes = {"symbol": f"s{number * 7919 % symbols}", "number": number}
                begun[event_id] = now_ms()
                publication = Publication(
                    event_id, attributes, None, delivery=Delivery.AT_LEAST_ONCE
                )
                publications.append(sealed(publication))
            done = due
            if publications:
                self._node.publish(publications, on_ended)
        while begun:
            await asyncio.sleep(PUBLISH_EVERY_MS / 1_000)
        self._teller.flush()
        self._teller.tell(published=count)


def main() -> None:
    """Run with the settings that the first argument has as JSON."""
    given = json.loads(sys.argv[1])
    given["join"] = tuple(given.get("join", ()))
    # Single events all the way: many nodes share the machine, and need not load what they lack.
    given.setdefault("columns", False)
    asyncio.run(Worker(NodeSettings(**given)).run())


if __name__ == "__main__":
    main()
