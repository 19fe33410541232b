"""The bounds on a filter: a hostile one meets one of them before it costs much."""

from typing import Final

TEXT_CHARACTERS_MAX: Final = 32_768
NESTING_MAX: Final = 64
CONJUNCTS_MAX: Final = 1_024
"""Boxes of the normal form."""
PRODUCTS_MAX: Final = 2 * CONJUNCTS_MAX
"""Boxes, and text tests in them, that multiplying out may make, all steps together."""
CONSTRAINTS_MAX: Final = 16_384
"""Constraints of all boxes of the normal form together, and of the boxes made on the way."""
NUMBER_DIGITS_MAX: Final = 76
"""As many as the widest decimal of Arrow holds."""
TEXT_TESTS_MAX: Final = 64
"""General LIKE patterns and RLIKE expressions of one filter: each is compared with each."""
PATTERN_CHARACTERS_MAX: Final = 4_096
"""Of all these patterns of a filter together."""
UNICODE_CLASSES_MAX: Final = 64
"""Classes such as \\pL in one RLIKE expression: each stands for hundreds of ranges."""
PROGRAM_BYTES_MAX: Final = 1 << 18
"""Memory that RE2 may use for one expression."""
PIECES_MAX: Final = 256
"""Pieces that a subtraction of boxes may leave before covering is given up as unproven."""
COVERING_STEPS_MAX: Final = 4_096
"""Steps in one question of covering before it is given up as unproven: a step is a comparison of
two boxes, or one constraint of a box that is subtracted."""
ABSORPTION_MAX: Final = 128
"""Boxes up to which each is compared with each to drop the covered ones: a cost of milliseconds."""
MERGE_BOXES_MAX: Final = 32
"""Boxes up to which merging tries the hull of each pair."""
