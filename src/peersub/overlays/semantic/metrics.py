"""How well a network routes: one definition for the simulator's report, benchmarks and tests.

For one document, in a network of N members (Chand & Felber 2005, §5):

* *false positives*: members that received it and do not match, over **all N members** (not over
  those that received it);
* *false negatives*: matching members that did not receive it, over the matching ones. A document
  that nobody matches has no such ratio and is left out of the average;
* *precision*: matching receivers over receivers; left out where nobody received it;
* *duplicates*: copies that came to a member that had the document already, over the members;
* *hops*: links from the publisher to a matching member, on the way that was first;
* *messages*: copies sent between members of different nodes, and *per delivery*: all messages over
  all deliveries.

The publisher counts as a receiver. Ratios are averages over documents, each document weighing the
same; `messages_per_delivery` is a quotient of sums, since it says what a network carries.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DocumentOutcome", "RoutingMetrics", "RoutingTotals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOutcome:
    """What became of one document."""

    members: int
    matching: int
    receivers: int
    matching_receivers: int
    messages: int = 0
    duplicates: int = 0
    hops: int = 0
    """Added up over the matching receivers."""
    hops_max: int = 0

    def __post_init__(self) -> None:
        assert self.matching_receivers <= min(self.matching, self.receivers)
        assert max(self.matching, self.receivers) <= self.members

    @property
    def false_positive_ratio(self) -> float:
        """Members that received it in vain, over all."""
        return (self.receivers - self.matching_receivers) / self.members

    @property
    def false_negative_ratio(self) -> float | None:
        """Matching members that did not receive it, over the matching ones; None if none match."""
        if not self.matching:
            return None
        return (self.matching - self.matching_receivers) / self.matching

    @property
    def precision(self) -> float | None:
        """Matching receivers over receivers; None if there are none."""
        return self.matching_receivers / self.receivers if self.receivers else None

    @property
    def uninterested_ratio(self) -> float:
        """Members that do not match, over all: the false positives of a broadcast."""
        return (self.members - self.matching) / self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingMetrics:
    """Averages over documents."""

    documents: int
    documents_matched: int
    """Documents that somebody matches: false negatives are averages over these."""
    false_positive_ratio: float
    false_negative_ratio: float
    precision: float
    uninterested_ratio: float
    duplicates_per_member: float
    hops: float
    """Per delivery."""
    hops_max: int
    messages_per_document: float
    messages_per_delivery: float


class RoutingTotals:
    """Adds outcomes up.

    >>> totals = RoutingTotals()
    >>> totals.add(DocumentOutcome(members=10, matching=4, receivers=7, matching_receivers=3))
    >>> totals.add(DocumentOutcome(members=10, matching=0, receivers=1, matching_receivers=0))
    >>> totals.metrics().false_positive_ratio, totals.metrics().false_negative_ratio
    (0.25, 0.25)
    """

    def __init__(self) -> None:
        self._documents = 0
        self._matched = 0
        self._received = 0
        self._false_positives = 0.0
        self._false_negatives = 0.0
        self._precision = 0.0
        self._uninterested = 0.0
        self._duplicates = 0.0
        self._deliveries = 0
        self._hops = 0
        self._hops_max = 0
        self._messages = 0

    def add(self, outcome: DocumentOutcome) -> None:
        """Count one more document."""
        self._documents += 1
        self._false_positives += outcome.false_positive_ratio
        self._uninterested += outcome.uninterested_ratio
        missed = outcome.false_negative_ratio
        if missed is not None:
            self._matched += 1
            self._false_negatives += missed
        precision = outcome.precision
        if precision is not None:
            self._received += 1
            self._precision += precision
        self._duplicates += outcome.duplicates / outcome.members
        self._deliveries += outcome.matching_receivers
        self._hops += outcome.hops
        self._hops_max = max(self._hops_max, outcome.hops_max)
        self._messages += outcome.messages

    def metrics(self) -> RoutingMetrics:
        """The averages so far; 0 where there is nothing to average."""
        return RoutingMetrics(
            documents=self._documents,
            documents_matched=self._matched,
            false_positive_ratio=_mean(self._false_positives, self._documents),
            false_negative_ratio=_mean(self._false_negatives, self._matched),
            precision=_mean(self._precision, self._received),
            uninterested_ratio=_mean(self._uninterested, self._documents),
            duplicates_per_member=_mean(self._duplicates, self._documents),
            hops=_mean(self._hops, self._deliveries),
            hops_max=self._hops_max,
            messages_per_document=_mean(self._messages, self._documents),
            messages_per_delivery=_mean(self._messages, self._deliveries),
        )


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0
