"""Questions to a store. They see what is committed, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from peersub.filters.filter import Filter
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.records import DurableSubscriptionStored, IdentityStored, Record
from peersub.overlays.core.store_marks import StoreMark
from peersub.runtime.store.facts import IDENTITY, LOG_EPOCH, NEIGHBOURS, commits, fact
from peersub.runtime.store.history import restored_events
from peersub.runtime.store.log import next_position
from peersub.runtime.store.rows import event_of, names_of
from peersub.runtime.store.schema import EVENT_COLUMNS
from peersub.runtime.store.staging import StageState
from peersub.wire import WireError, decode_record

__all__ = [
    "DurableSubscription",
    "LogTime",
    "LoggedEvent",
    "Losses",
    "MirroredSubscription",
    "RetainedEvent",
    "Since",
    "StagedEvent",
    "committed_keys",
    "durable_subscriptions",
    "log_positions",
    "losses",
    "mirrored_subscriptions",
    "position_for",
    "read_log",
    "restored_records",
    "retained_among",
    "retained_events",
    "store_mark",
    "stage_state",
    "staged_events",
]


_EVENT_WIDTH: Final = len(EVENT_COLUMNS.split(", "))


@dataclass(frozen=True, slots=True)
class LogTime:
    """A time at which to begin, in milliseconds since 1970."""

    at_ms: int


Since: TypeAlias = int | LogTime | Literal["earliest"] | None
"""Where to begin: after a position, at a time, with all that there is, or where it stopped."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event of the log."""

    position: int
    publication: Publication
    hops: int
    at_ms: int


class Losses(NamedTuple):
    """What a durable subscription lost before it was read, and of what its consumer heard."""

    trimmed: int
    """Events that the log's bounds cut off."""
    through: int
    """The position of the last of them, or 0."""
    trimmed_told: int
    gaps: int
    """How often the disk lost events, nobody knows how many."""
    gaps_told: int


@dataclass(frozen=True, slots=True)
class DurableSubscription:
    """A durable subscription of this node."""

    name: str
    filter: Filter
    cursor: int
    created_ms: int
    trimmed_unread: int
    """Events that the log's bounds cut off before the consumer had read them."""
    trimmed_through: int
    """The position of the last of them, or 0."""
    trimmed_told: int
    """How many of them the consumer has heard of."""
    gaps: int
    """How often the disk lost events, nobody knows how many."""
    gaps_told: int
    """Of how many of these times the consumer has heard."""
    abandoned_ms: int
    """Since when it has no consumer; 0 if it has, or nobody noted it."""


@dataclass(frozen=True, slots=True)
class MirroredSubscription:
    """A durable subscription of another node that this one looks after."""

    home: str
    name: str
    filter: Filter
    options: bytes
    created_ms: int
    dropped: int
    """Events for it that the mirror's bounds cut off before they were released."""


@dataclass(frozen=True, slots=True)
class RetainedEvent:
    """An event that is kept for subscriptions of another node; later ones have larger numbers."""

    number: int
    publication: Publication
    names: tuple[str, ...]
    hops: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class StagedEvent:
    """A publication that waits under a key; later ones have larger numbers."""

    number: int
    publication: Publication


# --- after a restart -----------------------------------------------------------------------------


def restored_records(connection: sqlite3.Connection) -> tuple[Record, ...]:
    """What the node's protocol is told when it starts again."""
    records: list[Record] = []
    identity = fact(connection, IDENTITY)
    if identity is not None:
        records.append(IdentityStored(identity))
    neighbours = fact(connection, NEIGHBOURS)
    if neighbours is not None:
        with suppress(WireError):  # A damaged one is no reason not to start.
            records.append(decode_record(neighbours))
    records.extend(
        DurableSubscriptionStored(durable.name, durable.filter)
        for durable in durable_subscriptions(connection)
    )
    return (*records, *restored_events(connection))


def store_mark(connection: sqlite3.Connection) -> StoreMark:
    """How far the store is."""
    epoch = fact(connection, LOG_EPOCH)
    assert epoch is not None
    return StoreMark(epoch.decode(), commits(connection), next_position(connection) - 1)


# --- the log -------------------------------------------------------------------------------------

_DURABLE: Final = (
    "SELECT name, filter, cursor, created_ms, trimmed_unread, trimmed_through, trimmed_told, "
    "gaps, gaps_told, abandoned_ms FROM subscriptions"
)


def durable_subscriptions(connection: sqlite3.Connection) -> list[DurableSubscription]:
    """All, in the order of their creation."""
    return [
        DurableSubscription(name, Filter.from_bytes(wanted), *rest)
        for name, wanted, *rest in connection.execute(f"{_DURABLE} ORDER BY number")
    ]


def losses(connection: sqlite3.Connection, subscription: str) -> Losses | None:
    """What a subscription lost; None if there is none of this name."""
    found = connection.execute(
        "SELECT trimmed_unread, trimmed_through, trimmed_told, gaps, gaps_told "
        "FROM subscriptions WHERE name = ?",
        (subscription,),
    ).fetchone()
    return None if found is None else Losses(*found)


def read_log(
    connection: sqlite3.Connection,
    subscription: str,
    after: int,
    limit: int,
    bytes_max: int | None = None,
) -> list[LoggedEvent]:
    """The first events of a subscription after a position; damaged ones are passed over.

    There may be more where so many bytes, and one event more, have come together.
    """
    query = (
        f"SELECT log.position, hops, at_ms, {EVENT_COLUMNS} FROM log_entries "
        "JOIN log ON log.position = log_entries.position WHERE subscription = "
        "(SELECT number FROM subscriptions WHERE name = ?) AND log_entries.position > ? "
        "ORDER BY log_entries.position LIMIT ?"
    )
    return [
        LoggedEvent(position, publication, hops, at_ms)
        for (position, hops, at_ms), publication in _sound(
            connection, query, subscription, after, limit, bytes_max
        )
    ]


def log_positions(
    connection: sqlite3.Connection, subscription: str, event_ids: Iterable[str]
) -> dict[str, int]:
    """The positions of those of the events that the log has for a subscription.

    By the index of events: CROSS JOIN keeps SQLite from going through all of the subscription's.
    """
    found: dict[str, int] = {}
    for event_id in event_ids:
        for (position,) in connection.execute(
            "SELECT log.position FROM log CROSS JOIN log_entries "
            "ON log_entries.position = log.position AND subscription = "
            "(SELECT number FROM subscriptions WHERE name = ?) WHERE event_id = ?",
            (subscription, event_id),
        ):
            found[event_id] = position
    return found


def _sound(
    connection: sqlite3.Connection,
    query: str,
    about: str,
    after: int,
    limit: int,
    bytes_max: int | None = None,
) -> list[tuple[list[Any], Publication]]:
    """Rows of the query with their events, without damaged ones. No rows mean that none are left:
    where all rows of an answer are damaged, those after them are asked for.
    """
    while True:
        rows: list[tuple[Any, ...]] = []
        size = 0
        for row in connection.execute(query, (about, after, limit)):
            rows.append(row)
            size += sum(len(value) for value in row if isinstance(value, bytes))
            if bytes_max is not None and size >= bytes_max:
                break
        found = [
            (list(row[:-_EVENT_WIDTH]), publication)
            for row in rows
            if (publication := event_of(row[-_EVENT_WIDTH:])) is not None
        ]
        if found or not rows:
            return found
        after = rows[-1][0]


def position_for(connection: sqlite3.Connection, subscription: str, since: Since) -> int | None:
    """The position after which to read; None if there is no such subscription."""
    found = connection.execute(
        "SELECT cursor FROM subscriptions WHERE name = ?", (subscription,)
    ).fetchone()
    if found is None:
        return None
    if since is None:
        cursor: int = found[0]
        return cursor
    if isinstance(since, LogTime):
        return _position_before(connection, since.at_ms)
    return 0 if since == "earliest" else since


def _position_before(connection: sqlite3.Connection, at_ms: int) -> int:
    """The last position that is older than the time, by halving: times never fall."""
    # Two questions: SQLite would read the whole log to answer both in one.
    first, last = connection.execute(
        "SELECT (SELECT min(position) FROM log), (SELECT max(position) FROM log)"
    ).fetchone()
    if first is None:
        return next_position(connection) - 1
    # Between the two: all up to `older` is older, all from `younger` on is not.
    older, younger = first - 1, last + 1
    while younger - older > 1:
        middle = (older + younger) // 2
        position, then_ms = connection.execute(
            "SELECT position, at_ms FROM log WHERE position >= ? ORDER BY position LIMIT 1",
            (middle,),
        ).fetchone()
        if then_ms < at_ms:
            older = position
        else:
            younger = middle
    return int(younger) - 1


# --- the mirror ----------------------------------------------------------------------------------


def mirrored_subscriptions(
    connection: sqlite3.Connection, home: str | None
) -> list[MirroredSubscription]:
    """Those of a home, or of all, in the order in which they came."""
    return [
        MirroredSubscription(owner, name, Filter.from_bytes(wanted), *rest)
        for owner, name, wanted, *rest in connection.execute(
            "SELECT home, name, filter, options, created_ms, dropped FROM mirrored "
            "WHERE ?1 IS NULL OR home = ?1 ORDER BY number",
            (home,),
        )
    ]


def retained_events(
    connection: sqlite3.Connection, home: str, after: int, limit: int
) -> list[RetainedEvent]:
    """The first events for a home after a number; damaged ones are passed over."""
    query = (
        f"SELECT number, names, hops, at_ms, {EVENT_COLUMNS} FROM retained "
        "WHERE home = ? AND number > ? ORDER BY number LIMIT ?"
    )
    return [
        RetainedEvent(number, publication, tuple(names_of(names)), hops, at_ms)
        for (number, names, hops, at_ms), publication in _sound(
            connection, query, home, after, limit
        )
    ]


def retained_among(
    connection: sqlite3.Connection, home: str, name: str, event_ids: Iterable[str]
) -> set[str]:
    """Those of the events that are retained for a subscription of a home."""
    found: set[str] = set()
    for event_id in event_ids:
        row = connection.execute(
            "SELECT names FROM retained WHERE home = ? AND event_id = ?", (home, event_id)
        ).fetchone()
        if row is not None and name in names_of(row[0]):
            found.add(event_id)
    return found


# --- staged publications -------------------------------------------------------------------------


def stage_state(connection: sqlite3.Connection, key: str) -> StageState | None:
    """How far the key is; None if it is not known, or forgotten."""
    found = connection.execute("SELECT state FROM stages WHERE key = ?", (key,)).fetchone()
    return None if found is None else StageState(found[0])


def committed_keys(connection: sqlite3.Connection) -> list[str]:
    """Keys that are committed and not yet published, in the order of their first staging."""
    return [
        key
        for (key,) in connection.execute(
            "SELECT key FROM stages WHERE state = ? ORDER BY number", (StageState.COMMITTED,)
        )
    ]


def staged_events(
    connection: sqlite3.Connection, key: str, after: int, limit: int
) -> list[StagedEvent]:
    """The first publications under a key after a number, in the order of staging."""
    query = (
        f"SELECT number, {EVENT_COLUMNS} FROM staged "
        "WHERE stage = (SELECT number FROM stages WHERE key = ?) AND number > ? "
        "ORDER BY number LIMIT ?"
    )
    return [
        StagedEvent(number, publication)
        for (number,), publication in _sound(connection, query, key, after, limit)
    ]
