"""Large bodies, which patterns read as XML, are read off the loop before an event is routed.

To parse a document of a megabyte takes a fifth of a second, and to ask one pattern about it up to a
twentieth, in which a loop would serve nobody. So one is parsed at a time, in a thread, and all
patterns that the node holds are asked about it there; so are smaller ones, where patterns are many.
What came after it from the same publisher or neighbour waits. No parsing can be broken off: what
nobody waits for any more is parsed to its end before the next one, or not begun. A node that has
never seen a pattern reads no bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Final

from peersub.filters.filter import Filter
from peersub.filters.xpath import DocumentError, XPathFilter, document_of
from peersub.matching.xpath_index import XPathIndex
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.messages import Message, content_of
from peersub.overlays.core.publication import Publication
from peersub.wire import Patterns, patterns_held, patterns_seen

__all__ = ["ASKED_ON_LOOP_BYTES", "READ_ON_LOOP_BYTES", "BodyReader"]

READ_ON_LOOP_BYTES: Final = 32 * 1_024
"""Of a body that is parsed where it is needed: a few milliseconds."""
ASKED_ON_LOOP_BYTES: Final = 256 * 1_024
"""Of a body, for each pattern that is asked about it where the answer is needed."""


class BodyReader:
    """Parses large bodies of one node.

    Attributes:
        has_patterns: whether a pattern was subscribed to on this node; others tell of theirs.
    """

    def __init__(self) -> None:
        self.has_patterns = False
        self._noted = Patterns()
        self._asked = _Asked()
        self._thread: ThreadPoolExecutor | None = None

    def note(self, wanted: Filter) -> None:
        """Somebody subscribes here."""
        if wanted.language != "sql":
            self.has_patterns = True
            self._noted.note(wanted)

    @property
    def reads(self) -> bool:
        """Whether bodies may have to be read at all."""
        return self.has_patterns or patterns_seen()

    def must_read(self, content: Publication | Batch) -> bool:
        """Whether the body is to be read before the event is routed."""
        return (
            isinstance(content, Publication)
            and content.body is not None
            and self._is_large(len(content.body))
            and not content.event.reading
        )

    def _is_large(self, size: int) -> bool:
        """Whether it takes long to parse so much, or to ask all patterns about it."""
        if not self.reads:
            return False
        if size > READ_ON_LOOP_BYTES:
            return True
        patterns = sum(map(len, (self._noted, *patterns_held())))
        return size * patterns > ASKED_ON_LOOP_BYTES

    def must_read_first(self, message: Message) -> Publication | None:
        """The event that a message brings, if its body is to be read before."""
        publication = content_of(message)
        if isinstance(publication, Publication) and publication.is_sound:
            return publication if self.must_read(publication) else None
        return None

    async def read(self, contents: Iterable[Publication | Batch]) -> None:
        """Read the bodies that are to be read before."""
        for content in contents:
            if isinstance(content, Publication) and self.must_read(content):
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, "peersub-bodies")
                patterns = [each for held in (self._noted, *patterns_held()) for each in held]
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, _read, content, self._asked, patterns)


class _Asked:
    """The patterns that are asked about large documents, by their texts."""

    def __init__(self) -> None:
        self._index = XPathIndex()
        self._numbers: dict[str, int] = {}
        self._next = count()

    def use(self, patterns: Iterable[Filter]) -> XPathIndex:
        """Their index: what is new is added, and what nobody holds any more goes."""
        wanted = {each.text: each for each in patterns if isinstance(each, XPathFilter)}
        for text in self._numbers.keys() - wanted.keys():
            self._index.remove(self._numbers.pop(text))
        for text in wanted.keys() - self._numbers.keys():
            number = self._numbers[text] = next(self._next)
            self._index.add(number, wanted[text])
        return self._index


def _read(publication: Publication, asked: _Asked, patterns: list[Filter]) -> None:
    event, index = publication.event, asked.use(patterns)
    patterns.clear()  # The thread must not seem to hold them for longer.
    with suppress(DocumentError):  # It is known from now on, and matches no pattern.
        try:
            document = document_of(event)
            document.prepare()
            index.note_answers(document)
        except (MemoryError, RecursionError) as error:
            assert event.reading is not None
            event.reading[:] = [DocumentError(f"the document cannot be read: {error}")]
