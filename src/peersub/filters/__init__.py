"""The filter languages, their one normal form, and the relations between filters."""

from peersub.filters.errors import FilterError
from peersub.filters.filter import Filter, Matchable

__all__ = ["Filter", "FilterError", "Matchable"]
