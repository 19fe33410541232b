"""A process with the clients that subscribe: obeys one command per line, and answers each with one.

* `subscribe` {count}: all clients together subscribe to so many filters, until all are ready;
* `check` {events, publish_at}: publishes events that some of the subscriptions want, and compares
  who got them with what each filter says.

Both are JSON lines.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from random import Random
from typing import Any, Final

from peersub.bench.subscribe.workload import draw_event, draw_filters
from peersub.client import NodeClient, Subscription, connect

WITHOUT_PROGRESS_S: Final = 60.0
ARRIVAL_S: Final = 60.0
PROGRESS_EVERY: Final = 500


class _Clients:
    """Clients of one node, and what they subscribe to."""

    def __init__(self, node: str, count: int, seed: int) -> None:
        self._node = node
        self._count = count
        self._seed = seed
        self._clients: list[NodeClient] = []
        self._subscriptions: list[Subscription] = []

    async def subscribe(self, count: int) -> dict[str, Any]:
        """All are ready, and how long that took."""
        self._clients = [await connect(self._node) for _ in range(self._count)]
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        for number, text in enumerate(draw_filters(count, self._seed)):
            client = self._clients[number % self._count]
            self._subscriptions.append(client.subscribe(text, queue_max=64))
            if not number % PROGRESS_EVERY:
                await asyncio.sleep(0)
        for subscription in self._subscriptions:
            await subscription.ready(timeout=WITHOUT_PROGRESS_S)
        return {
            "ready_s": time.monotonic() - begun_s,
            "client_cpu_s": time.process_time() - begun_cpu_s,
            "gaps": sum(subscription.gaps for subscription in self._subscriptions),
        }

    async def check(self, events: int, publish_at: str) -> dict[str, Any]:
        """Publish elsewhere; who got what, against brute force."""
        random = Random(f"events/{self._seed}")
        chosen = random.sample(self._subscriptions, min(events, len(self._subscriptions)))
        expected = dict.fromkeys(self._subscriptions, 0)
        async with connect(publish_at) as publisher:
            for subscription in chosen:
                event = draw_event(subscription.filter.source or subscription.filter.text, random)
                for each in self._subscriptions:
                    expected[each] += each.filter.matches(event)
                await publisher.publish(event, delivery="at_least_once", timeout=ARRIVAL_S)
        deadline_s = time.monotonic() + ARRIVAL_S
        while time.monotonic() < deadline_s and any(
            subscription.waiting < wanted for subscription, wanted in expected.items()
        ):
            await asyncio.sleep(0.05)
        return {
            "expected": sum(expected.values()),
            "missed": sum(max(0, n - each.waiting) for each, n in expected.items()),
            "too_many": sum(max(0, each.waiting - n) for each, n in expected.items()),
        }


async def _obey(given: dict[str, Any]) -> None:
    clients = _Clients(given["node"], given["clients"], given["seed"])
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        try:
            if command.pop("do") == "subscribe":
                answer = await clients.subscribe(**command)
            else:
                answer = await clients.check(**command)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    gc.freeze()
    asyncio.run(_obey(json.loads(sys.argv[1])))
