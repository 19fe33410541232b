"""What an event is: its envelope, the kinds of its values, and how text becomes values.

Everything that enters peersub (a dict, a JSON line, a CSV cell, an Arrow column) becomes values of
the kinds in `kinds`, by the rules in `inference`, and travels in the envelope of `envelope`.
"""

from peersub.events.envelope import Event, row_identifiers
from peersub.events.inference import value_of_cell
from peersub.events.kinds import Kind, KindClass, comparable, kind_of

__all__ = [
    "Event",
    "Kind",
    "KindClass",
    "comparable",
    "kind_of",
    "row_identifiers",
    "value_of_cell",
]
