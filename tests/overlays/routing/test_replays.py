"""What a publisher keeps for replays is bounded, and keeping one more costs no walk over all."""

from collections import OrderedDict
from collections.abc import Iterator

from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.routing import replays as replays_module
from peersub.overlays.routing.replays import Replays

KEPT_MAX = 64


class _Counted(OrderedDict):
    """Counts the keys that are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.looked_at += 1
            yield key


def _event(number: int) -> Publication:
    return Publication(f"e{number}", {}, delivery=Delivery.AT_LEAST_ONCE)


def _kept(replays: Replays, now_ms: int, since_ms: int = 0) -> list[str]:
    replays.begin(now_ms, since_ms)
    return [publication.id for publication, _ in replays.next_slice()]


def test_the_last_are_kept_and_none_for_longer_than_the_horizon():
    replays = Replays(events_max=3, horizon_ms=100, slice_max=10)
    for number in range(5):
        replays.keep(_event(number), number)
    assert _kept(replays, 5) == ["e2", "e3", "e4"]
    assert _kept(replays, 103) == ["e3", "e4"]


def test_keeping_one_more_looks_at_few_of_those_that_are_kept():
    replays = Replays(events_max=KEPT_MAX, horizon_ms=1_000_000, slice_max=1)
    counted = replays._kept = _Counted()
    for number in range(4 * KEPT_MAX):
        replays.keep(_event(number), number)
    assert len(counted) == KEPT_MAX
    assert counted.looked_at <= 3 * 4 * KEPT_MAX


def test_large_events_are_kept_within_a_bound_of_bytes(monkeypatch):
    monkeypatch.setattr(replays_module, "BYTES_MAX", 10_000)
    replays = Replays(events_max=100, horizon_ms=1_000, slice_max=100)

    def large(number: int) -> Publication:
        return Publication(f"e{number}", {}, bytes(4_000), delivery=Delivery.AT_LEAST_ONCE)

    assert [replays.keep(large(number), number) for number in range(5)] == [0, 0, 1, 1, 1]
    assert _kept(replays, 5) == ["e3", "e4"]
    alone = Publication("huge", {}, bytes(20_000), delivery=Delivery.AT_LEAST_ONCE)
    assert replays.keep(alone, 6) == 2 and _kept(replays, 6) == ["huge"]
    assert replays.keep(large(7), 2_000) == 0 and _kept(replays, 2_000) == ["e7"]
