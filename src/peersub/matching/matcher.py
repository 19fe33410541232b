"""`Matcher`: many subscriptions, and for each event those that want it.

New subscriptions enter a small index in plain Python. When that is full it is sealed and compiled
into an immutable segment, and neighbouring segments of similar size are merged, so that there are
few of them and each subscription is compiled a logarithmic number of times. Both happen in the
background: until then what is sealed answers as it did, and who adds never waits, since a node that
does has events to serve. Removing one marks its row.
Whatever happens inside, an event sees each subscription either wholly or not at all: changes and
the look at what there is exclude each other, and what a running batch looks at never changes.

XPath patterns live beside the SQL filters, in an index of their own over the event's document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from peersub.filters.filter import Filter, Matchable, attributes_of
from peersub.matching.parallel import Background, exclusive, return_free_memory
from peersub.matching.recent import Recent
from peersub.matching.shared_entries import SharedEntries
from peersub.matching.small_index import Probe

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from peersub.matching.bulk import TextColumns
    from peersub.matching.merging import Merge
    from peersub.matching.segment import Segment
    from peersub.matching.xpath_index import XPathIndex

__all__ = ["Matcher"]

FIRST_COMPILED_AT = 4_096
"""Up to here nothing is compiled, and neither NumPy nor numba is imported."""
RECENT_MAX = 512
"""Once something is compiled: with how many subscriptions the small index is full. There are more
in it while others are compiled."""
GROWTH = 4
"""A segment is merged with the one before it when that is at most this many times as large."""
SMALL_BATCH_ROWS = 2_000
"""Batches up to this size against a small index alone are matched event by event."""


class Matcher:
    """Subscriptions by id. Safe to use from several threads.

    >>> matcher = Matcher()
    >>> matcher.add("s1", Filter("symbol = 'ACME' AND price > 10"))
    >>> matcher.match({"symbol": "ACME", "price": 12.5})
    ['s1']
    """

    def __init__(self) -> None:
        self._exclusive = exclusive()
        self._recent = Recent()
        self._sealed: Recent | None = None
        """What is compiled in the background, and comes after all segments."""
        self._removed_since: list[str] = []
        """What was removed from it since that began."""
        self._segments: tuple[Segment, ...] = ()
        self._background = Background()
        self._is_tidying = False
        self._patterns = SharedEntries()
        self._pattern_index: XPathIndex | None = None

    # --- what is there --------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._exclusive:
            compiled = sum(len(segment) for segment in self._segments)
            return compiled + sum(map(len, self._small())) + len(self._patterns)

    def __contains__(self, subscription_id: str) -> bool:
        with self._exclusive:
            return self._is_there(subscription_id)

    def _small(self) -> tuple[Recent, ...]:
        """What is not compiled yet."""
        return (self._recent,) if self._sealed is None else (self._sealed, self._recent)

    def _small_compiled(self) -> Iterator[Segment]:
        """The same as segments."""
        return (small.compiled() for small in self._small() if len(small))

    def _is_there(self, subscription_id: str) -> bool:
        return (
            any(subscription_id in small for small in self._small())
            or subscription_id in self._patterns
            or any(segment.row_of(subscription_id) is not None for segment in self._segments)
        )

    def add(self, subscription_id: str, wanted: Filter) -> None:
        """Add a subscription under a new id.

        Raises:
            ValueError: the id is there already.
        """
        with self._exclusive:
            if self._is_there(subscription_id):
                raise ValueError(
                    f"subscription {subscription_id!r} is there already: remove it first"
                )
            if wanted.language == "xpath":
                self._add_pattern(subscription_id, wanted)
                return
            self._recent.add(subscription_id, wanted)
            if self._is_full() and not self._is_tidying:
                self._is_tidying = True
                self._background.run(self._tidy)

    def _is_full(self) -> bool:
        """Whether the recent subscriptions are to be compiled."""
        return len(self._recent) >= (RECENT_MAX if self._segments else FIRST_COMPILED_AT)

    def _add_pattern(self, subscription_id: str, wanted: Filter) -> None:
        from peersub.filters.xpath import XPathFilter
        from peersub.matching.xpath_index import XPathIndex

        assert isinstance(wanted, XPathFilter)
        if self._pattern_index is None:
            self._pattern_index = XPathIndex()
        entry = self._patterns.add(subscription_id, wanted)
        if entry is not None:
            self._pattern_index.add(entry, wanted)

    def remove(self, subscription_id: str) -> None:
        """Remove a subscription.

        Raises:
            KeyError: there is none of that id.
        """
        with self._exclusive:
            if subscription_id in self._recent:
                self._recent.remove(subscription_id)
                return
            if self._sealed is not None and subscription_id in self._sealed:
                self._sealed.remove(subscription_id)
                self._removed_since.append(subscription_id)
                return
            if subscription_id in self._patterns:
                entry = self._patterns.remove(subscription_id)
                if entry is not None and self._pattern_index is not None:
                    self._pattern_index.remove(entry)
                return
            for segment in self._segments:
                row = segment.row_of(subscription_id)
                if row is not None:
                    segment.kill(row)
                    self._drop_dead_segments()
                    return
        raise KeyError(subscription_id)

    # --- matching -------------------------------------------------------------------------------

    def match(self, event: Matchable, probe: Probe | None = None) -> list[str]:
        """The ids of the subscriptions that want an event, each once.

        Args:
            event: attributes, an `Event`, or an XML document (bytes or str).
            probe: of the same event, where other matchers are asked about it as well.
        """
        attributes = attributes_of(event)
        with self._exclusive:
            segments = self._segments
            recent = self._match_small(probe or Probe(attributes))
            patterns = self._match_patterns(event) if self._pattern_index is not None else []
        found = [name for segment in segments for name in segment.match(attributes)]
        return found + recent + patterns

    def matches_any(self, event: Matchable, probe: Probe | None = None) -> bool:
        """Whether there is a subscription that wants an event; arguments as of `match`."""
        attributes = attributes_of(event)
        with self._exclusive:
            segments = self._segments
            probe = probe or Probe(attributes)
            if any(small.matches_any(probe) for small in self._small()) or (
                self._pattern_index is not None and self._match_patterns(event)
            ):
                return True
        return any(segment.match(attributes) for segment in segments)

    def _match_small(self, probe: Probe) -> list[str]:
        return [name for small in self._small() for name in small.match(probe)]

    def _match_patterns(self, event: Matchable) -> list[str]:
        assert self._pattern_index is not None
        return [
            name for entry in self._pattern_index.match(event) for name in self._patterns.ids(entry)
        ]

    def match_batch(
        self,
        events: pa.Table | pa.RecordBatch,
        *,
        threads: int | None = None,
        body_column: str = "body",
    ) -> pa.Table:
        """Who wants which event of a batch.

        Columns are attributes (a struct is a record), nulls are missing; a column of mixed kinds is
        a union. The column `body_column`, if there is one, is also what XPath patterns read.

        Args:
            events: an Arrow table or record batch.
            threads: how many threads share the work; by default as many as there are processors.
            body_column: the column with the XML document of each event.

        Returns:
            A table with a row per delivery: `event_row` (int64), the event's place in the batch,
            and `subscription_id` (dictionary-encoded string). The order of rows is not specified.
        """
        from peersub.matching import batches

        table = batches.as_table(events)
        segments, recent, has_patterns = self._to_ask(table)
        found = [
            part for segment in segments for part in batches.match_segment(segment, table, threads)
        ]
        if recent:
            found += batches.match_rows(self._match_recent, table)
        if has_patterns:
            found += batches.match_documents(self._match_body, table, body_column)
        return batches.deliveries(found)

    def match_parts(
        self,
        events: pa.Table | pa.RecordBatch,
        *,
        pairs_max: int,
        body_column: str = "body",
    ) -> Iterator[pa.Table]:
        """What `match_batch` returns, in parts of a bounded size, found by this thread alone.

        A part has at most about `pairs_max` rows, or those of one event: where every subscription
        wants every event, the answer to a batch would not fit into memory.
        """
        from peersub.matching import batches

        table = batches.as_table(events)
        segments, recent, has_patterns = self._to_ask(table)
        for segment in segments:
            for part in batches.match_segment_in_parts(segment, table, pairs_max):
                yield batches.deliveries([part])
        if recent:
            for part in batches.match_rows(self._match_recent, table, pairs_max):
                yield batches.deliveries([part])
        if has_patterns:
            for part in batches.match_documents(self._match_body, table, body_column, pairs_max):
                yield batches.deliveries([part])

    def _to_ask(self, table: pa.Table) -> tuple[tuple[Segment, ...], bool, bool]:
        """The segments, and whether to ask the small indexes and the patterns too."""
        with self._exclusive:
            segments, has_patterns = self._segments, len(self._patterns) > 0
            if table.num_rows > SMALL_BATCH_ROWS or (segments and not self._is_tidying):
                return (*segments, *self._small_compiled()), False, has_patterns
            return segments, any(map(len, self._small())), has_patterns

    def _match_recent(self, event: Matchable) -> list[str]:
        attributes = attributes_of(event)
        with self._exclusive:
            return self._match_small(Probe(attributes))

    def _match_body(self, event: Matchable) -> list[str]:
        with self._exclusive:
            return self._match_patterns(event)

    # --- many at once ---------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        ids: Any,
        texts: Any,
        *,
        processes: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Matcher:
        """A matcher for many SQL filters at once: parsed by several processes, compiled in one go.

        Args:
            ids: the subscription ids, a list or an Arrow array of strings.
            texts: their filters, likewise.
            processes: how many processes parse; by default as many as there are processors.
            progress: called with the number of filters parsed so far.

        Raises:
            FilterError: of the first text that is no filter; `row` is its place.
            ValueError: an id is missing or there twice.
        """
        from peersub.matching.bulk import segment_of_texts

        matcher = cls()
        if len(ids):
            matcher._segments = (segment_of_texts(ids, texts, processes, progress),)
            return_free_memory()
        return matcher

    @classmethod
    def from_columns(
        cls, ids: Any, columns: TextColumns, patterns: Iterable[tuple[str, Filter]] = ()
    ) -> Matcher:
        """A matcher for filters that were parsed elsewhere, and for XPath patterns.

        Args:
            ids: the ids of the parsed filters, a list or an Arrow array of strings.
            columns: the parsed filters.
            patterns: XPath patterns and their ids.

        Raises:
            FilterError: of the first text that was no filter.
            ValueError: an id is missing or there twice.
        """
        from peersub.matching.bulk import segment_of_columns

        matcher = cls()
        if len(ids):
            matcher._segments = (segment_of_columns(ids, columns),)
        for subscription_id, wanted in patterns:
            matcher.add(subscription_id, wanted)
        return matcher

    # --- segments -------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Compile what is full and merge neighbours of similar size, until there is neither."""
        from peersub.matching.merging import Merge
        from peersub.matching.segment import Segment

        try:
            while True:
                with self._exclusive:
                    pair = self._alike()
                    plan = Merge.of(pair) if pair is not None else None
                    fresh = self._seal() if plan is None and self._is_full() else []
                    self._is_tidying = plan is not None or bool(fresh)
                if plan is not None:
                    self._install(plan, plan.compiled())
                elif fresh:
                    self._unseal(Segment.of_filters(fresh))
                else:
                    return
        except BaseException:
            self._is_tidying = False
            raise

    def _seal(self) -> list[tuple[str, Filter]]:
        """Begin to compile the recent subscriptions."""
        self._sealed, self._recent = self._recent, Recent()
        self._removed_since = []
        return self._sealed.items()

    def _unseal(self, compiled: Segment) -> None:
        """Put the segment of what was sealed in its place, without what was removed meanwhile."""
        with self._exclusive:
            for name in self._removed_since:
                row = compiled.row_of(name)
                assert row is not None
                compiled.kill(row)
            self._sealed, self._removed_since = None, []
            self._segments = (*self._segments, compiled)
            self._drop_dead_segments()

    def _alike(self) -> tuple[Segment, Segment] | None:
        """The newest two neighbours of which the older is at most GROWTH times as large."""
        for older, newer in reversed(list(zip(self._segments, self._segments[1:], strict=False))):
            if len(older) <= GROWTH * len(newer):
                return older, newer
        return None

    def _install(self, plan: Merge, compiled: Segment) -> None:
        """Put a merged segment in the place of those that it was made from, if any still lives."""
        with self._exclusive:
            merged = plan.finished(compiled)
            segments: list[Segment] = []
            for segment in self._segments:
                if segment not in plan.segments:
                    segments.append(segment)
                elif merged not in segments and len(merged):
                    segments.append(merged)
            self._segments = tuple(segments)

    def settle(self) -> None:
        """Wait until nothing is compiled in the background; for saving, measuring and tests."""
        self._background.wait()

    def _drop_dead_segments(self) -> None:
        if any(len(segment) == 0 for segment in self._segments):
            self._segments = tuple(segment for segment in self._segments if len(segment))

    def save(self, folder: str | Path) -> None:
        """Write everything to a folder, from which `open` maps it into memory."""
        from peersub.matching.storage import save_matcher

        self.settle()
        with self._exclusive:
            segments = (*self._segments, *self._small_compiled())
            patterns = list(self._patterns.items())
        save_matcher(folder, segments, patterns)

    @classmethod
    def open(cls, folder: str | Path) -> Matcher:
        """The matcher that `save` wrote; its arrays stay in the files until they are used.

        Raises:
            ValueError: the folder holds no matcher, or one of another version.
        """
        from peersub.matching.storage import open_matcher

        matcher = cls()
        matcher._segments, patterns = open_matcher(folder)
        for subscription_id, wanted in patterns:
            matcher.add(subscription_id, wanted)
        return matcher
