"""The file doors: events and subscriptions in, deliveries out.

Readers turn any format into Arrow tables by the one set of rules in `events.inference`; what they
cannot read is a `FileError` or, row by row, a `BadRow`, each with the place and what to do about
it. Nothing is left out silently.
"""

from peersub.files.errors import BadRow, FileError

__all__ = ["BadRow", "FileError"]
