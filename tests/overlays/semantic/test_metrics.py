"""The metrics of the semantic overlays, against sums by hand."""

from __future__ import annotations

import pytest

from peersub.overlays.semantic.metrics import DocumentOutcome, RoutingTotals


def outcome(members: int, matching: set[int], received: list[int], hops: dict[int, int]):
    """From who matches, and each copy that came to someone."""
    reached = set(received)
    return DocumentOutcome(
        members=members,
        matching=len(matching),
        receivers=len(reached),
        matching_receivers=len(matching & reached),
        messages=len(received) - 1,
        duplicates=len(received) - len(reached),
        hops=sum(hops[member] for member in matching & reached),
        hops_max=max((hops[member] for member in matching & reached), default=0),
    )


def test_false_positives_are_over_all_members_and_false_negatives_over_the_matching():
    one = outcome(10, {0, 1, 2, 3}, [0, 1, 1, 5, 6], {0: 0, 1: 1})
    assert one.false_positive_ratio == 2 / 10
    assert one.false_negative_ratio == 2 / 4
    assert one.precision == 2 / 4
    assert one.uninterested_ratio == 6 / 10


def test_documents_that_nobody_matches_have_no_false_negatives():
    totals = RoutingTotals()
    totals.add(outcome(10, {0, 1, 2, 3}, [0, 1, 1, 5, 6], {0: 0, 1: 3}))
    totals.add(outcome(10, set(), [4, 5], {}))
    metrics = totals.metrics()
    assert metrics.documents == 2
    assert metrics.documents_matched == 1
    assert metrics.false_negative_ratio == pytest.approx(2 / 4)
    assert metrics.false_positive_ratio == pytest.approx((2 / 10 + 2 / 10) / 2)
    assert metrics.precision == pytest.approx((2 / 4 + 0) / 2)
    assert metrics.uninterested_ratio == pytest.approx((6 / 10 + 10 / 10) / 2)
    assert metrics.duplicates_per_member == pytest.approx((1 / 10 + 0) / 2)
    assert metrics.hops == pytest.approx(3 / 2)
    assert metrics.hops_max == 3
    assert metrics.messages_per_document == pytest.approx((4 + 1) / 2)
    assert metrics.messages_per_delivery == pytest.approx(5 / 2)


def test_a_document_that_nobody_received_has_no_precision():
    lost = DocumentOutcome(members=3, matching=1, receivers=0, matching_receivers=0)
    assert lost.precision is None
    totals = RoutingTotals()
    totals.add(lost)
    assert totals.metrics().precision == 0
    assert totals.metrics().false_negative_ratio == 1


def test_nothing_measured_is_zero():
    assert RoutingTotals().metrics().messages_per_delivery == 0


def test_more_cannot_be_reached_than_there_are():
    with pytest.raises(AssertionError):
        DocumentOutcome(members=3, matching=1, receivers=1, matching_receivers=2)
    with pytest.raises(AssertionError):
        DocumentOutcome(members=3, matching=1, receivers=4, matching_receivers=1)
