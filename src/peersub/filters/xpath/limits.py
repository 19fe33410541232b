"""The bounds on patterns and documents. Both come from strangers: each bound keeps a cost small."""

from typing import Final

PATTERN_CHARACTERS_MAX: Final = 4_096
PATTERN_PARTS_MAX: Final = 64
"""Steps and comparisons of one pattern."""
LITERAL_DIGITS_MAX: Final = 15
"""Digits of a number in a pattern: as many as a 64-bit float always tells apart."""
MODELS_MAX: Final = 4_096
"""Canonical models up to which the complete procedure is tried."""

DOCUMENT_BYTES_MAX: Final = 16 * 1_024 * 1_024
DOCUMENT_DEPTH_MAX: Final = 250
DOCUMENT_MARKUP_MAX: Final = 524_288
"""Tags and attributes, counted by `<` and `=`: bounds the memory that a small file can ask for."""
VALUE_CHARACTERS_MAX: Final = 4_096
"""A longer text equals no literal, for none is as long, and is not a number."""
NUMBER_CHARACTERS_MAX: Final = 64
"""A longer text, blanks around it left out, is not a number."""
