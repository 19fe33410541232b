"""Boxes: conjunctions of constraints, one domain per attribute. A filter is a union of them.

An event lies in a box iff each constrained attribute's value lies in its domain and each text test
comes out as the box demands. A text test is treated as one more attribute with the values true,
false and undefined (the attribute is no string): reasoning about it as if it were independent is
sound, and the rules in `possible_truths` recover what can be known.

The operations return sets of events: `intersection`, `subtraction`, and the order `box_covers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from peersub.events.kinds import KindClass, comparable, value_at
from peersub.filters.domains import EVERYTHING, Domain, intersection_of, of_class
from peersub.filters.intervals import FULL, points, single_points
from peersub.filters.patterns import Operator, TextTest, escape_like, like_implies

__all__ = [
    "Box",
    "Path",
    "box_covers",
    "box_intersection",
    "box_matches",
    "box_of",
    "box_subtraction",
    "intersection_of_boxes",
    "possible_truths",
]

Path = tuple[str, ...]
# Looking up a member of an enum takes longer than most of what is done below.
_STRING: Final = KindClass.STRING
_LIKE: Final = Operator.LIKE
TRUE: Final = 1
FALSE: Final = 2
UNDEFINED: Final = 4
ANY_TRUTH: Final = TRUE | FALSE | UNDEFINED


@dataclass(frozen=True)
class Box:
    """A conjunction. No domain is everything, no truth is ANY_TRUTH, nothing is empty."""

    domains: Mapping[Path, Domain]
    tests: Mapping[TextTest, int]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What makes two boxes equal; sorts by the names and not by the values."""
        return (tuple(sorted(self.domains.items(), key=_name)), tuple(sorted(self.tests.items())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def domain(self, path: Path) -> Domain:
        """The domain of an attribute, everything if it is not constrained."""
        return self.domains.get(path, EVERYTHING)


def _name(item: tuple[Path, Domain]) -> Path:
    return item[0]


UNIVERSE: Final = Box({}, {})


def box_of(domains: Mapping[Path, Domain], tests: Mapping[TextTest, int]) -> Box | None:
    """The box with these constraints, simplified; None if nothing can lie in it."""
    kept = {path: domain for path, domain in domains.items() if not domain.is_everything}
    if any(domain.is_empty for domain in kept.values()):
        return None
    if not tests:
        return Box(kept, {})
    return _settle_tests(kept, tests)


def _settle_tests(domains: dict[Path, Domain], tests: Mapping[TextTest, int]) -> Box | None:
    """Apply each test to a finite set of strings and drop it; drop tests that others imply."""
    remaining: dict[TextTest, int] = {}
    for test, truth in tests.items():
        if truth == ANY_TRUTH:
            continue
        domain = domains.get(test.path, EVERYTHING)
        texts = _finitely_many(domain)
        if texts is None:
            remaining[test] = truth
            continue
        passing = [text for text in texts if truth & (TRUE if test.holds(text) else FALSE)]
        if len(passing) < len(texts):
            domain = _with_strings(domain, passing)
        if not truth & UNDEFINED:
            domain = of_class(_STRING, domain.sets[_STRING])
        if domain.is_empty:
            return None
        domains[test.path] = domain
    for test, truth in list(remaining.items()):
        possible = _possible_truths(domains.get(test.path, EVERYTHING), remaining, test, ANY_TRUTH)
        if not possible & truth:
            return None
        if possible & ~truth == 0:
            del remaining[test]
    return Box(domains, remaining)


def _finitely_many(domain: Domain) -> list[str] | None:
    strings = domain.sets[_STRING]
    return None if strings == FULL else single_points(_STRING, strings)


def _with_strings(domain: Domain, texts: Iterable[str]) -> Domain:
    number, _, boolean, date, timestamp = domain.sets
    strings = points(_STRING, texts)
    return Domain(domain.absent, domain.other, (number, strings, boolean, date, timestamp))


def possible_truths(box: Box, test: TextTest) -> int:
    """The outcomes that a test can have for events in the box; a superset of those that it has.

    Known are: what the box says of the test itself; that a test of a value that is no string is
    undefined; its outcome on finitely many strings; and what other LIKE tests, or a common prefix
    of the strings, imply.
    """
    known = box.tests.get(test, ANY_TRUTH)
    return _possible_truths(box.domain(test.path), box.tests, test, known)


def _possible_truths(
    domain: Domain, tests: Mapping[TextTest, int], test: TextTest, truths: int
) -> int:
    """What `truths` leaves of a test, given a domain and the outcomes of other tests."""
    strings = domain.sets[_STRING]
    if not strings:
        return truths & UNDEFINED
    only_strings = domain.only_class is _STRING
    if only_strings:
        truths &= TRUE | FALSE
    texts = _finitely_many(domain)
    if texts is not None:
        outcomes = 0 if only_strings else UNDEFINED
        for text in texts:
            outcomes |= TRUE if test.holds(text) else FALSE
        return truths & outcomes
    if test.operator is _LIKE and _implied_by_prefix(domain, test.pattern):
        truths &= ~FALSE
    for other, truth in tests.items():
        if other.path != test.path or other == test:
            continue
        if truth == TRUE and other.implies(test):
            truths &= TRUE
        elif truth == FALSE and test.implies(other):
            truths &= FALSE
    return truths


def _implied_by_prefix(domain: Domain, pattern: str) -> bool:
    """Whether the common prefix of all strings of the domain alone makes them LIKE the pattern."""
    strings = domain.sets[_STRING]
    first, last = strings[0][0], strings[-1][0]
    if not isinstance(first, str) or not isinstance(last, str):
        return False
    # The last cut lies above all strings, so the prefix they share ends before the two differ;
    # where the last cut is the next sibling of a prefix, all of that prefix is shared.
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    sibling = (
        len(last) == shared + 1 and len(first) > shared and ord(last[-1]) == ord(first[shared]) + 1
    )
    prefix = first[: shared + 1] if sibling else first[:shared]
    return bool(prefix) and like_implies(escape_like(prefix) + "%", pattern)


def box_matches(box: Box, attributes: Mapping[str, Any]) -> bool:
    """Whether an event with these attributes lies in the box."""
    for path, domain in box.domains.items():
        if not domain.contains(value_at(attributes, path)):
            return False
    for test, truth in box.tests.items():
        place = comparable(value_at(attributes, test.path))
        if place is None or place[0] is not _STRING:
            outcome = UNDEFINED
        else:
            outcome = TRUE if test.holds(place[1]) else FALSE
        if not outcome & truth:
            return False
    return True


def box_intersection(a: Box, b: Box) -> Box | None:
    """The events that lie in both; None if there are none."""
    if not a.domains and not a.tests:
        return b
    if not b.domains and not b.tests:
        return a
    domains = dict(a.domains)
    for path, domain in b.domains.items():
        known = domains.get(path)
        if known is not None:
            domain = known.intersection(domain)
            if domain.is_empty:
                return None
        domains[path] = domain
    if not a.tests and not b.tests:
        return Box(domains, {})
    tests = dict(a.tests)
    for test, truth in b.tests.items():
        tests[test] = tests.get(test, ANY_TRUTH) & truth
        if not tests[test]:
            return None
    return _settle_tests(domains, tests)


def intersection_of_boxes(boxes: Sequence[Box]) -> Box | None:
    """The events that lie in all of them; as one step, so that thousands take no square time."""
    if len(boxes) == 1:
        return boxes[0]
    found: dict[Path, list[Domain]] = {}
    tests: dict[TextTest, int] = {}
    for box in boxes:
        for path, domain in box.domains.items():
            known = found.get(path)
            if known is None:
                found[path] = [domain]
            else:
                known.append(domain)
        for test, truth in box.tests.items():
            tests[test] = tests.get(test, ANY_TRUTH) & truth
            if not tests[test]:
                return None
    domains: dict[Path, Domain] = {}
    for path, several in found.items():
        domain = several[0] if len(several) == 1 else intersection_of(several)
        if domain.is_empty:
            return None
        domains[path] = domain
    return _settle_tests(domains, tests) if tests else Box(domains, {})


def box_covers(general: Box, specific: Box) -> bool:
    """general ⊒ specific: each event in the latter lies in the former; complete without tests."""
    for path, domain in general.domains.items():
        known = specific.domains.get(path)
        if known is None or not known.is_subset(domain):
            return False
    return all(
        possible_truths(specific, test) & ~truth == 0 for test, truth in general.tests.items()
    )


def box_subtraction(piece: Box, box: Box) -> list[Box]:
    """Disjoint boxes that together hold what lies in `piece` and not in `box`.

    For each constraint of `box` in turn: what fails this one and passes those before it.
    """
    if box_intersection(piece, box) is None:
        return [piece]
    left: list[Box] = []
    domains, tests = dict(piece.domains), dict(piece.tests)
    for path, domain in box.domains.items():
        known = domains.get(path, EVERYTHING)
        outside = box_of({**domains, path: known.difference(domain)}, tests)
        if outside is not None:
            left.append(outside)
        domains[path] = known.intersection(domain)
    for test, truth in box.tests.items():
        possible = possible_truths(Box(domains, tests), test)
        if possible & ~truth:
            outside = box_of(domains, {**tests, test: possible & ~truth})
            if outside is not None:
                left.append(outside)
        tests[test] = possible & truth
    return left
