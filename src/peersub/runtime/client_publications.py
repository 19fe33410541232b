"""What one client of a node publishes: permitted or refused, in order, and answered in groups.

While the node's links are congested, or a large body is being read (`body_reading`), publications
wait here, and nothing more is read from the client. Those that have not ended are bounded in number
and in bytes (`byte_budget`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.publication import Publication
from peersub.runtime.byte_budget import ByteShare
from peersub.runtime.client_outbox import NUMBERS_PER_MESSAGE_MAX
from peersub.runtime.client_ports import ClientConnection, ClientRules, ServingNode
from peersub.runtime.client_texts import too_large
from peersub.runtime.logs import NodeLog
from peersub.wire.client_messages import (
    BYTES,
    PublishBatchWanted,
    PublishedBefore,
    PublishEnded,
    PublishWanted,
    in_network,
)
from peersub.wire.limits import FRAME_BYTES_MAX

__all__ = ["ClientPublications"]

RELIEF_CHECK_S: Final = 0.1
"""How often it is looked whether links are still congested, should nobody say so."""


_log = NodeLog(__name__)


class ClientPublications:
    """The publications of one client that have not ended, or whose end it has not heard of.

    Args:
        node: publishes.
        connection: to the client.
        rules: what the client may publish.
        share: of the bytes that publications of clients may take.
        on_answers: is called when there is something to tell the client.
        label: tells clients without an identity apart.
    """

    def __init__(
        self,
        node: ServingNode,
        connection: ClientConnection,
        rules: ClientRules,
        share: ByteShare,
        on_answers: Callable[[], None],
        label: str = "",
    ) -> None:
        self._node = node
        self._connection = connection
        self._source = connection.identity or label
        self._rules = rules
        self._open_max = rules.limits(connection.identity).publications_open_max
        self._share = share
        self._on_answers = on_answers
        # Where rules look at each event, events come one by one.
        bounded = rules.bounds_publishing(connection.identity)
        self.takes_batches = node.takes_batches and not bounded
        self.tells_seen = False
        """Whether the client wants to hear which events were not new."""
        self._open: dict[str, tuple[Publication | Batch, list[int]]] = {}
        """Those that have not ended, with the numbers the client knows them by, by their names."""
        self._open_numbers = 0
        """How many numbers these are: the same event may come again and again before it ends."""
        self._ended: list[int] = []
        self._failed: list[tuple[int, str]] = []
        self._seen: list[tuple[int, int]] = []
        self._held: list[Publication | Batch] = []
        self._holding_task: asyncio.Task[None] | None = None
        self._is_lost = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def bounds(self) -> tuple[str, ...]:
        """What the client is told of the largest event: one that could never fit is not sent."""
        largest = self._share.largest
        return (f"{BYTES}{largest}",) if largest < FRAME_BYTES_MAX else ()

    # --- what the client says --------------------------------------------------------------------

    def publish(self, wanted: Sequence[PublishWanted]) -> None:
        """Events, in their order."""
        taken: list[Publication] = []
        for message in wanted:
            publication = in_network(message.publication)
            refusal = self._no_room_for(publication)
            if refusal is None and not publication.is_sound:
                refusal = "its attributes cannot be read"
            if refusal is not None:
                self._fail(message.number, refusal)
                continue
            known = self._open.get(publication.name)
            if known is not None:
                known[1].append(message.number)  # The same event again, before it has ended.
                self._open_numbers += 1
            else:
                self._begin(publication, message.number)
                taken.append(publication)
        if self._must_hold(taken):
            self._held += taken
        else:
            self._publish_permitted(taken)

    def _publish_permitted(self, publications: Sequence[Publication]) -> None:
        """Publish what the client may publish, and end the rest; bodies have been read."""
        permitted: list[Publication] = []
        for publication in publications:
            refusal = self._rules.permit_publish(self._connection.identity, publication)
            if refusal is None:
                permitted.append(publication)
            else:
                _log.warning("%s may not publish: %s", self._connection.identity, refusal)
                self._on_ended(publication.name, refusal, 0)
        if permitted:
            self._node.publish(permitted, self._on_ended, self._source)

    def publish_batch(self, message: PublishBatchWanted) -> None:
        """Many events, which end together."""
        batch = in_network(message.batch)
        if not self.takes_batches:
            refusal: str | None = "this client publishes its events one by one"
        elif batch.name in self._open:
            refusal = "another batch of this name is under way"
        else:
            refusal = self._no_room_for(batch)
        if refusal is None and not batch.is_sound:
            refusal = "its events cannot be read"
        refusal = refusal or self._forbids(batch)
        if refusal is not None:
            self._fail(message.number, refusal)
            return
        self._begin(batch, message.number)
        if self._must_hold():
            self._held.append(batch)
        else:
            self._publish_batch(batch)

    def _publish_batch(self, batch: Batch) -> None:
        self._node.publish_batch(batch, self._on_ended, self._source)

    def _forbids(self, batch: Batch) -> str | None:
        """Permissions may have changed since the client was told that it may use columns."""
        identity = self._connection.identity
        if not self._rules.bounds_publishing(identity):
            return None
        refusals = (self._rules.permit_publish(identity, each) for each in batch.publications())
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _no_room_for(self, content: Publication | Batch) -> str | None:
        if self._open_numbers >= self._open_max:
            return f"more than {self._open_max:,} publications have not ended"
        if content.size > self._share.largest:
            return too_large(content.size, self._share.largest)
        if not self._share.has_room(content, content.size):
            return (
                f"publications of {self._share.used:,} bytes have not ended: the node takes more "
                "when some have"
            )
        return None

    def _begin(self, content: Publication | Batch, number: int) -> None:
        self._open[content.name] = (content, [number])
        self._open_numbers += 1
        self._share.hold(content, content.size)

    # --- holding back ----------------------------------------------------------------------------

    def _must_hold(self, publications: Sequence[Publication] = ()) -> bool:
        """Whether what is to be published has to wait; if so, nothing more is read meanwhile."""
        must_read = self._node.bodies.must_read
        if self._holding_task is None and (
            self._node.is_congested() or any(map(must_read, publications))
        ):
            self._connection.hold_reading(hold=True)
            task = asyncio.get_running_loop().create_task(self._publish_when_relieved())
            self._holding_task = task
        return self._holding_task is not None

    async def _publish_when_relieved(self) -> None:
        while self._held and not self._is_lost:
            while self._node.is_congested():
                try:
                    async with asyncio.timeout(RELIEF_CHECK_S):
                        await self._node.relief()
                except TimeoutError:
                    continue
            held, self._held = self._held, []
            await self._node.bodies.read(held)
            for is_batch, group in groupby(held, lambda each: isinstance(each, Batch)):
                if is_batch:
                    for batch in group:
                        self._publish_batch(batch)  # type: ignore[arg-type]
                else:
                    self._publish_permitted(list(group))  # type: ignore[arg-type]
        self._holding_task = None
        self._connection.hold_reading(hold=False)

    # --- answers ---------------------------------------------------------------------------------

    def _on_ended(self, name: str, failure: str | None, seen: int) -> None:
        content, numbers = self._open.pop(name, (None, ()))
        if content is None:
            return
        self._share.drop(content)
        self._open_numbers -= len(numbers)
        if failure is None:
            self._ended += numbers
            # What came again before it had ended was seen by then.
            count = len(content) if isinstance(content, Batch) else 1
            repeated = zip(numbers, (seen, *[count] * (len(numbers) - 1)), strict=True)
            self._seen += [each for each in repeated if each[1]]
        else:
            self._failed += [(number, failure) for number in numbers]
        self._on_answers()

    def _fail(self, number: int, reason: str) -> None:
        self._failed.append((number, reason))
        self._on_answers()

    def answers(self) -> list[PublishEnded | PublishedBefore]:
        """What the client has not heard of yet; it is taken to hear of it now."""
        messages: list[PublishEnded | PublishedBefore] = []
        while self._ended or self._failed:
            ended, failed, seen = self._ended, self._failed, self._seen
            count = NUMBERS_PER_MESSAGE_MAX
            told = set(ended[:count])
            # In the order of those that ended: none is left behind.
            known = tuple([each for each in seen if each[0] in told])
            if known and self.tells_seen:
                messages.append(PublishedBefore(known))
            messages.append(PublishEnded(tuple(ended[:count]), tuple(failed[:count])))
            self._ended, self._failed = ended[count:], failed[count:]
            self._seen = seen[len(known) :]
        return messages

    def end(self) -> None:
        """The client is gone: what waits is not published, and nobody hears of the rest."""
        self._is_lost = True
        for content, _ in self._open.values():
            self._share.drop(content)
        self._open.clear()
        self._on_answers = _say_nothing
        if self._holding_task is not None:
            self._holding_task.cancel()


def _say_nothing() -> None:
    """The client is gone: its door is let go of, as circles stay for ever (`collecting`)."""
