"""Texts and attribute values of generated documents, and what patterns ask of them.

Values come from short lists, so that a pattern with a condition has a chance to match.
"""

from __future__ import annotations

from typing import Final

from peersub.workloads.xml.draws import Draws
from peersub.workloads.xml.schema import Attribute, SchemaError, Value

__all__ = ["drawn_value", "is_drawable", "usable_attributes"]

WORDS: Final = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbour"),
    *("island", "juniper", "kelp", "lantern", "meadow", "north", "orchard", "pebble"),
)
_SAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "boolean": ("true", "false"),
    "date": ("2024-03-01", "2024-03-02", "2024-04-15"),
    "dateTime": ("2024-03-01T08:00:00Z", "2024-03-02T12:30:00Z"),
    "time": ("08:00:00", "12:30:00"),
    "duration": ("P1D", "PT2H"),
    "gYear": ("2023", "2024"),
    "gYearMonth": ("2023-11", "2024-03"),
    "gMonthDay": ("--03-01", "--11-30"),
    "gMonth": ("--03", "--11"),
    "gDay": ("---01", "---15"),
    "anyURI": ("urn:news:1", "urn:news:2", "urn:news:3"),
    "language": ("en", "fr", "de"),
    "base64Binary": ("AAAA", "AQID"),
    "hexBinary": ("00ff", "a1b2"),
    "float": ("0.5", "1.25", "40"),
    "double": ("0.5", "1.25", "40"),
}
_WHOLE: Final[dict[str, tuple[int, int]]] = {
    "integer": (-20, 20),
    "decimal": (-20, 20),
    "nonNegativeInteger": (0, 20),
    "positiveInteger": (1, 20),
    "nonPositiveInteger": (-20, 0),
    "negativeInteger": (-20, -1),
    **dict.fromkeys(("long", "int", "short", "byte"), (-20, 20)),
    **{f"unsigned{name}": (0, 20) for name in ("Long", "Int", "Short", "Byte")},
}
_NUMBERS_SPREAD: Final = 20
_UNDRAWABLE: Final = frozenset({"IDREF", "IDREFS", "ENTITY", "ENTITIES", "NOTATION", "QName"})
"""They name something that a document would have to declare."""


def is_drawable(value: Value) -> bool:
    """Whether a valid text can be made up."""
    return bool(value.choices) or value.kind not in _UNDRAWABLE


def usable_attributes(attributes: tuple[Attribute, ...], owner: str) -> tuple[Attribute, ...]:
    """The attributes whose values can be made up.

    Raises:
        SchemaError: one that is required is not among them.
    """
    for attribute in attributes:
        if attribute.is_required and not is_drawable(attribute.value):
            raise SchemaError(
                f"the attribute {attribute.name!r} of {owner!r} is required and refers to "
                f"something else ({attribute.value.kind}), which is not supported: make it optional"
            )
    return tuple(attribute for attribute in attributes if is_drawable(attribute.value))


def drawn_value(value: Value, draws: Draws, number: int) -> str:
    """A valid text; `number` tells identifiers of one document apart."""
    if value.choices:
        return value.choices[draws.below(len(value.choices))]
    kind = value.kind
    if kind == "ID":
        return f"i{number}"
    if kind in _SAMPLES:
        return _SAMPLES[kind][draws.below(len(_SAMPLES[kind]))]
    if kind in _WHOLE:
        return str(_drawn_number(value, *_WHOLE[kind], draws))
    word = WORDS[draws.below(len(WORDS))]
    low, high = value.low or 0, value.high
    if len(word) < low:
        word += "x" * (low - len(word))
    return word if high is None else word[:high]


def _drawn_number(value: Value, low: int, high: int, draws: Draws) -> int:
    if value.low is not None:
        low, high = value.low, max(high, value.low + _NUMBERS_SPREAD)
    if value.high is not None:
        high = value.high
        low = max(low, high - _NUMBERS_SPREAD) if value.low is not None else min(low, high)
    return low + draws.below(high - low + 1)
