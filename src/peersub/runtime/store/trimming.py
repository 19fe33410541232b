"""Whose events are cut off when the log is too large: those of whoever has most of them unread.

Nobody needs an event that all have read: such events go first. Then each account (a client; without
certificates, each subscription by itself) has its own bound, and what is beyond it is cut from the
account's own oldest events. When all accounts together are too large, the largest is cut, until it
is no larger than the next: whoever has little unread loses nothing, however much others have.

What was cut is counted for each subscription, and `cuts` says what it was, so that its consumer
and its mirror are told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from peersub.runtime.client_shares import owner_of
from peersub.runtime.store.rows import EVENT_ROW_BYTES, numbers_of, packed, seal_subscriptions
from peersub.runtime.store.settings import StoreSettings

__all__ = ["ENTRY_BYTES", "LOG_ROW_BYTES", "SLACK", "Cut", "LogTrimming", "account_of"]

ENTRY_BYTES: Final = 12
"""What an event takes on disk for each subscription that it is for, roughly."""
LOG_ROW_BYTES: Final = (
    f"({EVENT_ROW_BYTES} + length(attributes) + ifnull(length(body), 0) "
    f"+ {ENTRY_BYTES} * length(log.subscriptions))"
)
"""The size of a row of the log, in SQL."""
SLACK: Final = 16
"""What is too large shrinks by one part of so many: not at each commit anew."""


def account_of(subscription: str) -> str:
    """Whose bound a subscription counts towards: its owner's, or its own if nobody is known.

    >>> account_of("durable/ann/orders"), account_of("durable//orders")
    ('ann', 'durable//orders')
    """
    return owner_of(subscription) or subscription


class Cut(NamedTuple):
    """Events that a subscription lost before they were read."""

    subscription: str
    event_ids: tuple[str, ...]
    through: int
    """The position of the last of them."""


class _Row(NamedTuple):
    position: int
    event_id: str
    numbers: bytes
    size: int


_ROW: Final = f"log.position, event_id, log.subscriptions, {LOG_ROW_BYTES}"
_ROWS: Final = f"SELECT {_ROW} FROM log"


class LogTrimming:
    """Keeps the bounds of the log; used within the transactions of the writer.

    Attributes:
        bytes: what the log takes, roughly.
        cuts: what was cut off since they were last taken.
        trimmed_unread: how many events that was since the store was opened, over all subscriptions.
    """

    def __init__(self, connection: sqlite3.Connection, settings: StoreSettings) -> None:
        self._connection = connection
        self._settings = settings
        (self.bytes,) = connection.execute(
            f"SELECT ifnull(sum({LOG_ROW_BYTES}), 0) FROM log"
        ).fetchone()
        self.cuts: list[Cut] = []
        self.trimmed_unread = 0
        self._names: dict[int, str] = {}
        self._unread_at_most: dict[str, int] = {}
        """By account; how much it is, is only found out when this is too much."""
        self._grown: set[str] = set()
        """Accounts whose bound is to be looked at."""

    def use(self, number_of: dict[str, int]) -> None:
        """These are the durable subscriptions, with their numbers."""
        self._names = {number: name for name, number in number_of.items()}
        self.cuts = []
        for name in number_of:
            self._unread_at_most.setdefault(account_of(name), self.bytes * len(number_of))
        self._grown = self._accounts()

    def add(self, number: int, name: str) -> None:
        """There is one more subscription."""
        self._names[number] = name
        self._unread_at_most.setdefault(account_of(name), 0)

    def remove(self, number: int) -> None:
        """A subscription has ended."""
        self._names.pop(number, None)

    def grow(self, numbers: Iterable[int], size: int) -> None:
        """An event for these subscriptions is new in the log."""
        self.bytes += size
        for number in numbers:
            account = account_of(self._names[number])
            self._unread_at_most[account] += size
            self._grown.add(account)

    def go_back(self, number: int) -> None:
        """A consumer reads again: perhaps all."""
        account = account_of(self._names[number])
        self._unread_at_most[account] += self.bytes
        self._grown.add(account)

    def trim(self, now_ms: int) -> None:
        """Keep the bounds."""
        settings = self._settings
        self._drop_old(now_ms - settings.log_age_ms_max)
        bound = settings.log_bytes_per_client_max
        for account in self._grown:
            if self._unread_at_most[account] > bound:
                self._trim_account(account, bound)
        self._grown = set()
        if self.bytes > settings.log_bytes_max:
            bound = settings.log_bytes_max - settings.log_bytes_max // SLACK
            self._drop_read(bound)
            self._cut_largest(bound)

    # --- rows by age, and rows that nobody needs -------------------------------------------------

    def _drop_old(self, oldest_ms: int) -> None:
        """Remove the events that are too old, and count those that were not read."""
        rows = []
        for row in self._connection.execute(f"SELECT {_ROW}, at_ms FROM log ORDER BY position"):
            if row[-1] >= oldest_ms:
                break  # Times never fall.
            rows.append(_Row(*row[:-1]))
        if not rows:
            return
        cursors = self._cursors()
        lost: dict[int, list[_Row]] = {}
        for row in rows:
            for number in _unread_by(row, cursors):
                lost.setdefault(number, []).append(row)
        self._remove(rows)
        for number, unread in lost.items():
            self._count(number, unread)

    def _drop_read(self, bound: int) -> None:
        """Remove the oldest events that all have read, as far as needed."""
        cursors = self._cursors()
        read: list[_Row] = []
        missing = self.bytes - bound
        for row in map(_Row._make, self._connection.execute(f"{_ROWS} ORDER BY position")):
            if missing <= 0:
                break
            if not _unread_by(row, cursors):
                read.append(row)
                missing -= row.size
        self._remove(read)

    # --- what somebody loses ---------------------------------------------------------------------

    def _trim_account(self, account: str, bound: int) -> None:
        unread = self._unread_bytes(account)
        total = sum(unread.values())
        if total > bound:
            total -= self._cut(unread, total - bound + bound // SLACK)
        self._unread_at_most[account] = total

    def _cut_largest(self, bound: int) -> None:
        """Cut the oldest unread events of the largest account, until there is room."""
        if self.bytes <= bound:
            return
        unread = {account: self._unread_bytes(account) for account in self._accounts()}
        totals = {account: sum(sizes.values()) for account, sizes in unread.items()}
        while self.bytes > bound and any(totals.values()):
            largest = max(totals, key=lambda account: totals[account])
            others = [size for account, size in totals.items() if account != largest]
            # Down to the next one, and a part more, so that it ends; or by what is missing.
            excess = totals[largest] - max(others, default=0) + bound // SLACK + 1
            totals[largest] -= self._cut(unread[largest], min(self.bytes - bound, excess))
        self._unread_at_most.update(totals)

    def _cut(self, unread: dict[int, int], wanted: int) -> int:
        """Cut so many bytes from subscriptions of an account, largest first; how many it were."""
        cut = 0
        while cut < wanted and any(unread.values()):
            number = max(unread, key=lambda each: unread[each])
            size = self._cut_subscription(number, wanted - cut)
            # A row may have shrunk since its size was summed up.
            unread[number] = max(unread[number] - size, 0) if size else 0
            cut += size
        return cut

    def _cut_subscription(self, number: int, wanted: int) -> int:
        """Cut its oldest unread events; how many bytes it had of them."""
        rows: list[_Row] = []
        size = 0
        for row in self._unread(number):
            if size >= wanted:
                break
            rows.append(row)
            size += row.size
        cursors = self._cursors()
        cursors.pop(number)
        execute = self._connection.execute
        for row in rows:
            if not _unread_by(row, cursors):
                self._remove([row])
                continue
            left = packed([each for each in numbers_of(row.numbers) if each != number])
            self.bytes -= ENTRY_BYTES * (len(row.numbers) - len(left))
            execute("UPDATE log SET subscriptions = ? WHERE position = ?", (left, row.position))
            execute(
                "DELETE FROM log_entries WHERE subscription = ? AND position = ?",
                (number, row.position),
            )
        if rows:
            self._count(number, rows)
        return size

    def _count(self, number: int, rows: list[_Row]) -> None:
        """The consumer of a subscription did not get these."""
        self.trimmed_unread += len(rows)
        self._connection.execute(
            "UPDATE subscriptions SET trimmed_unread = trimmed_unread + ?, trimmed_through = ? "
            "WHERE number = ?",
            (len(rows), rows[-1].position, number),
        )
        seal_subscriptions(self._connection, number)
        event_ids = tuple([row.event_id for row in rows])
        self.cuts.append(Cut(self._names[number], event_ids, rows[-1].position))

    # --- the tables ------------------------------------------------------------------------------

    def _accounts(self) -> set[str]:
        return set(map(account_of, self._names.values()))

    def _cursors(self) -> dict[int, int]:
        return dict(self._connection.execute("SELECT number, cursor FROM subscriptions"))

    def _unread(self, number: int) -> Iterator[_Row]:
        return map(
            _Row._make,
            self._connection.execute(
                f"SELECT {_ROW} FROM log_entries CROSS JOIN log "
                "ON log.position = log_entries.position WHERE subscription = ?1 "
                "AND log_entries.position > (SELECT cursor FROM subscriptions WHERE number = ?1) "
                "ORDER BY log_entries.position",
                (number,),
            ),
        )

    def _unread_bytes(self, account: str) -> dict[int, int]:
        return {
            number: sum(row.size for row in self._unread(number))
            for number, name in self._names.items()
            if account_of(name) == account
        }

    def _remove(self, rows: list[_Row]) -> None:
        many = self._connection.executemany
        many("DELETE FROM log WHERE position = ?", [(row.position,) for row in rows])
        many(
            "DELETE FROM log_entries WHERE subscription = ? AND position = ?",
            [(number, row.position) for row in rows for number in numbers_of(row.numbers)],
        )
        self.bytes -= sum(row.size for row in rows)


def _unread_by(row: _Row, cursors: dict[int, int]) -> list[int]:
    """The subscriptions whose consumers have not read an event."""
    position = row.position
    return [
        number for number in numbers_of(row.numbers) if cursors.get(number, position) < position
    ]
