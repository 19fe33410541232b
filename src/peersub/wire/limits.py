"""The bounds on what comes over a link: a hostile frame meets one of them before it costs much.

Nothing is allocated by what a length field claims: the frame's own length is checked when its first
four bytes are in, and the lengths inside are checked against the bytes that are there.
"""

from typing import Final

from peersub.filters.wire_form import BYTES_MAX
from peersub.overlays.core.batch_bounds import ROW_VALUES_MAX

HEADER_BYTES_MAX: Final = 0xFFFF
"""Of a frame's header: its length is written in two bytes."""
ATTRIBUTES_BYTES_MAX: Final = 1_024 * 1_024
BODY_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""As large as the largest document that a pattern is asked about."""
FRAME_BYTES_MAX: Final = BODY_BYTES_MAX + ATTRIBUTES_BYTES_MAX + 4 * HEADER_BYTES_MAX
"""Room for the largest event, also where it travels inside of other messages."""

BATCH_BYTES_MAX: Final = BODY_BYTES_MAX
"""Of the columns of a batch of events."""

LIST_ITEMS_MAX: Final = 65_536
"""Entries, keys, names, numbers in one list of a message."""
TEXT_CHARACTERS_MAX: Final = 65_536
"""Of a name, a reason or a setting."""
OPAQUE_BYTES_MAX: Final = 65_536
"""Of bytes that the wire does not look into: greetings, digests, identities."""
INTEGER_BYTES_MAX: Final = 32
"""Of a number in a message that 64 bits do not hold: keys of the circle may be that wide."""
MESSAGE_NESTING_MAX: Final = 4
"""Messages inside of messages: a carried one between slots in a tunnel needs them all."""

VALUE_NESTING_MAX: Final = 128
"""Records and lists inside of each other in an attribute."""
VALUES_MAX: Final = ROW_VALUES_MAX
"""Values in the attributes of one event, with those in records and lists: each costs every node on
the way a microsecond and some hundred bytes, and may be a single byte of what travels."""
UNNAMED_CHARACTERS_MAX: Final = 1_024
"""Of the description by which a value of no kind travels."""

FILTER_BYTES_MAX: Final = BYTES_MAX
FILTERS_HELD_MAX: Final = 256
"""Filters that are known by their bytes though nobody uses them: some cross several edges at once,
and are only passed on."""
REMEMBERED_FILTER_BYTES_MAX: Final = 1_024
"""Longer ones are worked out each time: this bounds the memory of the remembered ones."""
