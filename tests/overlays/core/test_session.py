"""Sessions: whatever a network does to frames, messages arrive once, in order, or not yet."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlays.core.link_world import Light
from peersub.overlays.core import session as session_module
from peersub.overlays.core.link_messages import Acknowledgement, Carried
from peersub.overlays.core.session import BACKOFF_DOUBLINGS_MAX, RESENT_AT_ONCE_MAX, Session

RESEND_MS = 100


def pair() -> tuple[Session, Session]:
    return Session(3, 8, RESEND_MS), Session(8, 3, RESEND_MS)


def carried(session: Session, count: int, now_ms: int = 0) -> list[Carried]:
    frames = [session.carry(Light(str(number)), now_ms) for number in range(count)]
    assert None not in frames
    return [frame for frame in frames if frame is not None]


def texts(messages) -> list[str]:
    return [message.text for message in messages]


@given(st.lists(st.integers(0, 19), max_size=80))
def test_any_arrivals_deliver_a_prefix_once(arrivals):
    """The twin: a set of what arrived, and the longest prefix in it."""
    here, there = pair()
    frames = carried(here, 20)
    delivered: list[str] = []
    arrived = set()
    for place in arrivals:
        delivered += texts(there.accept(frames[place]))
        arrived.add(place)
        prefix = next(number for number in range(21) if number not in arrived)
        assert delivered == [str(number) for number in range(prefix)]
        assert there.received == prefix
        assert there.acknowledgement_due
        assert there.acknowledgement() == Acknowledgement(3, 8, prefix)
        assert not there.acknowledgement_due


def test_frames_carry_both_epochs_and_what_has_arrived():
    here, there = pair()
    there.accept(carried(here, 1)[0])
    frame = there.carry(Light("answer"), 0)
    assert frame == Carried(3, 8, 1, 1, Light("answer"))
    assert not there.acknowledgement_due  # It went along.
    assert here.belongs(frame.epoch, frame.sender_epoch)
    assert not here.belongs(frame.epoch + 1, frame.sender_epoch)
    assert not here.belongs(frame.epoch, frame.sender_epoch + 1)


def test_a_doubled_frame_is_acknowledged_again():
    """The first acknowledgement may have been lost."""
    here, there = pair()
    frame = carried(here, 1)[0]
    there.accept(frame)
    there.acknowledgement()
    assert there.accept(frame) == []
    assert there.acknowledgement_due


@pytest.mark.parametrize("acknowledged", [-1, 0, 6, 1_000])
def test_an_acknowledgement_out_of_range_changes_nothing(acknowledged):
    here, _ = pair()
    carried(here, 5)
    assert not here.on_acknowledged(acknowledged, 50)
    assert [frame.sequence for frame in here.resend(100)] == [1, 2, 3, 4, 5]


def test_what_is_acknowledged_is_not_sent_again():
    here, _ = pair()
    carried(here, 5)
    assert here.on_acknowledged(3, 50)
    assert not here.on_acknowledged(3, 50)
    assert [frame.sequence for frame in here.resend(150)] == [4, 5]
    assert here.on_acknowledged(5, 50)
    assert here.is_idle


def test_delays_double_up_to_a_bound_and_progress_resets_them():
    here, _ = pair()
    carried(here, 2)
    assert here.resend_at_ms == RESEND_MS
    delays = []
    for _ in range(BACKOFF_DOUBLINGS_MAX + 2):
        now_ms = here.resend_at_ms
        here.resend(now_ms)
        delays.append(here.resend_at_ms - now_ms)
    growing = [RESEND_MS << doublings for doublings in range(1, BACKOFF_DOUBLINGS_MAX + 1)]
    assert delays == [*growing, growing[-1], growing[-1]]
    assert here.attempts == len(delays)
    here.on_acknowledged(1, 9_000)
    assert (here.attempts, here.resend_at_ms) == (0, 9_000 + RESEND_MS)


def test_a_long_queue_is_sent_again_oldest_first_and_in_part():
    here, _ = pair()
    carried(here, RESENT_AT_ONCE_MAX + 5)
    again = here.resend(RESEND_MS)
    assert [frame.sequence for frame in again] == list(range(1, RESENT_AT_ONCE_MAX + 1))


def test_queues_are_bounded(monkeypatch):
    monkeypatch.setattr(session_module, "UNACKNOWLEDGED_MAX", 3)
    monkeypatch.setattr(session_module, "OUT_OF_ORDER_MAX", 2)
    here, there = pair()
    frames = carried(here, 3)
    assert here.carry(Light("too much"), 0) is None
    for sequence in (5, 4, 3, 2):
        assert there.accept(replace(frames[1], sequence=sequence)) == []
    # 5 and 4 were kept, 3 and 2 were not.
    there.accept(frames[0])
    assert there.received == 1
    for frame in frames[1:]:
        there.accept(frame)
    assert there.received == 5
