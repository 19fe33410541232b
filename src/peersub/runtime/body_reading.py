"""Large bodies, which patterns read as XML, are parsed off the loop before an event is routed.

To parse a document of a megabyte takes a fifth of a second, in which a loop would serve nobody. One
is parsed at a time, in a thread; what came after it from the same publisher or neighbour waits. No
parsing can be broken off: what nobody waits for any more is parsed to its end before the next one,
or not begun. A node that has never seen a pattern reads no bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from peersub.filters.filter import Filter
from peersub.filters.xpath import DocumentError, document_of
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.messages import Message
from peersub.overlays.core.publication import Publication
from peersub.wire import patterns_seen

__all__ = ["READ_ON_LOOP_BYTES", "BodyReader"]

READ_ON_LOOP_BYTES: Final = 32 * 1_024
"""Of a body that is parsed where it is needed: a few milliseconds."""


class BodyReader:
    """Parses large bodies of one node.

    Attributes:
        has_patterns: whether a pattern was subscribed to on this node; others tell of theirs.
    """

    def __init__(self) -> None:
        self.has_patterns = False
        self._thread: ThreadPoolExecutor | None = None

    def note(self, wanted: Filter) -> None:
        """Somebody subscribes here."""
        self.has_patterns = self.has_patterns or wanted.language != "sql"

    @property
    def reads(self) -> bool:
        """Whether bodies may have to be read at all."""
        return self.has_patterns or patterns_seen()

    def must_read(self, content: Publication | Batch) -> bool:
        """Whether the body is to be read before the event is routed."""
        return (
            isinstance(content, Publication)
            and content.body is not None
            and len(content.body) > READ_ON_LOOP_BYTES
            and not content.event.reading
            and self.reads
        )

    def must_read_first(self, message: Message) -> Publication | None:
        """The event that a message brings, if its body is to be read before."""
        publication = getattr(unwrapped(message), "publication", None)
        if isinstance(publication, Publication) and publication.is_sound:
            return publication if self.must_read(publication) else None
        return None

    async def read(self, contents: Iterable[Publication | Batch]) -> None:
        """Read the bodies that are to be read before."""
        for content in contents:
            if isinstance(content, Publication) and self.must_read(content):
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, "peersub-bodies")
                await asyncio.get_running_loop().run_in_executor(self._thread, _parse, content)


def _parse(publication: Publication) -> None:
    event = publication.event
    with suppress(DocumentError):  # It is known from now on, and matches no pattern.
        try:
            document_of(event).prepare()
        except (MemoryError, RecursionError) as error:
            assert event.reading is not None
            event.reading[:] = [DocumentError(f"the document cannot be read: {error}")]
