"""The shared sample: its laws as a set, its bounds, its exchange, and the bits of filters."""

from __future__ import annotations

from itertools import pairwise, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.semantic import sample as module
from peersub.overlays.semantic.sample import (
    SampleSettings,
    SharedSample,
    event_key,
    event_weight,
)
from peersub.overlays.semantic.sample_messages import SampleEvents, SampleKeys
from peersub.wire import FrameDecoder, encode

FILTERS = [Filter(f"price > {bound}") for bound in (0, 3, 7, 50)]


def event(number: int, **attributes: object) -> Publication:
    return Publication(f"e{number}", {"price": number % 10, **attributes})


def of(numbers: list[int], size: int = 8, **settings: object) -> SharedSample:
    sample = SharedSample(SampleSettings(sample_events=size, **settings))
    sample.merge([event(number) for number in numbers])
    return sample


def naive_keys(numbers: list[int], size: int) -> tuple[bytes, ...]:
    return tuple(sorted({event_key(event(number)) for number in numbers})[:size])


def joined(one: SharedSample, other: SharedSample) -> SharedSample:
    both = SharedSample(one.settings)
    both.merge(one.publications)
    both.merge(other.publications)
    return both


numbers = st.lists(st.integers(0, 60), max_size=40)


@given(numbers, st.integers(1, 12))
def test_it_holds_the_events_with_the_smallest_keys_whatever_their_order(given_numbers, size):
    sample = of(given_numbers, size)
    assert sample.keys == naive_keys(given_numbers, size)
    assert sample.digest == of(sorted(given_numbers, reverse=True), size).digest


@given(numbers, numbers, numbers)
def test_merging_is_commutative_associative_and_idempotent(first, second, third):
    a, b, c = of(first), of(second), of(third)
    assert joined(a, b).keys == joined(b, a).keys == naive_keys(first + second, 8)
    assert joined(joined(a, b), c).keys == joined(a, joined(b, c)).keys
    assert joined(a, a).keys == a.keys


@given(numbers, numbers)
def test_two_names_of_samples_are_equal_only_if_the_samples_are(first, second):
    assert (of(first).digest == of(second).digest) == (of(first).keys == of(second).keys)


def test_one_name_for_two_contents_is_two_events_in_any_order():
    twins = [Publication("e", {"price": 1}), Publication("e", {"price": 2})]
    samples = []
    for order in permutations(twins):
        sample = SharedSample(SampleSettings(sample_events=1))
        sample.merge(order)
        samples.append(sample)
    assert samples[0].keys == samples[1].keys
    assert event_key(Publication("e", {}, b"")) != event_key(Publication("e", {}, None))


def talk(one: SharedSample, other: SharedSample) -> int:
    """Let the one offer its sample to the other until nobody has anything to say."""
    said = [(other, answer) for answer in [one.offer()]]
    count = 0
    while said:
        count += 1
        assert count < 50, "the exchange ends"
        listener, message = said.pop(0)
        speaker = one if listener is other else other
        (arrived,) = FrameDecoder().feed(encode(message))
        said += [(speaker, answer) for answer in listener.answers(arrived)]
    return count


@given(numbers, numbers)
def test_two_that_exchanged_hold_the_same_sample_that_of_all_events(first, second):
    one, other = of(first), of(second)
    talk(one, other)
    assert one.keys == other.keys == naive_keys(first + second, 8)
    assert talk(one, other) == 1


def test_all_that_exchanged_along_a_line_hold_the_same_sample():
    random = Random(7)
    samples = [of([random.randrange(500) for _ in range(30)]) for _ in range(12)]
    for _ in range(2):
        for one, other in pairwise(samples):
            talk(one, other)
        samples.reverse()
    assert len({sample.digest for sample in samples}) == 1


def test_what_travels_is_what_the_other_lacks_in_messages_of_bounded_size(monkeypatch):
    monkeypatch.setattr(module, "MESSAGE_BYTES_MAX", 30)
    one, other = of(list(range(8))), of(list(range(4)))
    sent = one.answers(SampleKeys(other.keys))
    assert all(isinstance(message, SampleEvents) for message in sent)
    travelled = [each for message in sent for each in message.publications]
    assert sorted(map(event_key, travelled)) == sorted(set(one.keys) - set(other.keys))
    assert len(sent) > 1
    assert all(sum(map(event_weight, message.publications)) <= 30 for message in sent)


def test_what_would_not_get_in_does_not_travel():
    one, other = of(list(range(30))), of(list(range(30, 60)))
    (sent, *rest) = one.answers(SampleKeys(other.keys))
    travelled = {event_key(each) for each in sent.publications}
    assert travelled == set(one.keys) & set(naive_keys(list(range(60)), 8)) < set(one.keys)
    assert rest == [SampleKeys(one.keys)]


def test_large_events_stay_out_whoever_offers_them():
    sample = SharedSample(SampleSettings(sample_event_bytes_max=100))
    assert not sample.add(Publication("body", {}, bytes(101)))
    assert not sample.add(Publication("text", {"deep": [{"er": "x" * 101}]}))
    assert sample.add(Publication("small", {"deep": [{"er": "x" * 50}]}))
    # What came over the wire weighs the same as what was published here.
    for attributes in ({"a": 1, "b": 2.5, "c": None, "d": [True, "é"]}, {"big": 10**40}):
        sent = Publication("e", attributes, b"body")
        (message,) = FrameDecoder().feed(encode(SampleEvents((sent,))))
        (came,) = message.publications
        assert event_weight(came) == event_weight(sent)
        assert event_key(came) == event_key(sent)


def test_events_that_cannot_be_read_stay_out():
    def unpack(_: bytes) -> dict[str, object]:
        raise ValueError("no attributes")

    sample = SharedSample(SampleSettings())
    assert not sample.add(Publication("e", packed=b"?", unpack=unpack))


def test_a_promise_does_not_travel_with_the_sample():
    sample = SharedSample(SampleSettings())
    sample.add(Publication("e", {}, delivery=Delivery.AT_LEAST_ONCE))
    assert sample.publications[0].delivery is Delivery.BEST_EFFORT


@given(numbers, numbers)
def test_bits_are_brute_force_also_after_the_sample_changed(first, second):
    sample = of(first)
    for _ in range(2):
        for wanted in FILTERS:
            asked = [wanted.matches(each.event) for each in sample.publications]
            assert sample.bits(wanted) == sum(1 << place for place, yes in enumerate(asked) if yes)
            assert sample.matches_in_sample(wanted) == (sum(asked) if asked else None)
        sample.merge([event(number) for number in second])


def test_patterns_see_bodies():
    sample = SharedSample(SampleSettings())
    for number, body in enumerate((b"<a><b/></a>", b"<a/>", None, b"no document")):
        sample.add(Publication(f"e{number}", {"price": number}, body))
    assert sample.matches_in_sample(Filter.xpath("/a")) == 2
    assert sample.matches_in_sample(Filter.xpath("//b")) == 1
    assert sample.matches_in_sample(Filter("price >= 2")) == 2


def test_filters_are_asked_once_per_event_and_few_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "FILTERS_KEPT_MAX", 3)
    sample = of(list(range(8)))
    asked: list[str] = []
    matches = Filter.matches
    monkeypatch.setattr(
        Filter, "matches", lambda self, e: asked.append(self.text) or matches(self, e)
    )
    wanted = FILTERS[0]
    sample.bits(wanted)
    assert len(asked) == 8
    sample.bits(wanted)
    assert len(asked) == 8
    sample.merge([event(number) for number in range(8, 60)])
    asked.clear()
    new = set(sample.keys) - set(of(list(range(8))).keys)
    sample.bits(wanted)
    assert len(asked) == len(new) > 0
    for other in FILTERS[1:]:
        sample.bits(other)
    assert len(sample._bits) == 3
    asked.clear()
    sample.bits(wanted)
    assert len(asked) == 8


@given(numbers, numbers)
def test_bits_of_an_earlier_sample_are_read_as_far_as_both_have_the_events(first, second):
    sample = of(first)
    wanted = FILTERS[2]
    told, name, keys = sample.bits(wanted), sample.digest, sample.keys
    sample.merge([event(number) for number in second])
    read = sample.translated(told, name)
    assert read is not None
    bits, common = read
    shared = {place: key for place, key in enumerate(sample.keys) if key in keys}
    assert common == sum(1 << place for place in shared)
    assert bits == sample.bits(wanted) & common


@given(numbers, numbers)
def test_marks_tell_which_events_two_samples_share(first, second):
    one, other = of(first), of(second)
    wanted = FILTERS[1]
    bits, common = other.marked(one.bits(wanted), one.marks)
    shared = sum(1 << place for place, key in enumerate(other.keys) if key in one.keys)
    assert common & shared == shared
    short = [key[:2] for key in {*one.keys, *other.keys}]
    if len(set(short)) == len(short):
        assert (bits, common) == (other.bits(wanted) & shared, shared)


def test_samples_that_are_not_remembered_cannot_be_read(monkeypatch):
    monkeypatch.setattr(module, "VERSIONS_KEPT_MAX", 2)
    sample = of([1])
    first = sample.digest
    assert sample.translated(0, b"other") is None
    sample.merge([event(2)])
    assert sample.digest != first
    assert sample.translated(1, first) is not None
    sample.merge([event(3)])
    assert sample.digest
    assert sample.translated(1, first) is None


def test_a_network_may_be_given_a_sample():
    given_events = (Event("a", {"price": 1}), {"price": 2}, Publication("c", {"price": 3}))
    one, other = (
        SharedSample(SampleSettings(sample=order)) for order in (given_events, given_events[::-1])
    )
    assert len(one) == 3
    assert one.digest == other.digest


@pytest.mark.parametrize("settings", [{"sample_events": 0}, {"sample_event_bytes_max": 0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match="1 or more"):
        SampleSettings(**settings)
