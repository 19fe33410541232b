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
2             position of its other predicates in the predicate arrays
3             number of the conjunct
4    16       how many of them are intervals to be checked on codes, up to 255
4    17       how many column tests are used; with REST_FLAG, more predicates follow those counted
4    18, 19   access predicate: lowest and highest cell
5    20..23   column of each test
6    24..27   lowest cell of each test
7    28..31   highest cell less the lowest of each test
==== ======== ==========================================================================

The *other* predicates are three words each: the slot with flags, the lowest code, and the highest
less the lowest; with ``SET_FLAG``, the row of the set table and nothing. Sets come last; the very
last one has ``LAST_FLAG``.
A column test that decides its predicate alone (its bounds are ends of cells) is not repeated there.

The columns of an access slot are the slots of its *groups*: a group is eight neighbouring slots,
column ``c`` is slot ``c % 8`` of the access slot's group ``c // 8``.

For one event at a time, four lines of bytes repeat the bounds of every entry's access predicate
and of its second: lowest cells of the access predicates, their widths, lowest cells of the second
predicates, their widths.
"""

from __future__ import annotations

ENTRY_WORDS = 8
TESTS_MAX = 4
GROUP_SLOTS = 8
GROUPS_MAX = 32
COUNT_MAX = 255
REST_FLAG = 128

PREDICATE_WORDS = 3
SET_FLAG = 1 << 30
LAST_FLAG = 1 << 29
SLOT_MASK = (1 << 29) - 1

NO_SLOT = -1
"""The second slot of a list whose conjuncts have only one predicate."""

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
DIRECTORY_LENGTH = 24
