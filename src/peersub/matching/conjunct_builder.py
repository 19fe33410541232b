"""From boxes to conjuncts in code space.

Each box becomes one conjunct: for each attribute a predicate on one slot. A domain that one slot
cannot express (`x IS NULL OR x > 5`, `x > 5 OR x = 'a'`) is a choice between several predicates on
different slots; the box is then multiplied out into one conjunct per choice, up to CHOICES_MAX.
Constraints beyond that stay with the conjunct as a *residual box*, which the caller checks on what
survives; so do text tests. An entry with several conjuncts is reported once by whoever reads
`multi`.

What was built in parts is joined by `conjunct_merge`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from peersub.events.kinds import KindClass
from peersub.filters.boxes import UNDEFINED, Box, Path
from peersub.filters.domains import EVERYTHING, Domain, of_class
from peersub.filters.intervals import FULL, GREATEST, LEAST, IntervalSet
from peersub.filters.normal_form import Boxes
from peersub.filters.patterns import TextTest
from peersub.matching.bounds import Bounds, FixedCodes, OrderedBounds, TextBounds
from peersub.matching.conjuncts import ConjunctTable
from peersub.matching.encoding import (
    BOOLEAN_CODES,
    NOTHING_CODE,
    OTHER_CODE,
    PRESENCE,
    PRESENCE_CODES,
    Encoder,
    Slot,
    presence_code,
)

__all__ = ["CHOICES_MAX", "NO_RESIDUAL", "EncodedConjuncts", "build", "has_several"]

CHOICES_MAX: Final = 64
"""Conjuncts that one box may become; what lies beyond is checked by a residual box."""
NO_RESIDUAL: Final = -1
_CLASSES: Final = tuple(KindClass)
# Ends of one side are one object, also from another process; the cuts around them need not be.
_LEAST_KEY: Final = LEAST[0]
_GREATEST_KEY: Final = GREATEST[0]

# A predicate before its slot's bounds are all known: the slot's number, with canonical cuts or,
# where codes are fixed, with closed intervals of codes (low, high, low, high, ...).
_Predicate = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class EncodedConjuncts:
    """The conjuncts of a list of entries, and what is needed to encode events for them."""

    encoder: Encoder
    table: ConjunctTable
    entry_count: int
    conjunct_entry: np.ndarray
    """int32[conjuncts], ascending: the entry that each conjunct belongs to."""
    multi: np.ndarray
    """uint8[conjuncts]: 1 where the entry has several conjuncts."""
    conjunct_test_offsets: np.ndarray
    """int64[conjuncts + 1]: where the text tests of each conjunct start, and the end of all."""
    test_numbers: np.ndarray
    """int32[]: positions in `tests`."""
    test_truths: np.ndarray
    """uint8[]: the outcomes that pass, as a mask of TRUE, FALSE and UNDEFINED of `boxes`."""
    tests: tuple[TextTest, ...]
    residual: np.ndarray
    """int32[conjuncts]: the position in `residual_boxes`, or -1."""
    residual_boxes: tuple[Box, ...]

    @property
    def needs_check(self) -> np.ndarray:
        """bool[conjuncts]: whether a text test or a residual box is left to be checked."""
        has_tests = np.diff(self.conjunct_test_offsets) > 0
        left: np.ndarray = np.logical_or(has_tests, self.residual != NO_RESIDUAL)
        return left


def build(entries: Sequence[Boxes]) -> EncodedConjuncts:
    """The conjuncts of the entries, in their order; an entry without boxes has none."""
    collected = _Collected()
    for number, boxes in enumerate(entries):
        for box in boxes:
            collected.add(number, box)
    return collected.encoded(len(entries))


@dataclass(slots=True)
class _Collected:
    """Conjuncts whose predicates are still cuts."""

    slots: dict[Slot, int] = field(default_factory=dict)
    keys: list[set[Any]] = field(default_factory=list)
    gaps_alike: list[bool] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=lambda: [0])
    predicates: list[_Predicate] = field(default_factory=list)
    tests: dict[TextTest, int] = field(default_factory=dict)
    test_offsets: list[int] = field(default_factory=lambda: [0])
    test_numbers: list[int] = field(default_factory=list)
    test_truths: list[int] = field(default_factory=list)
    residual: list[int] = field(default_factory=list)
    residual_boxes: list[Box] = field(default_factory=list)

    def add(self, entry: int, box: Box) -> None:
        """Add the conjuncts of a box."""
        common: list[_Predicate] = []
        choices: list[list[_Predicate]] = []
        for path, domain in _domains_with_tests(box).items():
            kind_class = _only_class(domain)
            if kind_class is not None:
                common.append(self.predicate(path, kind_class, domain.sets[kind_class]))
            else:
                choices.append(self.alternatives(path, domain))
        conjuncts: list[list[_Predicate]] = [common]
        residual = NO_RESIDUAL
        for alternatives in sorted(choices, key=len):
            if len(conjuncts) * len(alternatives) <= CHOICES_MAX:
                conjuncts = [[*known, one] for known in conjuncts for one in alternatives]
            elif residual == NO_RESIDUAL:
                residual = len(self.residual_boxes)
                self.residual_boxes.append(box)
        for conjunct in conjuncts:
            self.predicates += conjunct
            self.offsets.append(len(self.predicates))
            self.entries.append(entry)
            self.residual.append(residual)
            for test, truth in box.tests.items():
                self.test_numbers.append(self.tests.setdefault(test, len(self.tests)))
                self.test_truths.append(truth)
            self.test_offsets.append(len(self.test_numbers))

    def alternatives(self, path: Path, domain: Domain) -> list[_Predicate]:
        """Predicates on single slots, one of which holds iff the value lies in the domain."""
        found = []
        present = [NOTHING_CODE] if domain.absent else []
        for kind_class, cuts in zip(_CLASSES, domain.sets, strict=True):
            if cuts == FULL:
                present.append(presence_code(kind_class))
            elif cuts:
                found.append(self.predicate(path, kind_class, cuts))
        if domain.other:
            present.append(OTHER_CODE)
        if present:
            slot = self.slot(path, PRESENCE)
            found.append((slot, _code_intervals(present)))
        return found

    def predicate(self, path: Path, kind_class: KindClass, cuts: IntervalSet) -> _Predicate:
        """The predicate on the slot of a class; its bounds are noted."""
        slot = self.slot(path, kind_class)
        if kind_class is KindClass.BOOLEAN:
            return slot, _boolean_codes(cuts)
        if kind_class is not KindClass.NUMBER:
            cuts = _text_cuts(cuts) if kind_class is KindClass.STRING else _whole_cuts(cuts)
        keys = self.keys[slot]
        for cut in cuts:
            if cut[0] is not _LEAST_KEY and cut[0] is not _GREATEST_KEY:
                keys.add(cut[0])
        if kind_class is KindClass.STRING and self.gaps_alike[slot]:
            self.gaps_alike[slot] = _treats_gaps_alike(cuts)
        return slot, cuts

    def slot(self, path: Path, kind: int) -> int:
        """The number of a slot, new if it is not known yet."""
        slot = (path, int(kind))
        number = self.slots.get(slot)  # type: ignore[call-overload]
        if number is None:
            number = self.slots[Slot(*slot)] = len(self.slots)
            self.keys.append(set())
            self.gaps_alike.append(True)
        return int(number)

    def encoded(self, entry_count: int) -> EncodedConjuncts:
        """Everything in code space, once all bounds are known."""
        bounds: list[Bounds] = []
        places: list[dict[Any, int]] = []
        for slot, keys, gaps_alike in zip(self.slots, self.keys, self.gaps_alike, strict=True):
            ordered = sorted(keys)
            places.append({key: index for index, key in enumerate(ordered)})
            bounds.append(_bounds_of(slot.kind, ordered, gaps_alike))
        encoder = Encoder(self.slots, bounds)
        entries = np.array(self.entries, np.int32)
        return EncodedConjuncts(
            encoder=encoder,
            table=self._table(encoder, places),
            entry_count=entry_count,
            conjunct_entry=entries,
            multi=has_several(entries, entry_count),
            conjunct_test_offsets=np.array(self.test_offsets, np.int64),
            test_numbers=np.array(self.test_numbers, np.int32),
            test_truths=np.array(self.test_truths, np.uint8),
            tests=tuple(self.tests),
            residual=np.array(self.residual, np.int32),
            residual_boxes=tuple(self.residual_boxes),
        )

    def _table(self, encoder: Encoder, places: list[dict[Any, int]]) -> ConjunctTable:
        fixed = [isinstance(bounds, FixedCodes) for bounds in encoder.bounds]
        low: list[int] = []
        high: list[int] = []
        value_set: list[int] = []
        set_offsets: list[int] = [0]
        set_codes: list[int] = []
        for slot, cuts in self.predicates:
            codes = cuts if fixed[slot] else _codes_of_cuts(cuts, places[slot])
            low.append(codes[0])
            high.append(codes[-1])
            if len(codes) == 2:
                value_set.append(-1)
            else:
                value_set.append(len(set_offsets) - 1)
                set_codes += codes
                set_offsets.append(len(set_codes) // 2)
        return ConjunctTable(
            code_counts=encoder.code_counts,
            offsets=np.array(self.offsets, np.int64),
            slots=np.array([slot for slot, _ in self.predicates], np.int32),
            low=np.array(low, np.int32),
            high=np.array(high, np.int32),
            value_set=np.array(value_set, np.int32),
            set_offsets=np.array(set_offsets, np.int64),
            set_low=np.array(set_codes[::2], np.int32),
            set_high=np.array(set_codes[1::2], np.int32),
        )


def _only_class(domain: Domain) -> KindClass | None:
    """`domain.only_class`, which is asked for each predicate, without its generality."""
    if domain.absent or domain.other:
        return None
    found = None
    for kind_class, cuts in zip(_CLASSES, domain.sets, strict=True):
        if cuts:
            if found is not None:
                return None
            found = kind_class
    return found


def _domains_with_tests(box: Box) -> Mapping[Path, Domain]:
    """The box's domains; where a text test must be true or false, narrowed to strings."""
    if not box.tests:
        return box.domains
    domains = dict(box.domains)
    for test, truth in box.tests.items():
        if not truth & UNDEFINED:
            domain = domains.get(test.path, EVERYTHING)
            domains[test.path] = of_class(KindClass.STRING, domain.sets[KindClass.STRING])
    return domains


def has_several(entries: np.ndarray, entry_count: int) -> np.ndarray:
    """uint8[conjuncts]: 1 where the entry of a conjunct has several."""
    several: np.ndarray = np.bincount(entries, minlength=entry_count)[entries] > 1
    return several.astype(np.uint8)


def _bounds_of(kind: int, keys: list[Any], gaps_alike: bool) -> Bounds:
    if kind == PRESENCE:
        return PRESENCE_CODES
    if kind == KindClass.BOOLEAN:
        return BOOLEAN_CODES
    if kind == KindClass.STRING:
        return TextBounds.from_keys(keys, gaps_alike)
    return OrderedBounds.from_keys(keys)


def _code_intervals(codes: list[int]) -> tuple[int, ...]:
    """Ascending codes as closed intervals.

    >>> _code_intervals([0, 1, 4])
    (0, 1, 4, 4)
    """
    intervals = [codes[0], codes[0]]
    for code in codes[1:]:
        if code == intervals[-1] + 1:
            intervals[-1] = code
        else:
            intervals += (code, code)
    return tuple(intervals)


def _boolean_codes(cuts: IntervalSet) -> tuple[int, int]:
    """The codes of FALSE, TRUE or both; between the two lies the one cut there is."""
    return (0 if cuts[0] == LEAST else 1, 1 if cuts[-1] == GREATEST else 0)


def _text_cuts(cuts: IntervalSet) -> IntervalSet:
    """Cuts below a successor (a string with a NUL appended) as cuts above the string itself.

    >>> _text_cuts((("a", 0), ("a" + chr(0), 0)))
    (('a', 0), ('a', 1))
    """
    changed = tuple(
        [(cut[0][:-1], 1) if type(cut[0]) is str and cut[0][-1:] == "\0" else cut for cut in cuts]
    )
    if changed[:2] == (LEAST, ("", 1)):
        changed = (("", 0), *changed[1:])  # nothing lies below the empty string
    return changed


def _whole_cuts(cuts: IntervalSet) -> IntervalSet:
    """Single days or moments as the point between the cuts around them.

    >>> _whole_cuts(((7, 0), (8, 0), (20, 0), (30, 0)))
    ((7, 0), (7, 1), (20, 0), (30, 0))
    """
    changed = list(cuts)
    for start in range(0, len(cuts), 2):
        lower, upper = cuts[start], cuts[start + 1]
        if isinstance(lower[0], int) and upper[0] == lower[0] + 1:
            changed[start + 1] = (lower[0], 1)
    return tuple(changed)


def _treats_gaps_alike(cuts: IntervalSet) -> bool:
    """Whether a set of strings holds all strings that are none of its bounds, or no such string."""
    ends_open = cuts[-1] == GREATEST
    if ends_open:
        starts_open = cuts[0] in (LEAST, ("", 1))
        edges = cuts[1:-1]
        return starts_open and all(edges[i][0] == edges[i + 1][0] for i in range(0, len(edges), 2))
    return all(cuts[i][0] == cuts[i + 1][0] for i in range(0, len(cuts), 2))


def _codes_of_cuts(cuts: IntervalSet, places: dict[Any, int]) -> list[int]:
    """The closed intervals of codes between the cuts, as low, high, low, high, ..."""
    codes = []
    for position, cut in enumerate(cuts):
        if cut[0] is _LEAST_KEY:
            codes.append(0)
        elif cut[0] is _GREATEST_KEY:
            codes.append(2 * len(places))
        else:
            # Above cut (b, 0) lies b itself, 2 * i + 1; above (b, 1) the gap after it.
            code = 2 * places[cut[0]] + 1 + cut[1]
            codes.append(code - (position & 1))
    return codes
