"""Attackers in a process of their own: hostile filters for one node, as fast as it answers.

Half of the connections use the API, the others write frames with bytes of their own; each keeps
some subscriptions, ends them all, and goes on. What the node answered is told at the end, as JSON.

They share a core with the node, and take what it leaves of it: an attacker has a computer of its
own, and what is judged is what the node does for it, not who gets a processor first.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Final

from peersub.bench.hostile_filters import HostileFilter, hostile_filters
from peersub.client import Subscription, SubscriptionEndedError, connect
from peersub.filters.widened import UnreadFilter
from peersub.wire import FrameDecoder, encode
from peersub.wire.client_messages import (
    CLIENT_VERSION,
    ClientHello,
    SubscribeWanted,
    SubscriptionPhase,
    SubscriptionState,
    UnsubscribeWanted,
)

CONNECTIONS: Final = 4
"""Of each sort."""
KEPT: Final = 6
"""Subscriptions that a connection has before it ends them all."""
AT_ONCE: Final = 4
"""Raw filters that are sent before the first is answered."""
ANSWER_S_MAX: Final = 30.0


class _Attackers:
    def __init__(self, node: str, filters: list[HostileFilter]) -> None:
        self.node = node
        self.answers: Counter[str] = Counter()
        self.kinds = Counter(each.kind for each in filters)
        sent = [each for each in filters if each.data is not None]
        self.answers["refused by the language"] = len(filters) - len(sent)
        # What the API can make is sent either way.
        self.by_api = [each for each in sent[::2] if each.wanted is not None]
        chosen = set(map(id, self.by_api))
        self.raw = [each.data or b"" for each in sent if id(each) not in chosen]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._use_api())
                group.create_task(self._write_bytes())

    async def _use_api(self) -> None:
        async with connect(self.node) as client:
            kept: list[Subscription] = []
            while self.by_api:
                wanted = self.by_api.pop().wanted
                assert wanted is not None
                subscription = client.subscribe(wanted)
                try:
                    await subscription.ready(ANSWER_S_MAX)
                except SubscriptionEndedError:
                    self.answers["refused"] += 1
                except TimeoutError:
                    self.answers["no answer"] += 1
                else:
                    self.answers["accepted"] += 1
                    kept.append(subscription)
                if len(kept) >= KEPT:
                    for each in kept:
                        await each.close()
                    kept = []

    async def _write_bytes(self) -> None:
        while self.raw:
            part = [self.raw.pop() for _ in range(min(len(self.raw), 2 * KEPT))]
            host, _, port = self.node.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(encode(ClientHello(CLIENT_VERSION)))
                await self._send(part, reader, writer)
            except TimeoutError:
                self.answers["no answer"] += 1
            finally:
                writer.close()

    async def _send(
        self, part: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send filters, some at once; what follows bytes that end the connection goes elsewhere."""
        decoder, numbers, open_count = FrameDecoder(), count(1), 0
        waiting = list(part)
        under_way: dict[int, bytes] = {}
        while waiting or under_way:
            while waiting and len(under_way) < AT_ONCE:
                number, data = next(numbers), waiting.pop()
                under_way[number] = data
                writer.write(encode(SubscribeWanted(number, UnreadFilter(data, ""))))
            came = b""
            with suppress(ConnectionError):
                async with asyncio.timeout(ANSWER_S_MAX):
                    came = await reader.read(65_536)
            if not came:
                # The first that had no answer ended it; the others were not looked at.
                first = next(iter(under_way))
                del under_way[first]
                self.answers["ended the connection"] += 1
                self.raw += [*waiting, *under_way.values()]
                return
            for message in decoder.feed(came):
                if isinstance(message, SubscriptionState) and message.number in under_way:
                    del under_way[message.number]
                    is_refused = message.phase is SubscriptionPhase.ENDED
                    self.answers["refused" if is_refused else "accepted"] += 1
                    open_count += not is_refused
                    if open_count >= KEPT:
                        writer.writelines(
                            encode(UnsubscribeWanted(n)) for n in range(1, message.number)
                        )
                        open_count = 0


def main() -> None:
    """Attack the node that the first argument names; a seed and a number of filters follow."""
    node, seed, filters = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    attackers = _Attackers(node, list(hostile_filters(seed, filters)))
    asyncio.run(attackers.run())
    print(json.dumps({"answers": attackers.answers, "kinds": attackers.kinds}))


if __name__ == "__main__":
    main()
