"""One node in a process of its own: obeys commands on stdin, tells on stdout what was delivered.

Both are JSON lines. Commands:

* `subscribe` {name, filter or xpath}, `unsubscribe` {name};
* `publish` {rate, count, symbols, prefix, first}: events that are made here, at least once;
* `events` {events: [[event, attributes, body], …], delivery, batch}: these events, attributes and
  bodies in base 64; with the name of a batch they are handed over together, in columns;
* `status`, and `leave`, which ends the process;
* `reload`: the permissions again; `disk` {full}: nothing more fits on it, or all does again.

What it tells: `started` {node} or `failed` {reason}, `ready` {name}, `got` [[name, event, hops,
ms], …], `held` [[name, event, what it hashes to], …] for subscriptions that ask for `content`,
`ended` [[event, published ms, ended ms, failure], …], `published`, `status`, `left`, `reloaded`.
Times are milliseconds of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peersub.events.envelope import content_hash
from peersub.filters.filter import Filter
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.link import LinkSettings
from peersub.overlays.core.publication import Delivery, Publication
from peersub.runtime.collecting import keep_waits_short
from peersub.runtime.connection import ConnectionSettings
from peersub.runtime.limits import ServingLimits
from peersub.runtime.live_node import StartError
from peersub.runtime.liveness import LivenessSettings
from peersub.runtime.security.settings import TlsSettings
from peersub.runtime.serving import served_node
from peersub.runtime.settings import NodeSettings
from peersub.runtime.transport import TransportSettings
from peersub.wire import sealed, unpack_attributes

if TYPE_CHECKING:
    import numpy as np

TELL_MS = 50
PUBLISH_EVERY_MS = 10


def content_of(publication: Publication) -> str:
    """What the attributes and the body of an event hash to: equal for equal events only."""
    body = publication.body
    shown = "" if body is None else hashlib.blake2b(body, digest_size=8).hexdigest()
    return f"{content_hash(publication.attributes)}/{shown}"


def now_ms() -> float:
    """Milliseconds of a clock that all processes of the machine share."""
    return time.monotonic() * 1_000


class Teller:
    """Collects what is to be told, and writes it now and then: a delivery costs little."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, int, float]] = []
        self.held: list[tuple[str, str, str]] = []
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
        if self.held:
            self.tell(held=self.held)
            self.held = []
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

    def __init__(
        self,
        name: str,
        teller: Teller,
        *,
        content: bool = False,
        not_ready: dict[str, None] | None = None,
    ) -> None:
        self._name = name
        self._teller = teller
        self._content = content
        self._not_ready = {} if not_ready is None else not_ready
        self._not_ready[name] = None

    def deliver(self, publication: Publication, hops: int, position: int | None) -> None:
        """Note the event."""
        self._teller.got.append((self._name, publication.id, hops, now_ms()))
        if self._content:
            self._teller.held.append((self._name, publication.id, content_of(publication)))

    def deliver_batch(self, batch: Batch, rows: np.ndarray, hops: int) -> None:
        """Note the events."""
        at_ms = now_ms()
        for row in rows.tolist():
            self._teller.got.append((self._name, batch.event_id(row), hops, at_ms))
        if self._content:
            for publication in batch.part(rows).publications():
                self._teller.held.append((self._name, publication.id, content_of(publication)))

    def ready(self) -> None:
        """Tell it."""
        self._not_ready.pop(self._name, None)
        self._teller.tell(ready=self._name)

    def lost(self, count: int, through: int, gaps: int) -> None:
        """Nothing to note."""

    def move_proposed(self, node: str) -> None:
        """It stays."""

    def ended(self, reason: str) -> None:
        """Nothing to note."""


class Worker:
    """The node, and what it is told to do."""

    def __init__(
        self, settings: NodeSettings, tls: str | None = None, permissions: str | None = None
    ) -> None:
        self._node, self._gate = served_node(
            settings,
            None if tls is None else TlsSettings.beside(Path(tls)),
            None if permissions is None else Path(permissions),
            insecure=True,  # In a network namespace of its own it has an address of that.
        )
        self._teller = Teller()
        self._publishing: asyncio.Task[None] | None = None
        self._not_ready: dict[str, None] = {}

    async def run(self) -> None:
        """Start, obey, and end when told to or when nobody is there to obey."""
        try:
            await self._node.start()
        except StartError as error:
            self._teller.tell(failed=str(error))
            return
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
                    self._subscribe(command)
                case "unsubscribe":
                    self._not_ready.pop(command["name"], None)
                    self._node.unsubscribe(command["name"])
                case "events":
                    self._publish_these(command)
                case "publish":
                    self._publishing = asyncio.create_task(self._publish(command))
                case "status":
                    # Who asks knows then of all that was delivered before.
                    self._teller.flush()
                    waiting = {name: self._node.waiting_on(name) for name in self._not_ready}
                    status = {**self._node.status(), "process": _process(), "waiting": waiting}
                    self._teller.tell(status=status)
                case "reload":
                    await self._gate.reload()
                    self._teller.tell(reloaded=self._node.name)
                case "disk":
                    _fill_disk(is_full=command["full"])
                case "leave":
                    await self._node.stop()
                    self._teller.tell(left=self._node.name)
                    return
                case _:
                    return

    def _subscribe(self, command: dict[str, Any]) -> None:
        name, pattern = command["name"], command.get("xpath")
        wanted = Filter(command["filter"]) if pattern is None else Filter.xpath(pattern)
        content = command.get("content", False)
        sink = NotingSink(name, self._teller, content=content, not_ready=self._not_ready)
        self._node.subscribe(name, wanted, sink)

    def _publish_these(self, command: dict[str, Any]) -> None:
        """Publish given events, one by one or in columns, and note what becomes of them."""
        delivery = Delivery(command["delivery"])
        publications = [
            Publication(
                event_id,
                unpack_attributes(b64decode(attributes)),
                None if body is None else b64decode(body),
                delivery=delivery,
            )
            for event_id, attributes, body in command["events"]
        ]
        begin = now_ms()

        def on_ended(event_id: str, failure: str | None, _: int) -> None:
            self._teller.ended.append((event_id, begin, now_ms(), failure))

        batch_id = command.get("batch")
        if batch_id is None:
            self._node.publish([sealed(each) for each in publications], on_ended)
        else:
            self._node.publish_batch(_batch(batch_id, publications), on_ended)

    async def _publish(self, command: dict[str, Any]) -> None:
        """Publish at a rate, at least once, and note what becomes of each event."""
        rate, count, symbols = command["rate"], command["count"], command["symbols"]
        first = command.get("first", 0)
        begun: dict[str, float] = {}

        def on_ended(event_id: str, failure: str | None, _: int) -> None:
            self._teller.ended.append((event_id, begun.pop(event_id), now_ms(), failure))

        begin, done = now_ms(), 0
        while done < count:
            await asyncio.sleep(PUBLISH_EVERY_MS / 1_000)
            due = min(int((now_ms() - begin) * rate / 1_000), count)
            publications = []
            for number in range(first + done, first + due):
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


def _batch(batch_id: str, publications: list[Publication]) -> Batch:
    import pyarrow as pa

    from peersub.events.arrow import table_of_rows

    bodies = None
    if any(each.body is not None for each in publications):
        bodies = pa.array([each.body for each in publications], pa.binary())
    table = table_of_rows([each.attributes for each in publications])
    return Batch.of(batch_id, table, bodies, publications[0].delivery)


def _process() -> dict[str, int]:
    """What may leak, as far as only the process itself can tell."""
    return {"tasks": len(asyncio.all_tasks())}


def _fill_disk(*, is_full: bool) -> None:
    """Let no file grow, or be written at all, or let them again: as a full disk does."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))


def settings_of(given: dict[str, Any]) -> NodeSettings:
    """Settings from what JSON can say."""
    read = dict(given)
    read["join"] = tuple(read.get("join", ()))
    # Single events all the way: many nodes share the machine, and need not load what they lack.
    read.setdefault("columns", False)
    if "data" in read:
        read["data"] = Path(read["data"])
    if "links" in read:
        read["links"] = LinkSettings(**read["links"])
    if "limits" in read:
        read["limits"] = ServingLimits(**read["limits"])
    if "protocol" in read:
        read["protocol"] = tuple(read["protocol"])
    if "connection" in read:
        connection = dict(read.pop("connection"))
        if "liveness" in connection:
            connection["liveness"] = LivenessSettings(**connection["liveness"])
        read["transport"] = TransportSettings(connection=ConnectionSettings(**connection))
    return NodeSettings(**read)


def main() -> None:
    """Run with the settings that the first argument has as JSON."""
    given = json.loads(sys.argv[1])
    tls, permissions = given.pop("tls", None), given.pop("permissions", None)
    worker = Worker(settings_of(given), tls, permissions)
    # The first text loads a parser, which takes as long as many turns of a loop.
    Filter("TRUE")
    with keep_waits_short():
        asyncio.run(worker.run())


if __name__ == "__main__":
    main()
