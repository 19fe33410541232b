"""Hand-made records of a trace, told in a few words: who subscribes, publishes, gets what."""

from collections.abc import Sequence
from typing import Any

from peersub.filters.filter import Filter
from peersub.overlays.core.causes import Leave, Publish, Restored, Start, Subscribe, Unsubscribe
from peersub.overlays.core.effects import (
    Deliver,
    PublishCompleted,
    PublishFailed,
    SubscriptionReady,
)
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.core.records import SubscriptionStored
from peersub.trace.schema import Disk, Fault, FaultKind, Phase, Step, TraceRecord

__all__ = ["Story"]


class Story:
    """Records in the order of telling; each happens one millisecond after the one before."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.now_ms = 0
        self._publications: dict[str, Publication] = {}
        self._filters: dict[tuple[str, str], Filter] = {}

    def wait(self, time_ms: int) -> "Story":
        self.now_ms += time_ms
        return self

    def step(self, node: str, cause: Any, effects: Sequence[Any] = ()) -> "Story":
        self.now_ms += 1
        self.records.append(Step(self.now_ms, node, cause, list(effects)))
        return self

    def fault(self, kind: FaultKind, **details: Any) -> "Story":
        self.now_ms += 1
        self.records.append(Fault(self.now_ms, kind, **details))
        return self

    def phase(self, name: str, *, disturbed: bool = False) -> "Story":
        self.now_ms += 1
        self.records.append(Phase(self.now_ms, name, disturbed))
        return self

    def subscribe(self, node: str, name: str, text: str, *, ready: bool = True) -> "Story":
        wanted = Filter(text)
        self._filters[node, name] = wanted
        effects = [SubscriptionReady(name)] if ready else []
        return self.step(node, Subscribe(name, wanted), effects)

    def ready(self, node: str, name: str) -> "Story":
        return self.step(node, Start(), [SubscriptionReady(name)])

    def unsubscribe(self, node: str, name: str) -> "Story":
        return self.step(node, Unsubscribe(name))

    def publish(
        self, node: str, event_id: str, *, promised: bool = False, **attributes: Any
    ) -> "Story":
        delivery = Delivery.AT_LEAST_ONCE if promised else Delivery.BEST_EFFORT
        publication = Publication(event_id, attributes, delivery=delivery)
        self._publications[event_id] = publication
        return self.step(node, Publish((publication,)))

    def deliver(
        self, node: str, event_id: str, *names: str, hops: int = 1, again: bool = False
    ) -> "Story":
        publication = self._publications.get(event_id) or Publication(event_id, {})
        return self.step(node, Start(), [Deliver(publication, names, hops, again)])

    def completed(self, node: str, event_id: str) -> "Story":
        return self.step(node, Start(), [PublishCompleted(event_id)])

    def failed(self, node: str, event_id: str, reason: str = "too slow") -> "Story":
        return self.step(node, Start(), [PublishFailed(event_id, reason)])

    def crash(self, *nodes: str) -> "Story":
        return self.fault(FaultKind.CRASH, nodes=nodes)

    def restart(self, node: str, disk: Disk = Disk.KEPT, *names: str) -> "Story":
        self.fault(FaultKind.RESTART, nodes=(node,), disk=disk)
        records = tuple(SubscriptionStored(name, self._filters[node, name]) for name in names)
        return self.step(node, Restored(records), [SubscriptionReady(name) for name in names])

    def leave(self, node: str) -> "Story":
        return self.step(node, Leave())
