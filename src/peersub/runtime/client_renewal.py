"""Permissions that change while clients are connected: what their doors make of it.

First nothing is handed over any more that is forbidden now (`renew_bound`), at once; then filters
are narrowed anew, a few in each turn of the loop, and dear ones off it (`renew`), or the
subscription ends with the reason.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from peersub.runtime.client_texts import narrowing_of, text_of
from peersub.runtime.filter_budget import FilterTurns, permit_filter, work_out
from peersub.wire.client_messages import SubscriptionPhase

if TYPE_CHECKING:
    from peersub.runtime.client_door import ClientDoor
    from peersub.runtime.client_ports import ServingNode
    from peersub.runtime.client_queue import QueuedConsumer

__all__ = ["renew", "renew_bound"]


def renew_bound(door: ClientDoor) -> None:
    """Hand over nothing more that the client may not see; hang up if it is not taken any more."""
    reason = door.rules.refusal(door.identity)
    if reason is not None:
        door.refuse(reason)
        return
    door.renew_limits()
    if door.bound is not None:
        for consumer in door.consumers:
            consumer.withdraw(door.bound)


async def renew(door: ClientDoor, node: ServingNode) -> None:
    """Narrow each subscription by the permissions of now, or end it."""
    turns = FilterTurns()
    for consumer in door.consumers:
        asked = consumer.asked
        await turns.before(asked, partial(work_out, door.rules, door.identity, asked))
        if door.has(consumer):
            _renew(door, node, consumer)


def _renew(door: ClientDoor, node: ServingNode, consumer: QueuedConsumer) -> None:
    former = consumer.wanted
    try:
        wanted = permit_filter(door.rules, door.identity, consumer.asked)
        if wanted.digest != former.digest and not consumer.is_durable:
            consumer.wanted = wanted
            door.take_share(consumer)  # That of a durable one is counted where it is kept.
    except ValueError as error:
        if consumer.is_held and consumer.is_durable:
            node.detach(consumer.name)
        consumer.is_held = False
        door.end(consumer, text_of(error))
        return
    if wanted.digest == former.digest:
        return
    if not former.covers(wanted):
        consumer.phase = SubscriptionPhase.PENDING  # Who publishes what is new has to hear of it.
    consumer.wanted, consumer.detail = wanted, narrowing_of(consumer.asked, wanted)
    if not consumer.is_durable:
        node.change_filter(consumer.name, wanted)
    door.on_changed(consumer)
