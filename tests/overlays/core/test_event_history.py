"""The history of events: singles and batches lead to the same memory, and it is bounded."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_history import BATCH_BYTES, EVENT_BYTES, EventHistory
from peersub.overlays.core.event_keys import BATCH_ROWS_MAX, key_of_id
from strategies import examples

TOTAL = 6
NAMES = st.sampled_from(["e1", "e2", "b/x", "b", *(f"{b}/{n}" for b in "bc" for n in range(TOTAL))])
STEPS = st.lists(
    st.tuples(
        # What came within a sixteenth of the horizon is forgotten together.
        st.just(0) | st.integers(7, 60),
        NAMES | st.tuples(st.sampled_from("bc"), st.sets(st.integers(0, TOTAL - 1)).map(sorted)),
    ),
    max_size=30,
)


def part(name: str, numbers: list[int], total: int = TOTAL) -> Batch:
    return Batch(name, np.array(numbers, np.uint32), total, packed=b"")


class _ByName:
    """A history whose keys follow from names."""

    def __init__(self, bytes_max: int, horizon_ms: int) -> None:
        self.history = EventHistory(bytes_max, horizon_ms)
        self.add_batch, self.forget = self.history.add_batch, self.history.forget

    def add(self, name: str, now_ms: int) -> bool:
        return self.history.add(key_of_id(name), now_ms)

    def __contains__(self, name: str) -> bool:
        return key_of_id(name) in self.history


class _Model:
    """Each event by its name: since it came, or since anything of its batch did."""

    def __init__(self, horizon_ms: int) -> None:
        self.horizon_ms = horizon_ms
        self.singles: dict[str, int] = {}
        self.batches: dict[str, tuple[int, set[str]]] = {}

    def forget(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.horizon_ms
        self.singles = {name: at for name, at in self.singles.items() if at >= oldest_ms}
        self.batches = {name: kept for name, kept in self.batches.items() if kept[0] >= oldest_ms}

    def add(self, name: str, now_ms: int) -> bool:
        batch, _, number = name.rpartition("/")
        if not number.isdigit() or not batch:
            is_new = name not in self.singles
            self.singles.setdefault(name, now_ms)
            return is_new
        seen = self.batches.get(batch, (0, set()))[1]
        self.batches[batch] = (now_ms, seen | {name})
        return name not in seen


@examples(200)
@given(STEPS)
def test_it_is_what_a_dict_of_names_would_be(steps):
    history, model = _ByName(10_000, horizon_ms=100), _Model(100)
    now_ms = 0
    for later_ms, what in steps:
        now_ms += later_ms
        model.forget(now_ms)
        history.forget(now_ms)
        if isinstance(what, str):
            assert history.add(what, now_ms) == model.add(what, now_ms)
        else:
            batch, numbers = what
            new = history.add_batch(part(batch, numbers), now_ms)
            expected = [at for at, n in enumerate(numbers) if model.add(f"{batch}/{n}", now_ms)]
            if not numbers and batch in model.batches:
                model.batches[batch] = (now_ms, model.batches[batch][1])
            assert new.tolist() == expected
        for name in ["e1", "e2", *(f"{b}/{n}" for b in "bc" for n in range(TOTAL))]:
            known = name in model.singles or any(name in kept for _, kept in model.batches.values())
            assert (name in history) == known


def test_numbers_beyond_what_the_batch_said_are_remembered_too():
    history = _ByName(10_000, 1_000)
    assert history.add("b/9", 0)
    assert history.add_batch(part("b", [1, 2], 4), 0).tolist() == [0, 1]
    assert not history.add("b/9", 0) and not history.add("b/2", 0) and history.add("b/3", 0)
    assert history.add_batch(part("b", [3, 8, 9], 12), 0).tolist() == [1]


def test_flags_of_a_batch_that_someone_still_looks_at_can_grow():
    history = _ByName(10_000, 1_000)
    new = history.add_batch(part("b", [0, 1], 2), 0)
    assert history.add_batch(part("b", [1, 5], 6), 0).tolist() == [1] and new.tolist() == [0, 1]


def test_names_that_only_look_like_those_of_a_batch_cost_little_more_than_others():
    history = _ByName(1_000 * (BATCH_BYTES + EVENT_BYTES), horizon_ms=1_000)
    names = [f"order-{number}/{BATCH_ROWS_MAX - 1}" for number in range(1_000)]
    assert all(history.add(name, 0) for name in names)
    assert not any(history.add(name, 0) for name in names)


def test_the_oldest_goes_when_there_is_too_much():
    history = _ByName(3 * (BATCH_BYTES + TOTAL), horizon_ms=1_000)
    for number in range(4):
        history.add_batch(part(f"c{number}", [0]), number)
    assert [f"c{number}/0" in history for number in range(4)] == [False, True, True, True]
    singles = [f"e{number}" for number in range(100)]
    for number, name in enumerate(singles):
        history.add(name, 10 + number)
        assert history.history.used <= 3 * (BATCH_BYTES + TOTAL)
    known = [name in history for name in singles]
    assert known == sorted(known) and 30 <= sum(known) < 50 and "c3/0" not in history
    # Events of one batch that come alone are bounded as well.
    for number in range(1_000):
        history.add(f"x{number % 7}/{number}", 200)
        assert history.history.used <= 3 * (BATCH_BYTES + TOTAL)


def test_a_history_takes_no_more_memory_than_it_says():
    count = 20_000
    history = EventHistory(count * EVENT_BYTES, 1_000)
    for number in range(3 * count):
        history.add(key_of_id(f"e{number}"), number // 100)
    held = sum(map(len, history._buckets.values()))
    # Buckets let go of what is forgotten when they are next asked.
    assert history.used <= count * EVENT_BYTES and held <= 2 * count * EVENT_BYTES
    history.forget(10_000)
    assert history.used == 0 and not history._buckets and not history._used_by


def test_who_asks_for_room_forgets_nothing_that_is_young():
    history = EventHistory(100 * EVENT_BYTES, horizon_ms=1_600)
    taken = []
    for number in range(1_000):
        name = key_of_id(f"e{number}")
        if history.has_room(EVENT_BYTES, "flood", number):
            assert history.add(name, number, "flood")
            taken.append(name)
    # One source has two thirds, and a second one finds room.
    assert len(taken) == 67 and all(name in history for name in taken)
    assert history.has_room(EVENT_BYTES, "other", 1_000)
    others = 0
    while history.has_room(EVENT_BYTES, "other", 1_000):
        history.add(key_of_id(f"o{others}"), 1_000, "other")
        others += 1
    assert 20 <= others < 33 and history.has_room(EVENT_BYTES, "third", 1_000)
    # The room of what is old is free again.
    assert not history.has_room(EVENT_BYTES, "flood", 1_600)
    assert history.has_room(EVENT_BYTES, "flood", 1_800)
    assert taken[0] not in history and key_of_id("o0") in history
