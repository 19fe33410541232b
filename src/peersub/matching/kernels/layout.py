"""The layout of the index, shared by the kernels that build it and those that read it.

A conjunct is entered under its *access predicate*, the one that fewest events satisfy; where that
is a set of a few intervals, once per interval. The entries are sorted by access slot, then by the
slot of their second most selective predicate (together: a *list*), then by the lowest access cell.
An entry is ``ENTRY_WORDS`` words of 32 bits:

==== ======== ==========================================================================
word bytes
==== ======== ==========================================================================
0             access predicate: lowest code
1             access predicate: highest code less the lowest
2             position of the first word of its other predicates
3             number of the conjunct, or its tag
4    16       how many of them are intervals to be checked on codes, from 1 to 4
4    17       how many column tests are used, and flags
4    18, 19   access predicate: lowest and highest cell
5    20..23   column of each test
6    24..27   lowest cell of each test
7    28..31   highest cell less the lowest of each test
==== ======== ==========================================================================

The flags: ``REST_FLAG``, more predicates follow those counted; ``DOUBT_FLAG``, whatever passes the
column tests is to be checked on codes; ``LOW_DOUBT_FLAG`` and ``HIGH_DOUBT_FLAG``, the lowest and
the highest access cell hold codes outside the access predicate. Without ``DOUBT_FLAG`` an event
that lies inside the *inner* bounds of all tests, which leave out the cells that an end of the
predicate divides, is certain to match: these are two words per entry, laid out as words 6 and 7.

The *other* predicates are words of 32 bits: for an interval the slot, the lowest code and the
highest less the lowest. After the counted intervals, and only with ``REST_FLAG``, come further
intervals and the sets: with ``SET_FLAG`` the slot, the number of intervals and their bounds
(lowest, width) or, with ``FAR_FLAG`` too, the row of the set table. The last predicate has
``LAST_FLAG``. There is always one, if need be the hull of the access predicate.
A column test that decides its predicate alone (its bounds are ends of cells) is not repeated there.

The columns of an access slot are the slots of its *groups*: a group is eight neighbouring slots,
column ``c`` is slot ``c % 8`` of the access slot's group ``c // 8``.

Conjuncts whose access predicate is a few single codes that hardly any event has are not scanned
but looked up: their entries come last, sorted by access slot and code, without column tests. The
entries of code ``c`` of the ``i``-th *point slot* are those from ``point_start[point_base[i] + c]``
up to the next start.

For one event at a time, four lines of bytes repeat the bounds of every entry's access predicate
and of its second: lowest cells of the access predicates, their widths, lowest cells of the second
predicates, their widths.
"""

from __future__ import annotations

ENTRY_WORDS = 8
CONJUNCT_WORD = 3
TESTS_MAX = 4
GROUP_SLOTS = 8
GROUPS_MAX = 32
COUNT_MAX = 4
REST_FLAG = 128
DOUBT_FLAG = 64
LOW_DOUBT_FLAG = 32
HIGH_DOUBT_FLAG = 16

PREDICATE_WORDS = 3
SET_FLAG = 1 << 30
LAST_FLAG = 1 << 29
FAR_FLAG = 1 << 28
SLOT_MASK = (1 << 28) - 1
NEAR_INTERVALS_MAX = 8

# The directory of an index: addresses of its arrays, and a few counts.
SLOT_COUNT = 0
USED_SLOTS = 1
USED_SLOTS_COUNT = 2
CELL_FIRST = 3
CELL_SHIFT = 4
CELL_TABLE = 5
CELL_UPPER = 6
ACCESS_SLOTS = 7
ACCESS_SLOTS_COUNT = 8
ACCESS_FIRST = 9
GROUP_FIRST = 10
GROUPS = 11
ENTRIES = 12
PREDICATES = 13
SET_OFFSETS = 14
SET_LOW = 15
SET_HIGH = 16
LIST_FIRST = 17
LIST_SLOTS = 18
LIST_START = 19
BOUNDS = 20
BOUNDS_LINE = 21
ALWAYS = 22
ALWAYS_COUNT = 23
INNER_TESTS = 24
POINT_SLOTS = 25
POINT_SLOTS_COUNT = 26
POINT_BASE = 27
POINT_START = 28
DIRECTORY_LENGTH = 29
