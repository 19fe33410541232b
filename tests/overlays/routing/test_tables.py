"""Tables of edges: chunks, digests, held rows, and what they want."""

import pytest

from peersub.filters.filter import Filter
from peersub.overlays.chord.topology import ChordTopology
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Publication
from peersub.overlays.routing.control_filters import control_attributes
from peersub.overlays.routing.messages import Entry, FilterUpdate
from peersub.overlays.routing.rows import NO_ROWS, Rows
from peersub.overlays.routing.tables import EdgeTable, Outcome

A, B, C = (Entry("", Filter(text)) for text in ("a = 1", "b = 1", "c = 1"))


def event(**attributes):
    return Publication("e", attributes)


def update(number, version, added=(), removed=(), *, result, first=False, last=True):
    keys = tuple(entry.key for entry in removed)
    return FilterUpdate(number, version, tuple(added), keys, result.digest, first, last)


def told_table(*entries):
    table = EdgeTable((0, 8), 1)
    rows = Rows.of(entries)
    assert table.apply(update(1, 1, entries, result=rows, first=True)) is Outcome.APPLIED
    return table


def test_a_table_of_which_nothing_is_known_wants_everything():
    table = EdgeTable((0, 8), 1)
    assert table.matches(event(z=1), (0, 8), None)
    told = told_table()
    assert not told.matches(event(z=1), (0, 8), None)


def test_changes_are_applied():
    table = told_table(A, B)
    after = Rows.of([B, C])
    assert table.apply(update(2, 1, [C], [A], result=after)) is Outcome.APPLIED
    assert table.rows == after
    assert table.matches(event(c=1), (0, 8), None)
    assert not table.matches(event(a=1), (0, 8), None)


def test_nothing_of_an_update_is_used_before_its_last_chunk():
    table = told_table(A)
    after = Rows.of([B, C])
    chunk = update(2, 1, [B], [A], result=after, first=True, last=False)
    assert table.apply(chunk) is Outcome.INCOMPLETE
    assert table.rows == Rows.of([A])
    assert table.apply(update(2, 1, [C], result=after)) is Outcome.APPLIED
    assert table.rows == after


def test_a_whole_table_forgets_chunks_that_were_never_finished():
    table = told_table(A)
    table.apply(update(2, 1, [B], result=Rows.of([A, B, C]), last=False))
    assert table.apply(update(3, 1, [C], result=Rows.of([C]), first=True)) is Outcome.APPLIED
    assert table.rows == Rows.of([C])


def test_another_digest_is_a_mismatch_and_loses_no_filter():
    table = told_table(A, B)
    wrong = update(2, 1, [C], [A], result=Rows.of([C]))
    assert table.apply(wrong) is Outcome.MISMATCH
    assert table.rows == Rows.of([A, B, C]), "old and new rows, until the whole table is here"
    whole = update(3, 1, [C], result=Rows.of([C]), first=True)
    assert table.apply(whole) is Outcome.APPLIED
    assert table.rows == Rows.of([C])
    assert not table.held


def test_a_wrong_whole_table_is_told_apart():
    table = told_table(A)
    wrong = update(2, 1, [B], result=Rows.of([C]), first=True)
    assert table.apply(wrong) is Outcome.WHOLE_MISMATCH


def test_held_rows_stay_until_the_present_scope_is_answered():
    table = told_table(A)
    table.assign((0, 16), 4)
    table.hold(Rows.of([B], {"node-join": (1, 2)}))
    assert table.rows == Rows.of([A, B], {"node-join": (1, 2)})
    assert table.apply(update(2, 1, [C], result=Rows.of([A, C]))) is Outcome.APPLIED
    assert table.rows.entries == Rows.of([A, B, C]).entries, "that was for the scope before"
    table.assign((0, 32), 6)
    table.apply(update(3, 4, result=Rows.of([A, C])))
    assert len(table.held) == 2, "the scope has changed again"
    table.apply(update(4, 6, result=Rows.of([A, C])))
    assert table.rows == Rows.of([A, C])
    assert table.held is NO_ROWS


def test_updates_for_a_responsibility_that_was_taken_back_are_refused():
    table = EdgeTable((0, 8), 5)
    with pytest.raises(ValueError, match="taken back"):
        table.apply(update(1, 4, [A], result=Rows.of([A]), first=True))
    assert table.rows is NO_ROWS


def test_control_notifications_are_matched_by_their_own_rows():
    table = EdgeTable((0, 8), 1)
    everything = Entry("", Filter("TRUE"))
    rows = Rows.of([everything], {"node-join": (5, 9)})
    table.apply(update(1, 1, rows.wire_entries(), result=rows, first=True))
    for key, expected in ((4, False), (5, True), (9, True), (10, False)):
        notification = Publication("c", control_attributes("node-join", key))
        assert table.matches(notification, (0, 8), None, "node-join") is expected
    other = Publication("c", control_attributes("node-location", 5))
    assert not table.matches(other, (0, 8), None, "node-location")
    assert table.matches(event(a=1), (0, 8), None)


def test_with_reaches_only_rows_whose_owners_may_be_in_the_part_count():
    circle = ChordTopology(PeerId("n0"), 0, 8)
    entry = Entry("", Filter("a = 1"), (10, 5))
    table = told_table(entry, Entry("", Filter("b = 1")))
    assert table.matches(event(a=1), (12, 4), circle)
    assert not table.matches(event(a=1), (15, 4), circle)
    assert table.matches(event(b=1), (15, 4), circle), "of unknown reach"
    table.hold(Rows.of([Entry("", Filter("a = 1"), (40, 1))]))
    assert table.matches(event(a=1), (200, 1), circle), "two reaches are held as unknown"
