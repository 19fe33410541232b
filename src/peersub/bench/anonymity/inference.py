"""Bayes' rule for observers: what they see, and what they conclude from it.

*Spies* are members that do as all do, and write down which neighbour sent them the event, and:

* `order`: in which order the copies came to each of them (they have no common clock);
* `time`: in which round each copy came.

Who knows the graph and its turns asks which hypotheses agree with all that. What is seen follows
from the hypothesis with certainty, so the posterior of a publisher is the weight of its hypotheses
that agree, divided by the weight of all that agree (`posteriors`). Spies do not suspect each other.

Who knows only its own neighbours and the number of members has nothing to tell other members apart
by: it has a *suspect*, the neighbour that was first to send the event to a spy. By symmetry the
posterior is some q for the suspect and the same for all others. How often the suspect is the
publisher, q, an observer can learn from networks of the same size (`suspicion`).

Laws: probabilities of a posterior sum to 1; the true publisher has a positive one; the mean of the
largest is the share of events whose publisher the observer guesses right, since it guesses the most
probable one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Final, Literal, TypeAlias

import numpy as np

from peersub.bench.anonymity.hypotheses import Hypotheses
from peersub.overlays.dag.rounds import NEVER

__all__ = [
    "Anonymity",
    "Clock",
    "Posteriors",
    "anonymity_of",
    "anonymity_of_suspicion",
    "observed",
    "posteriors",
    "suspects",
    "suspicion",
]

Clock: TypeAlias = Literal["order", "time"]
_SUM_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymity:
    """What is left of a publisher's anonymity; means over all events."""

    entropy_bits: float
    """Of the posterior: how many bits are missing to know the publisher."""
    entropy_bits_max: float
    """Of the prior: what an observer starts with."""
    set_mean: float
    """Members that may have published, as far as the observer knows."""
    guessed: float
    """The share of events whose publisher is the observer's first guess, and is right."""
    certain: float
    """The share of events whose publisher is the only one possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posteriors:
    """All posteriors that observations lead to, row by row; rows with one group are a posterior."""

    groups: np.ndarray
    """Per hypothesis the number of what would be seen."""
    row_groups: np.ndarray
    row_publishers: np.ndarray
    row_shares: np.ndarray
    """The posterior probability of this publisher, given this observation."""
    group_weights: np.ndarray
    """Per observation how probable it is."""

    def of(self, hypothesis: int) -> dict[int, float]:
        """What observers conclude if that hypothesis is true."""
        rows = self.row_groups == self.groups[hypothesis]
        publishers, shares = self.row_publishers[rows], self.row_shares[rows]
        return dict(zip(publishers.tolist(), shares.tolist(), strict=True))


def observed(those: Hypotheses, spies: np.ndarray, clock: Clock) -> np.ndarray:
    """Per hypothesis (rows) what the spies write down, as numbers."""
    seen = [np.empty((len(those), 0), np.int32)]
    for spy in spies.tolist():
        copies = those.when[:, those.targets == spy]
        if clock == "order":
            # Those that came at once are told apart by the neighbour's number, as they are sent.
            order = np.argsort(np.where(copies == NEVER, np.iinfo(np.int32).max, copies), axis=1)
            copies = np.where(np.take_along_axis(copies, order, axis=1) == NEVER, NEVER, order)
        seen.append(copies.astype(np.int32))
    table = np.concatenate(seen, axis=1)
    if clock == "time" and those.times_are_relative and table.size:
        first = np.where(table == NEVER, np.iinfo(np.int32).max, table).min(axis=1, keepdims=True)
        table = np.where(table == NEVER, NEVER, table - first)
    return table


def posteriors(
    seen: np.ndarray, publishers: np.ndarray, weights: np.ndarray, members: int
) -> Posteriors:
    """Bayes' rule over hypotheses of which each makes one row of `seen` certain.

    Args:
        seen: per hypothesis what is observed.
        publishers: per hypothesis who published.
        weights: per hypothesis its prior weight; those of weight 0 are ruled out.
        members: how many may be publishers, numbered from 0.
    """
    _, groups = np.unique(seen, axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    cells, places = np.unique(groups * members + publishers, return_inverse=True)
    masses = np.bincount(places.reshape(-1), weights)
    row_groups, row_publishers = cells // members, cells % members
    totals = np.bincount(row_groups, masses)
    is_possible = masses > 0
    masses, row_groups = masses[is_possible], row_groups[is_possible]
    return Posteriors(
        groups=groups,
        row_groups=row_groups,
        row_publishers=row_publishers[is_possible],
        row_shares=masses / totals[row_groups],
        group_weights=totals / weights.sum(),
    )


def anonymity_of(found: Posteriors, candidates: int) -> Anonymity:
    """The means over all events; of so many members each was as likely before."""
    count = len(found.group_weights)
    shares, rows, weights = found.row_shares, found.row_groups, found.group_weights
    sums = np.bincount(rows, shares, minlength=count)
    assert np.allclose(sums[weights > 0], 1, atol=_SUM_TOLERANCE), "no posterior sums to 1"
    entropies = np.bincount(rows, -shares * np.log2(shares), minlength=count)
    sizes = np.bincount(rows, minlength=count)
    largest = np.zeros(count)
    np.maximum.at(largest, rows, shares)
    return Anonymity(
        entropy_bits=float(entropies @ weights),
        entropy_bits_max=log2(max(candidates, 1)),
        set_mean=float(sizes @ weights),
        guessed=float(largest @ weights),
        certain=float((sizes == 1) @ weights),
    )


# --- observers who do not know the graph ---------------------------------------------------------


def suspects(those: Hypotheses, spies: np.ndarray, clock: Clock) -> np.ndarray:
    """Per hypothesis whom the spies suspect: who was first to send one of them the event.

    Without a common clock each names the one that was first to send to it, and the one most of them
    name is suspected. Ties go to the smallest number.
    """
    is_seen = np.isin(those.targets, spies)
    origins, targets = those.origins[is_seen], those.targets[is_seen]
    when = those.when[:, is_seen]
    late = np.iinfo(np.int32).max
    # A column's rank makes ties certain: earlier round first, then the sender's number.
    ranks = np.where(when == NEVER, late, when).astype(np.int64) * those.members + origins
    if clock == "time":
        return np.asarray(origins[ranks.argmin(axis=1)])
    votes = np.zeros((len(those), those.members), np.int32)
    for spy in spies.tolist():
        columns = np.flatnonzero(targets == spy)
        firsts = origins[columns][ranks[:, columns].argmin(axis=1)]
        votes[np.arange(len(those)), firsts] += 1
    return np.asarray(votes.argmax(axis=1))


def suspicion(those: Hypotheses, spies: np.ndarray, clock: Clock) -> float:
    """The share of events by members other than the spies whose publisher is the suspect."""
    weights = np.where(np.isin(those.publishers, spies), 0, those.weights)
    is_right = suspects(those, spies, clock) == those.publishers
    return float(weights[is_right].sum() / weights.sum())


def anonymity_of_suspicion(learned: float, measured: float, candidates: int) -> Anonymity:
    """What is left if one suspect has the learned probability, and all others the same one.

    Args:
        learned: how probable the suspect is, as far as the observer knows.
        measured: how often it is right to suspect.
        candidates: members that may have published.
    """
    others = (1 - learned) / max(candidates - 1, 1)
    shares = np.array([learned, *[others] * (candidates - 1)])
    shares = shares[shares > 0]
    return Anonymity(
        entropy_bits=float(-(shares * np.log2(shares)).sum()),
        entropy_bits_max=log2(max(candidates, 1)),
        set_mean=float(len(shares)),
        guessed=measured if learned >= others else 1 / candidates,
        certain=measured if learned == 1 else 0.0,
    )
